//! Wakers of stores on a server: a task listens to the server and writes each wake-up into a pipe, on which the process sleeps.

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper_core::id::{LeaseId, Token, WakerId};
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
use lockkeeper_core::records::{Change, Effect};
use lockkeeper_core::time::Moment;
use lockkeeper_platform::pipe;

use crate::{Granted, StoreError, Waker};

/// The messages for the wakers that a decision wakes. A message has the lease that was granted to that waker, if any.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
pub(crate) fn wake_ups(changes: &[Change], effects: &[Effect]) -> BTreeMap<WakerId, String> {
    let granted = Granted::among(changes);
    let message = |waker: WakerId| {
        let granted = granted.iter().find(|(to, _)| *to == waker);
        granted.map_or_else(String::new, |(_, Granted { id, token, at })| {
            format!("{} {} {}", id.0, token.0, at.as_micros())
        })
    };
    let woken = effects.iter().filter_map(|effect| match effect {
        Effect::Wake(waker) => Some((*waker, message(*waker))),
        // A waker ends with the connection of its process.
        Effect::RemoveWaker(_) => None,
    });
    woken.collect()
}

fn granted_from(payload: &str) -> Option<Granted> {
    let mut parts = payload.split(' ');
    let mut part = || parts.next();
    let (id, token, at) = (part()?.parse().ok()?, part()?.parse().ok()?, part()?.parse().ok()?);
    Some(Granted { id: LeaseId(id), token: Token(token), at: Moment::from_micros(at) })
}

/// The sending half of a waker, for the task that listens.
pub(crate) struct WakeSender {
    writer: OwnedFd,
    last: Arc<Mutex<Option<Granted>>>,
}

impl WakeSender {
    /// Wakes the process and passes the granted lease on.
    pub(crate) fn wake_with(&self, payload: &str) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = granted_from(payload);
        self.wake();
    }

    /// Wakes the process, which has to read the store again: wake-ups may have been lost.
    pub(crate) fn wake(&self) {
        // A full pipe wakes its reader, too.
        let _ = rustix::io::write(&self.writer, b"!");
    }
}

/// A task that listens. It ends with the waker.
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub(crate) struct Task {
    pub(crate) task: tokio::task::JoinHandle<()>,
    /// The waker may outlive the store.
    pub(crate) _runtime: Arc<tokio::runtime::Runtime>,
}

#[cfg(any(feature = "etcd", feature = "postgres"))]
impl Drop for Task {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The receiving half of a waker, for the process that sleeps.
pub(crate) struct Listener {
    id: WakerId,
    reader: OwnedFd,
    last: Arc<Mutex<Option<Granted>>>,
    /// What is dropped with the waker: dropping it ends the task.
    _keeps: Option<Box<dyn Send>>,
}

impl Listener {
    /// Both halves of a waker.
    pub(crate) fn new(id: WakerId, address: &str) -> Result<(Self, WakeSender), StoreError> {
        let failed =
            |source| StoreError::Io { action: "make a waker for", address: address.to_owned(), source };
        let (reader, writer) = pipe::nonblocking().map_err(failed)?;
        let last = Arc::default();
        let sender = WakeSender { writer, last: Arc::clone(&last) };
        Ok((Self { id, reader, last, _keeps: None }, sender))
    }

    /// Keeps a value, such as the task, until the waker is dropped.
    pub(crate) fn keeping(self, keeps: impl Send + 'static) -> Box<dyn Waker> {
        Box::new(Self { _keeps: Some(Box::new(keeps)), ..self })
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
