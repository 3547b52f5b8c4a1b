//! Waits for the end of a run, without polling where the store signals changes.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::Run;

use super::{RunError, Runs, found};
use lockkeeper_platform::poll;
use lockkeeper_store::runs::ChangeSignal;

/// How often to read where the store cannot signal changes.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// The signal comes a little before the change is visible: read again after this long.
const READ_AGAIN: Duration = Duration::from_millis(3);

/// A subscription to all changes of the store: a descriptor to sleep on.
pub struct Subscription {
    signal: Box<dyn ChangeSignal>,
    /// Whether a signal came whose change may not have been visible yet.
    read_again: bool,
}

impl Subscription {
    /// The descriptor; none where the store cannot signal changes.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.signal.as_fd()
    }

    /// How long to sleep at most before the next read; none if the signal is enough.
    pub fn longest_sleep(&self) -> Option<Duration> {
        match self.as_fd() {
            None => Some(POLL_EVERY),
            Some(_) if self.read_again => Some(READ_AGAIN),
            Some(_) => None,
        }
    }

    /// Forgets all signals. Call it before every read: every later change signals again. `was_signaled` says whether the last
    /// sleep ended with a signal.
    pub fn reset(&mut self, was_signaled: bool) {
        self.signal.drain();
        self.read_again = was_signaled;
    }
}

impl Runs {
    /// Subscribes to all changes. Read after that, then sleep.
    pub fn subscribe(&self) -> Result<Subscription, RunError> {
        Ok(Subscription { signal: self.store.subscribe()?, read_again: false })
    }

    /// Sleeps until the run has ended, the time is up, or `interrupt` is readable. Returns the run as it is then.
    pub fn wait(
        &self,
        id: &RunId,
        until: Option<Instant>,
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<Run, RunError> {
        self.wait_until(id, until, interrupt, |run| run.status().is_terminal())
    }

    /// Sleeps until the run is as wanted, the time is up, or `interrupt` is readable. Returns the run as it is then.
    pub fn wait_until(
        &self,
        id: &RunId,
        until: Option<Instant>,
        interrupt: Option<BorrowedFd<'_>>,
        is_wanted: impl Fn(&Run) -> bool,
    ) -> Result<Run, RunError> {
        let mut changes = self.subscribe()?;
        let mut was_signaled = false;
        loop {
            changes.reset(was_signaled);
            let looked_at = self.store.now().moment;
            self.expire()?;
            let records = self.store.snapshot()?;
            let (run, due) = (found(&*records, id)?, records.next_due(looked_at)?);
            drop(records);
            let now = Instant::now();
            if is_wanted(&run) || until.is_some_and(|until| until <= now) {
                return Ok(run);
            }
            let left = until.map(|until| until.saturating_duration_since(now));
            // It may time out in the queue, also if no worker runs.
            let store_now = self.store.now().moment;
            let due = due.map(|due| due.since(store_now));
            let limit = [left, changes.longest_sleep(), due].into_iter().flatten().min();
            let descriptors: Vec<BorrowedFd<'_>> = changes.as_fd().into_iter().chain(interrupt).collect();
            let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
            let has_signal = changes.as_fd().is_some();
            was_signaled = has_signal && ready.contains(0);
            if interrupt.is_some() && ready.contains(usize::from(has_signal)) {
                return Ok(run);
            }
        }
    }
}
