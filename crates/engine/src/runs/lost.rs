//! Runs that were lost with their worker, ended by somebody who executes nothing.

use lockkeeper_core::run::Run;
use lockkeeper_core::run::life::{self, Seen};

use super::moves::{advance, terms};
use super::notes::Noted;
use super::{RunError, Runs};

impl Runs {
    /// Ends an attempt of which nothing lives, as a worker that takes over would: as its worker noted it, else as LOST, or
    /// with a wait for the next attempt where there may be one. None when somebody else was first.
    ///
    /// The caller has seen that no process of it lives and that its worker is gone.
    pub fn end_lost(&self, run: &Run) -> Result<Option<Run>, RunError> {
        self.end_as_noted(run, self.noted(run).unwrap_or(Noted::Begun))
    }

    /// The same for a worker that has seen what was noted.
    pub(crate) fn end_as_noted(&self, run: &Run, noted: Noted) -> Result<Option<Run>, RunError> {
        Ok(self.store.write(|tables| {
            let found = tables.run(&run.id)?.filter(|found| found.claim == run.claim);
            let Some(found) = found.filter(|found| found.status.is_active() && found.process.is_some())
            else {
                return Ok(None);
            };
            let Some(request) = tables.request(&found.request)? else { return Ok(None) };
            let end = |run: &Run, seen, now| life::finish(run, run.claim, seen, terms(&request.request), now);
            let (tables, moved) = match noted {
                Noted::Begun => (tables.at(tables.now()), end(&found, Seen::Vanished, tables.now())),
                Noted::Waits => (tables.at(tables.now()), life::give_back(&found, found.claim, tables.now())),
                Noted::Ended { ending, began_at, ended_at } => {
                    let found = Run { started_at: Some(began_at), ..found.clone() };
                    (tables.at(ended_at), end(&found, Seen::Ended(ending), ended_at))
                }
            };
            match moved {
                Ok(moved) => advance(&tables, &found, moved).map(Some),
                Err(_) => Ok(None),
            }
        })?)
    }
}
