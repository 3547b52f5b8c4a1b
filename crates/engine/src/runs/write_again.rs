//! Runs that the store has lost: a server that was restored from a backup, or a standby that lagged, does not know of a claim, or
//! of the whole run. The worker that executes it writes it again. Meanwhile nobody can claim anything.

use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::admission::Submission;
use lockkeeper_core::run::transition;

use super::Runs;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Moved, Requeue};

/// What the store has of a run that a worker executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Everything.
    Known,
    /// It has lost the claim, which is written again.
    WrittenAgain,
    /// The run has ended there, or another worker has it: its command must stop.
    Superseded,
}

impl Runs {
    /// Writes a run again, as its worker executes it, if the store has lost its claim.
    pub(crate) fn write_again(&self, known: &Run, request: &Request) -> Result<Kept, StoreError> {
        let mut found = self.store.snapshot()?.run(&known.id)?;
        loop {
            let Some(run) = found else {
                found = self.submit_again(known, request)?;
                if found.is_none() {
                    return Ok(Kept::Superseded);
                }
                continue;
            };
            let again = match transition::write_again(&run, known, self.store.now()) {
                Ok(Some(again)) => again,
                Ok(None) => return Ok(Kept::Known),
                Err(_) => return Ok(Kept::Superseded),
            };
            match self.store.move_runs(&[again])?.swap_remove(0) {
                Moved::Applied => {
                    self.store.sync()?;
                    return Ok(Kept::WrittenAgain);
                }
                Moved::Conflict(current) => found = current.map(|run| *run),
            }
        }
    }

    /// Queues a run again of which the store knows nothing. None if its request was submitted anew meanwhile, so that it has another
    /// run. The dependencies of the request are left out: they were done when it was claimed.
    pub(super) fn submit_again(&self, known: &Run, request: &Request) -> Result<Option<Run>, StoreError> {
        let records = self.store.snapshot()?;
        let latest = match records.request(&request.id)? {
            Some(stored) => Some(stored.latest),
            None => None,
        };
        let request = Request { after: Vec::new(), ..request.clone() };
        match latest {
            Some(latest) => {
                let run = latest.as_ref().map(|latest| records.run(latest)).transpose()?.flatten();
                if run.is_some_and(|run| !run.status().is_terminal()) {
                    return Ok(None);
                }
                let first = transition::submit(&request, known.id.clone(), self.store.now());
                let _ = self.store.requeue(&[Requeue { first, expected: latest }])?;
            }
            None => {
                let (requests, runs) = ([request], [known.id.clone()]);
                let submission =
                    Submission { requests: &requests, runs: &runs, queue_limit: None, forbidden: None };
                let _ = self.store.submit(&submission)?;
            }
        }
        drop(records);
        self.store.snapshot()?.run(&known.id)
    }
}
