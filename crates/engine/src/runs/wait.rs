//! Waiting for a run without looking all the time.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::Run;

use super::{RunError, Runs};
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::poll;

/// How often one looks where nobody tells of changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A writer is heard a moment before what it wrote can be seen.
const SETTLE: Duration = Duration::from_millis(3);

/// Everything that happens in the store, as something to sleep on.
pub struct Heard {
    changes: Changes,
    /// Whether something was heard that may not have been visible yet.
    unsettled: bool,
}

impl Heard {
    /// What to sleep on; none where nobody tells.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_fd()
    }

    /// How long to sleep at most before looking again; none when it is enough to be told.
    pub fn patience(&self) -> Option<Duration> {
        match self.as_fd() {
            None => Some(LOOK_EVERY),
            Some(_) if self.unsettled => Some(SETTLE),
            Some(_) => None,
        }
    }

    /// Call it before every look: what is written from here on is heard.
    pub fn quiet(&mut self, told: bool) {
        self.changes.drain();
        self.unsettled = told;
    }
}

impl Runs {
    /// Begins to listen. Look after that, then sleep.
    pub fn listen(&self) -> Result<Heard, RunError> {
        Ok(Heard { changes: self.store.changes()?, unsettled: false })
    }

    /// Sleeps until the run has ended; the run as it is when the time is up, or when `interrupt` can be read.
    pub fn wait(
        &self,
        id: &RunId,
        until: Option<Instant>,
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<Run, RunError> {
        let mut heard = self.listen()?;
        let mut told = false;
        loop {
            heard.quiet(told);
            let looked_at = lockkeeper_platform::clock::now();
            self.expire()?;
            let (run, due) =
                self.store.read(|tables| Ok((Self::found(tables, id)?, tables.next_due(looked_at)?)))?;
            let run = run?;
            let now = Instant::now();
            if run.status.is_terminal() || until.is_some_and(|until| until <= now) {
                return Ok(run);
            }
            let left = until.map(|until| until.saturating_duration_since(now));
            // Its time in the queue may be up, whether anybody works or not.
            let due = due.map(|due| due.since(lockkeeper_platform::clock::now()));
            let limit = [left, heard.patience(), due].into_iter().flatten().min();
            let descriptors: Vec<BorrowedFd<'_>> = heard.as_fd().into_iter().chain(interrupt).collect();
            let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
            let listening = heard.as_fd().is_some();
            told = listening && ready.contains(0);
            if interrupt.is_some() && ready.contains(usize::from(listening)) {
                return Ok(run);
            }
        }
    }
}
