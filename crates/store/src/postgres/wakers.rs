//! Wakers: a process listens on a channel of the server and passes each notification on to a pipe, on which it sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::time::Moment;
use lockkeeper_platform::pipe;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_postgres::{Client, Notification};

use super::connection::{Reconnection, Server};
use crate::{Granted, StoreError, Waker};

/// How often a listener whose connection broke tries to connect.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);

/// The channel of a waker.
pub(super) fn channel(project: i32, id: WakerId) -> String {
    format!("lockkeeper_{project}_{:x}", id.0)
}

/// What a notification says about a granted lease.
pub(super) fn payload(granted: Option<Granted>) -> String {
    granted.map_or_else(String::new, |Granted { id, token, at }| {
        format!("{} {} {}", id.0, token.0, at.as_micros())
    })
}

fn granted_from(payload: &str) -> Option<Granted> {
    let mut parts = payload.split(' ');
    let mut part = || parts.next();
    let (id, token, at) = (part()?.parse().ok()?, part()?.parse().ok()?, part()?.parse().ok()?);
    Some(Granted { id: LeaseId(id), token: Token(token), at: Moment::from_micros(at) })
}

/// Listens for wake-ups. When it returns, every wake-up from now on is heard.
pub(super) fn listen(server: &Server, project: i32, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
    let failed = |source: io::Error| StoreError::Io {
        action: "make a waker for",
        address: server.address().to_owned(),
        source,
    };
    let (reader, writer) = pipe::nonblocking().map_err(failed)?;
    let (sender, receiver) = unbounded_channel();
    let channel = channel(project, id);
    let (client, runtime) =
        server.listen(&channel, sender).map_err(|failure| failure.explain(server.address()))?;
    let last = Arc::new(Mutex::new(None));
    let heard = Arc::clone(&last);
    let task = runtime.spawn(pass_on((client, receiver), server.reconnection(), channel, heard, writer));
    Ok(Box::new(Listener { id, reader, last, task, _runtime: runtime }))
}

/// Passes notifications on to a pipe. When the connection breaks, the sleeper has to look, and again when there is a new one:
/// what was sent in between is lost.
async fn pass_on(
    mut listening: (Client, UnboundedReceiver<Notification>),
    reconnection: Reconnection,
    channel: String,
    heard: Arc<Mutex<Option<Granted>>>,
    writer: OwnedFd,
) {
    // A full pipe wakes its reader, too.
    let wake = || rustix::io::write(&writer, b"!");
    loop {
        while let Some(notification) = listening.1.recv().await {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = granted_from(notification.payload());
            let _ = wake();
        }
        let _ = wake();
        loop {
            let (sender, next) = unbounded_channel();
            if let Ok(connected) = reconnection.connect(Some(sender)).await
                && connected.batch_execute(&format!("LISTEN {channel}")).await.is_ok()
            {
                listening = (connected, next);
                break;
            }
            sleep(RECONNECT_EVERY).await;
        }
        let _ = wake();
    }
}

/// Dropping it closes the connection.
struct Listener {
    id: WakerId,
    reader: OwnedFd,
    last: Arc<Mutex<Option<Granted>>>,
    task: JoinHandle<()>,
    _runtime: Arc<Runtime>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Waker for Listener {
    fn id(&self) -> WakerId {
        self.id
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    fn receive(&self) -> Option<Granted> {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.reader, &mut bytes), Ok(read) if read > 0) {}
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
