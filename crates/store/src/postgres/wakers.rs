//! Wakers: a process listens on a channel of the server and passes each notification on to a pipe, on which it sleeps.

use std::time::Duration;

use lockkeeper_core::id::WakerId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{Client, Notification};

use super::connection::{Reconnection, Server};
use crate::optimistic::listener::{Listener, Task, WakeSender};
use crate::{StoreError, Waker};

/// How often a listener whose connection broke tries to connect.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);

/// The channel of a waker.
pub(super) fn channel(project: i32, id: WakerId) -> String {
    format!("lockkeeper_{project}_{:x}", id.0)
}

/// Listens for wake-ups. When it returns, every wake-up from now on is heard.
pub(super) fn listen(server: &Server, project: i32, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
    let (listener, wakes) = Listener::new(id, server.address())?;
    let (sender, receiver) = unbounded_channel();
    let channel = channel(project, id);
    let (client, runtime) =
        server.listen(&channel, sender).map_err(|failure| failure.explain(server.address()))?;
    let task = runtime.spawn(pass_on((client, receiver), server.reconnection(), channel, wakes));
    Ok(listener.keeping(Task { task, _runtime: runtime }))
}

/// Passes notifications on to a pipe. Wakes the sleeper when the connection breaks, and again when there is a new one: what was
/// sent in between is lost.
async fn pass_on(
    mut listening: (Client, UnboundedReceiver<Notification>),
    reconnection: Reconnection,
    channel: String,
    wakes: WakeSender,
) {
    loop {
        while let Some(notification) = listening.1.recv().await {
            wakes.wake_with(notification.payload());
        }
        wakes.wake();
        listening = reconnection.listen(&channel, (RECONNECT_EVERY, RECONNECT_EVERY)).await;
        wakes.wake();
    }
}
