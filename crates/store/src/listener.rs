//! Wakers of stores on a server: a task hears the server's messages and passes each on to a pipe, on which the process sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::time::Moment;
use lockkeeper_platform::pipe;

use crate::{Granted, Waker};

/// What a wake-up says about a granted lease.
pub(crate) fn payload(granted: Option<Granted>) -> String {
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

/// The end of the task. It wakes the process.
pub(crate) struct Bell {
    writer: OwnedFd,
    last: Arc<Mutex<Option<Granted>>>,
}

impl Bell {
    /// Wakes the process and hands over what the wake-up says; nothing if the process only has to look.
    pub(crate) fn ring(&self, payload: Option<&str>) {
        if let Some(payload) = payload {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = granted_from(payload);
        }
        // A full pipe wakes its reader, too.
        let _ = rustix::io::write(&self.writer, b"!");
    }
}

/// The end of the process.
pub(crate) struct Listener {
    id: WakerId,
    reader: OwnedFd,
    last: Arc<Mutex<Option<Granted>>>,
    /// Dropping it ends the task.
    _keeps: Option<Box<dyn Send>>,
}

impl Listener {
    /// Both ends of a waker.
    pub(crate) fn new(id: WakerId) -> io::Result<(Self, Bell)> {
        let (reader, writer) = pipe::nonblocking()?;
        let last = Arc::default();
        let bell = Bell { writer, last: Arc::clone(&last) };
        Ok((Self { id, reader, last, _keeps: None }, bell))
    }

    /// Keeps what the task needs until the waker is dropped.
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
