//! Runs that were lost with their worker, ended by somebody who executes nothing.

use lockkeeper_core::run::Run;
use lockkeeper_core::run::life::{self, Seen};

use super::moves::{advance, terms};
use super::{RunError, Runs};

impl Runs {
    /// Ends an attempt of which nothing lives, as a worker that takes over would: as LOST, or with a wait for the next
    /// attempt where there may be one. None when somebody else was first.
    ///
    /// The caller has seen that no process of it lives and that its worker is gone.
    pub fn end_lost(&self, run: &Run) -> Result<Option<Run>, RunError> {
        Ok(self.store.write(|tables| {
            let found = tables.run(&run.id)?.filter(|found| found.claim == run.claim);
            let Some(found) = found.filter(|found| found.status.is_active() && found.process.is_some())
            else {
                return Ok(None);
            };
            let Some(request) = tables.request(&found.request)? else { return Ok(None) };
            match life::finish(&found, run.claim, Seen::Vanished, terms(&request.request), tables.now()) {
                Ok(moved) => advance(tables, &found, moved).map(Some),
                Err(_) => Ok(None),
            }
        })?)
    }
}
