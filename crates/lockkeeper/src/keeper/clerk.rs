//! The thread that decides for others in a crowd.
//!
//! Whoever sits at the desk has everything at hand that a decision needs: the pages of the database, compiled statements,
//! the bells of the others. If each left when its own turn came, the next one would have to fetch all that. So a thread
//! sits there for as long as this process takes turns itself.

use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::locked;
use lockkeeper_engine::Engine;
use lockkeeper_platform::pipe;

/// How long after the last turn of its own a process goes on to decide for others.
const STAYS: Duration = Duration::from_millis(100);
/// How long the clerk sleeps while this process waits, too, and nobody comes.
const LOOKS_UP: Duration = Duration::from_secs(5);

/// A keeper's clerk, who comes when there is need. Dropping it has it leave the desk first.
#[derive(Default)]
pub(super) struct Clerk {
    visits: Arc<Visits>,
    seated: Mutex<Option<Seated>>,
}

impl Clerk {
    /// Notes that an order waits, until what is returned is dropped.
    pub(super) fn visit(&self) -> Visit<'_> {
        self.visits.begun.fetch_add(1, Ordering::Relaxed);
        Visit(&self.visits)
    }

    /// Has a thread decide for all who wait, if they are many and nobody does. Where there is no thread to be had, whoever
    /// waits does it.
    pub(super) fn sit_down(&self, engine: &Arc<Engine>) {
        let Some(seat) = engine.sit_down() else { return };
        let Ok((ended, end)) = pipe::nonblocking() else { return };
        let (engine, visits) = (Arc::clone(engine), Arc::clone(&self.visits));
        let attend = move || {
            let mut last = (visits.count(), Instant::now());
            engine.attend_desk(seat, ended.as_fd(), || {
                let (count, any) = (visits.count(), visits.any());
                if any || count != last.0 {
                    last = (count, Instant::now());
                }
                if any { Some(LOOKS_UP) } else { STAYS.checked_sub(last.1.elapsed()) }
            });
        };
        if let Ok(thread) = thread::Builder::new().name("lockkeeper-desk".to_owned()).spawn(attend) {
            let seated = Seated { end, thread: Some(thread), process: process::id() };
            // The one before has left its seat.
            *locked(&self.seated) = Some(seated);
        }
    }
}

/// The orders of one keeper that wait or have waited.
#[derive(Default)]
struct Visits {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Visits {
    fn count(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether an order waits now.
    fn any(&self) -> bool {
        self.ended.load(Ordering::Relaxed) != self.count()
    }
}

/// An order that waits.
pub(super) struct Visit<'c>(&'c Visits);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread that sits at the desk, or did.
struct Seated {
    /// A byte: it is to leave.
    end: OwnedFd,
    thread: Option<JoinHandle<()>>,
    /// Whose thread it is.
    process: u32,
}

impl Drop for Seated {
    fn drop(&mut self) {
        // A forked child has a copy of this, but no such thread.
        if let Some(thread) = self.thread.take().filter(|_| self.process == process::id()) {
            let _ = rustix::io::write(&self.end, b"!");
            // Its panic was told by the hook.
            let _ = thread.join();
        }
    }
}
