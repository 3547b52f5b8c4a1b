//! Wakers: a process listens on a channel of the server and passes each notification on to a pipe, on which it sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper_core::id::WakerId;
use lockkeeper_platform::pipe;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::unbounded_channel;
use tokio_postgres::Client;

use super::connection::Server;
use crate::optimistic::wake_up::granted_from;
use crate::{Granted, StoreError, Waker};

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
    let (reader, writer) = pipe::nonblocking().map_err(failed)?;
    let (sender, mut receiver) = unbounded_channel();
    let (client, runtime) =
        server.listen(&channel(project, id), sender).map_err(|failure| failure.explain(server.address()))?;
    let last = Arc::new(Mutex::new(None));
    let heard = Arc::clone(&last);
    server.spawn(async move {
        while let Some(notification) = receiver.recv().await {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = granted_from(notification.payload());
            // A full pipe wakes its reader, too.
            let _ = rustix::io::write(&writer, b"!");
        }
        // The connection is gone, and wake-ups with it. The sleeper has to look.
        let _ = rustix::io::write(&writer, b"!");
    });
    Ok(Box::new(Listener { id, reader, last, _client: client, _runtime: runtime }))
}

/// Dropping it closes the connection.
struct Listener {
    id: WakerId,
    reader: OwnedFd,
    last: Arc<Mutex<Option<Granted>>>,
    _client: Client,
    _runtime: Arc<Runtime>,
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
