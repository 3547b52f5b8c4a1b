//! Wakers: a process listens on a channel of the server.

use std::io;

use lockkeeper_core::id::WakerId;
use tokio::sync::mpsc::unbounded_channel;

use super::connection::Server;
use crate::listener::Listener;
use crate::{StoreError, Waker};

/// The channel of a waker.
pub(super) fn channel(project: i32, id: WakerId) -> String {
    format!("lockkeeper_{project}_{:x}", id.0)
}

/// Listens for wake-ups. When it returns, every wake-up from now on is heard.
pub(super) fn listen(server: &Server, project: i32, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
    let failed = |source: io::Error| StoreError::Io {
        action: "make a waker for",
        address: server.address().to_owned(),
        source,
    };
    let (listener, bell) = Listener::new(id).map_err(failed)?;
    let (sender, mut receiver) = unbounded_channel();
    // Dropping the client closes the connection.
    let (client, runtime) =
        server.listen(&channel(project, id), sender).map_err(|failure| failure.explain(server.address()))?;
    server.spawn(async move {
        while let Some(notification) = receiver.recv().await {
            bell.ring(Some(notification.payload()));
        }
        // The connection is gone, and wake-ups with it. The sleeper has to look.
        bell.ring(None);
    });
    Ok(listener.keeping((client, runtime)))
}
