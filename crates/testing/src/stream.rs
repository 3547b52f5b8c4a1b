//! An output pipe of a process, read by a thread into a buffer. The process never blocks on a full pipe.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use crate::LIMIT;

/// A pipe that is read to its end in the background.
pub(crate) struct Stream {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    buffer: Mutex<Buffer>,
    changed: Condvar,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Everything before this index was returned already.
    returned: usize,
    has_ended: bool,
}

/// Why a text was not found.
pub(crate) enum Missing {
    /// The pipe ended without it.
    Ended,
    /// [`LIMIT`] passed.
    TimedOut,
}

impl Stream {
    pub(crate) fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let filled = Arc::clone(&shared);
        thread::spawn(move || {
            let mut piece = vec![0; 1 << 16];
            loop {
                let count = pipe.read(&mut piece).unwrap_or(0);
                let mut buffer = filled.lock();
                buffer.bytes.extend_from_slice(&piece[..count]);
                buffer.has_ended = count == 0;
                filled.changed.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Self { shared }
    }

    /// Waits for a text, and returns everything up to its end that was not returned before.
    pub(crate) fn take_through(&self, text: &[u8]) -> Result<Vec<u8>, Missing> {
        let mut searched = 0;
        self.wait(|buffer| {
            let rest = &buffer.bytes[buffer.returned..];
            let place = rest[searched..].windows(text.len()).position(|window| window == text);
            match place {
                Some(place) => {
                    let taken = rest[..searched + place + text.len()].to_vec();
                    buffer.returned += taken.len();
                    Some(Ok(taken))
                }
                None if buffer.has_ended => Some(Err(Missing::Ended)),
                None => {
                    searched = rest.len().saturating_sub(text.len() - 1);
                    None
                }
            }
        })
        .unwrap_or(Err(Missing::TimedOut))
    }

    /// Waits for the end of the pipe, and returns what was not returned before. None when [`LIMIT`] passed.
    pub(crate) fn take_rest(&self) -> Option<Vec<u8>> {
        self.wait(|buffer| {
            let end = buffer.bytes.len();
            buffer.has_ended.then(|| buffer.bytes[std::mem::replace(&mut buffer.returned, end)..].to_vec())
        })
    }

    /// All bytes until now, for messages.
    pub(crate) fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.shared.lock().bytes).into_owned()
    }

    fn wait<T>(&self, mut look: impl FnMut(&mut Buffer) -> Option<T>) -> Option<T> {
        let limit = Instant::now() + LIMIT;
        let mut buffer = self.shared.lock();
        loop {
            if let Some(found) = look(&mut buffer) {
                return Some(found);
            }
            let left = limit.checked_duration_since(Instant::now())?;
            let waited = self.shared.changed.wait_timeout(buffer, left);
            buffer = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
