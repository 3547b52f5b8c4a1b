//! Changes: a notification after each commit, and a descriptor that a process sleeps on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_platform::pipe;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Notification};

use crate::StoreError;
use crate::optimistic::listener::Task;
use crate::postgres::connection::{Reconnection, Server};
use crate::runs::ChangeSignal;

/// The pause between two notifications of one process: changes in between share one.
const PAUSE: Duration = Duration::from_millis(10);
/// The pauses between two tries to connect again: they double from the first to the last.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

fn channel(project: i32) -> String {
    format!("lockkeeper_runs_{project}")
}

/// Notifies the other processes of changes. It never waits.
pub(super) struct Announcer {
    channel: String,
    state: Arc<Mutex<Announced>>,
}

#[derive(Default)]
struct Announced {
    /// Whether a notification is planned and not yet sent: it covers the next change, too.
    is_pending: bool,
    /// When the last one was sent.
    last: Option<Instant>,
}

impl Announcer {
    pub(super) fn new(project: i32) -> Self {
        Self { channel: channel(project), state: Arc::default() }
    }

    /// Sends a notification, now or after the pause that follows the last one.
    pub(super) fn announce(&self, server: &Server) {
        let mut announced = lock(&self.state);
        if std::mem::replace(&mut announced.is_pending, true) {
            return;
        }
        let pause = announced.last.map_or(Duration::ZERO, |last| PAUSE.saturating_sub(last.elapsed()));
        drop(announced);
        let state = Arc::clone(&self.state);
        let before = move || *lock(&state) = Announced { is_pending: false, last: Some(Instant::now()) };
        server.send_after(
            pause,
            before,
            "SELECT pg_notify($1, '')",
            vec![(self.channel.clone(), Type::TEXT)],
        );
    }
}

fn lock(state: &Mutex<Announced>) -> MutexGuard<'_, Announced> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Subscribes to the changes of a project. When it returns, every change from now on is notified.
pub(super) fn subscribe(server: &Server, project: i32) -> Result<Box<dyn ChangeSignal>, StoreError> {
    let failed = |source| StoreError::Io {
        action: "listen to changes of",
        address: server.address().to_owned(),
        source,
    };
    let (reader, writer) = pipe::nonblocking().map_err(failed)?;
    let channel = channel(project);
    let (sender, receiver) = unbounded_channel();
    let (client, runtime) =
        server.listen(&channel, sender).map_err(|failure| failure.explain(server.address()))?;
    let task = runtime.spawn(listen((client, receiver), server.reconnection(), channel, writer));
    Ok(Box::new(Subscription { reader, _task: Task { task, _runtime: runtime } }))
}

/// Passes notifications on to a pipe. Connects again when the connection breaks, and wakes the sleeper once: changes in
/// between were not notified.
async fn listen(
    mut listening: (Client, UnboundedReceiver<Notification>),
    reconnection: Reconnection,
    channel: String,
    writer: OwnedFd,
) {
    // A full pipe wakes its reader, too.
    let wake = || rustix::io::write(&writer, b"!");
    loop {
        while listening.1.recv().await.is_some() {
            let _ = wake();
        }
        let _ = wake();
        listening = reconnection.listen(&channel, RECONNECT).await;
        let _ = wake();
    }
}

/// Dropping it closes the connection.
struct Subscription {
    reader: OwnedFd,
    _task: Task,
}

impl ChangeSignal for Subscription {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.reader.as_fd())
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.reader, &mut bytes), Ok(read) if read > 0) {}
    }
}
