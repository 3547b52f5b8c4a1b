//! Runs that may have begun before a power cut.

use lockkeeper_core::run::life::{self, Seen, Taker};
use lockkeeper_core::run::{Run, Status};

use super::{Executor, Told};
use crate::runs::{RunError, advance, terms};

impl Executor {
    /// Ends every run of which nobody knows whether it began, as one that began and was not seen again.
    pub(super) fn end_doubts(&self) -> Result<(), RunError> {
        for run in self.runs.store().read(|tables| tables.doubtful())? {
            self.lose(&run)?;
        }
        Ok(())
    }

    fn lose(&self, run: &Run) -> Result<(), RunError> {
        let lost = self.runs.store().write(|tables| {
            tables.end_doubt(&run.id)?;
            let found = tables.run(&run.id)?.filter(|found| found.status == Status::Queued);
            let request = tables.request(&run.request)?;
            let Some((run, request)) = found.zip(request) else { return Ok(None) };
            let taker = Taker { worker: self.worker.id.clone(), holder: None, lease: None };
            let Ok(moved) = life::claim(&run, taker, tables.now()) else { return Ok(None) };
            let run = advance(tables, &run, moved)?;
            let terms = terms(&request.request);
            match life::finish(&run, run.claim, Seen::Vanished, terms, tables.now()) {
                Ok(moved) => Ok(Some((advance(tables, &run, moved)?, request.request))),
                Err(_) => Ok(None),
            }
        })?;
        if let Some((run, request)) = lost {
            let told = if run.waits_for_retry() { Told::Retrying(run) } else { Told::Ended(run) };
            self.tell(&told, Some(&request));
        }
        Ok(())
    }
}
