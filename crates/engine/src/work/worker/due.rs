//! Attempts that are due while no worker has a pool: a worker for single runs makes them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;

use super::Worker;
use crate::runs::RunError;
use crate::work::claimer::ClaimResult;
use crate::work::rescuer::Survey;

/// The executor of a run makes its next attempt at once. Other workers wait this long first: the executor is then dead, or waits
/// for a lease.
const OVERDUE: Duration = Duration::from_millis(300);
/// How often an attempt is tried again whose lease or lock file others hold.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Worker {
    /// When a worker that is not the executor makes the next attempt of a run.
    pub(in crate::work) fn makes_attempt_at(run: &Run) -> Option<Moment> {
        run.retry_at().map(|at| at.after(OVERDUE))
    }

    /// Makes the attempts that are due, each on a thread of its own, unless a pool does. Returns when to call this again.
    pub(in crate::work) fn make_due_attempts(
        self: &Arc<Self>,
        survey: &Survey,
        wanted: impl Fn(&Run) -> bool,
    ) -> Result<Option<Moment>, RunError> {
        if survey.has_pool() {
            return Ok(None);
        }
        let mut again: Option<Moment> = None;
        for run in self.runs.waiting_attempts()?.into_iter().filter(wanted) {
            let now = self.runs.now().moment;
            let Some(mut at) = Self::makes_attempt_at(&run) else { continue };
            if at <= now {
                match self.claim(&run.id)? {
                    ClaimResult::Claimed(claimed) => {
                        let worker = Arc::clone(self);
                        let work = move || {
                            if let Err(error) = worker.execute(*claimed) {
                                worker.events.warn(format!("cannot execute a run: {error}"));
                            }
                        };
                        let thread = thread::Builder::new().name("attempt".to_owned());
                        thread.spawn(work).map_err(RunError::Machine)?;
                        continue;
                    }
                    ClaimResult::Held(_) | ClaimResult::FileHeld => at = now.after(POLL_INTERVAL),
                    ClaimResult::NotClaimable => continue,
                }
            }
            again = Some(again.map_or(at, |known| known.min(at)));
        }
        Ok(again)
    }
}
