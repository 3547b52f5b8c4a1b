//! Wait task: a blocking wait on a thread of tokio, which ends when its future is dropped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;

use lockkeeper_platform::pipe;
use tokio::task::{JoinHandle, spawn_blocking};

use super::Error;

/// Runs `wait` on a blocking thread. Its descriptor becomes readable when the future is dropped.
pub(super) async fn run<T: Send + 'static>(
    wait: impl FnOnce(BorrowedFd<'_>) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (cancelled, writer) = pipe::blocking().map_err(Error::System)?;
    let handle = spawn_blocking(move || wait(cancelled.as_fd()));
    let mut task = WaitTask { handle, _writer: writer };
    match (&mut task.handle).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(error) => Err(Error::System(error.into())),
        },
    }
}

/// The task. Dropping it cancels the task if no thread has started it, and otherwise closes the pipe, which ends the wait.
struct WaitTask<T> {
    handle: JoinHandle<T>,
    _writer: OwnedFd,
}

impl<T> Drop for WaitTask<T> {
    fn drop(&mut self) {
        self.handle.abort();
    }
}
