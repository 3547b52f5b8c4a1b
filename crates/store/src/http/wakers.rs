//! Wakers: a thread for each one reads the wake-ups that the server sends, and passes them on to a pipe.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_platform::{pipe, poll};

use super::address::HttpAddress;
use super::connection::{Connection, Failure};
use crate::optimistic::TRIES;
use crate::optimistic::listener::{Listener, WakeSender};
use crate::{StoreError, Waker};

/// The server sends something at least that often, or the connection is lost.
pub const ALIVE: Duration = Duration::from_secs(5);
/// How soon a connection that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// Listens for the wake-ups of a waker. When it returns, every wake-up from now on is heard.
pub(super) fn listen(to: &HttpAddress, limit: Duration, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
    subscribe(to, limit, id, format!("/api/store/wakers/{}", id.0))
}

/// Listens for changes of requests and runs: each one is a wake-up. When it returns, every change from now on is heard.
pub(super) fn listen_to_changes(to: &HttpAddress, limit: Duration) -> Result<Box<dyn Waker>, StoreError> {
    subscribe(to, limit, WakerId(0), "/api/store/changes".to_owned())
}

fn subscribe(
    to: &HttpAddress,
    limit: Duration,
    id: WakerId,
    path: String,
) -> Result<Box<dyn Waker>, StoreError> {
    let address = to.to_string();
    let (listener, wakes) = Listener::new(id, &address)?;
    let failed = |source| StoreError::Io { action: "make a waker for", address: address.clone(), source };
    let (stopped, stop) = pipe::nonblocking().map_err(failed)?;
    let (tell, told) = sync_channel(1);
    let subscriber = Subscriber { to: to.clone(), limit, path, wakes, stopped };
    let thread = thread::Builder::new().name("http-waker".to_owned());
    thread.spawn(move || subscriber.run(&tell)).map_err(failed)?;
    match told.recv() {
        // Dropping the pipe ends the thread.
        Ok(Ok(())) => Ok(listener.keeping(stop)),
        Ok(Err(failure)) => Err(failure.explain(&address)),
        Err(_) => Err(Failure::NoAnswer(limit).explain(&address)),
    }
}

struct Subscriber {
    to: HttpAddress,
    limit: Duration,
    /// What is subscribed to.
    path: String,
    wakes: WakeSender,
    /// Closed at the other end when the waker is dropped.
    stopped: OwnedFd,
}

impl Subscriber {
    fn run(&self, tell: &SyncSender<Result<(), Failure>>) {
        let mut tries = 1;
        let mut connection = loop {
            match self.subscribe() {
                Err(Failure::Broken(_)) if tries < TRIES => tries += 1,
                Err(failure) => {
                    let _ = tell.send(Err(failure));
                    return;
                }
                Ok(connection) => break connection,
            }
        };
        let _ = tell.send(Ok(()));
        loop {
            if !self.pass_on(&mut connection) {
                return;
            }
            connection = loop {
                match self.subscribe() {
                    Ok(connection) => break connection,
                    Err(_) if self.is_stopped(RETRY) => return,
                    Err(_) => {}
                }
            };
            // What was sent while nobody listened is lost.
            self.wakes.wake();
        }
    }

    /// Connects, and waits until the server listens.
    fn subscribe(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::open(&self.to, self.limit)?;
        connection.subscribe(&self.path, self.limit)?;
        connection.part(self.limit).map_err(Failure::Broken)?;
        Ok(connection)
    }

    /// Passes wake-ups on until the connection breaks. False when the waker was dropped.
    fn pass_on(&self, connection: &mut Connection) -> bool {
        loop {
            if !connection.has_more() {
                let ready = poll::wait(&[self.stopped.as_fd(), connection.as_fd()], Some(ALIVE + self.limit));
                match ready {
                    Ok(ready) if ready.contains(0) => return false,
                    Ok(ready) if ready.contains(1) => {}
                    Ok(_) | Err(_) => return true,
                }
            }
            match connection.part(self.limit) {
                Ok(text) => {
                    for line in text.lines().filter(|line| line.starts_with("wake")) {
                        self.wakes.wake_with(line.strip_prefix("wake ").unwrap_or_default());
                    }
                }
                Err(_) => return true,
            }
        }
    }

    fn is_stopped(&self, within: Duration) -> bool {
        poll::wait(&[self.stopped.as_fd()], Some(within)).is_ok_and(|ready| ready.any())
    }
}
