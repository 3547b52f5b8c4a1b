//! Somebody who listens while single runs are executed: to calls to end them, and to signals.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use super::Executor;
use super::heart::Heart;
use crate::runs::RunError;
use lockkeeper_platform::signal::Signals;
use lockkeeper_platform::{pipe, poll};

/// A thread that listens until it is dropped.
pub struct Attendant {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    end: Option<OwnedFd>,
    _heart: Heart,
}

#[derive(Default)]
struct Shared {
    signals: AtomicU32,
}

impl Attendant {
    /// Begins to listen on behalf of an executor. The second signal ends what is executed.
    pub fn begin(executor: &Arc<Executor>, signals: Option<Signals>) -> Result<Self, RunError> {
        let (reader, end) = pipe::nonblocking().map_err(RunError::Machine)?;
        let heart = Heart::begin(&executor.pulse).map_err(RunError::Machine)?;
        let shared = Arc::new(Shared::default());
        let (executor, told) = (Arc::clone(executor), Arc::clone(&shared));
        let listen = move || {
            if let Err(error) = listen(&executor, &told, &reader, signals.as_ref()) {
                executor.trouble(format!("cannot listen: {error}"));
            }
        };
        let thread = thread::Builder::new().name("attendant".to_owned()).spawn(listen);
        let thread = Some(thread.map_err(RunError::Machine)?);
        Ok(Self { shared, thread, end: Some(end), _heart: heart })
    }

    /// Whether a signal asked for the end.
    pub fn is_asked_to_end(&self) -> bool {
        self.shared.signals.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(
    executor: &Executor,
    shared: &Shared,
    end: &OwnedFd,
    signals: Option<&Signals>,
) -> Result<(), RunError> {
    let mut heard = executor.runs.listen()?;
    let mut told = false;
    loop {
        heard.quiet(told);
        let around = executor.look_around()?;
        executor.pass_on(&around.ours)?;
        if shared.signals.load(Ordering::SeqCst) > 1 {
            for run in &around.ours {
                // It may have ended meanwhile.
                let _ = executor.runs.cancel(&run.id, Some("the worker was stopped"));
            }
        }
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![end.as_fd()];
        descriptors.extend(signals.map(|signals| signals.as_fd()));
        descriptors.extend(heard.as_fd());
        let ready = poll::wait(&descriptors, heard.patience()).map_err(RunError::Machine)?;
        if ready.contains(0) {
            return Ok(());
        }
        told = heard.as_fd().is_some() && ready.contains(descriptors.len() - 1);
        let came = signals.map(Signals::take).transpose().map_err(RunError::Machine)?.unwrap_or_default();
        shared.signals.fetch_add(u32::try_from(came.len()).unwrap_or(u32::MAX), Ordering::SeqCst);
    }
}
