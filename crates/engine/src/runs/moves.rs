//! What can be done to a run from outside: taken, marked, called off, given up.

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::{self, Lost, Mark, Moved, Taker, Terms};
use lockkeeper_core::run::{Run, Status};

use super::{RunError, Runs};
use lockkeeper_platform::random;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Tables;

/// So many overdue runs are given up in one transaction.
const AT_ONCE: usize = 500;

/// What became of a run that was called off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canceled {
    /// The run as it is now: over, or about to be ended by whoever executes it.
    pub run: Run,
}

impl Runs {
    /// Takes a run for an executor outside of Lockkeeper.
    pub fn claim(&self, id: &RunId, worker: WorkerId) -> Result<Run, RunError> {
        let taker = Taker { worker, holder: None, lease: None };
        self.change(id, |run, tables| life::claim(run, taker.clone(), tables.now()))
    }

    /// Moves a run as an executor outside of Lockkeeper says.
    pub fn mark(&self, id: &RunId, mark: &Mark) -> Result<Run, RunError> {
        let run = self.change(id, |run, tables| life::mark(run, mark, tables.now()))?;
        // With nobody there to confirm it, it would be called off for ever.
        if run.status == Status::Cancelling && run.worker.is_none() {
            return self.cancel(id, None).map(|canceled| canceled.run);
        }
        Ok(run)
    }

    /// Calls a run off. Who executes it ends the command and then says so.
    pub fn cancel(&self, id: &RunId, message: Option<&str>) -> Result<Canceled, RunError> {
        let run = self.store.write(|tables| match Self::found(tables, id)? {
            Ok(run) => call_off(tables, run, message),
            Err(error) => Ok(Err(error)),
        })??;
        Ok(Canceled { run })
    }

    /// Notes that the command of a run asks for somebody.
    pub fn ask_for_help(&self, id: &RunId, message: Option<&str>) -> Result<(), RunError> {
        self.store.note(|tables| {
            let run = match Self::found(tables, id)? {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            };
            match life::ask_for_help(&run, message.map(ToOwned::to_owned)) {
                Ok(Some(moved)) => advance(tables, &run, moved).map(|_| Ok(())),
                Ok(None) => Ok(Ok(())),
                Err(error) => Ok(Err(lost(&run, error))),
            }
        })?
    }

    /// Gives up the queued runs whose time is up. Writes nothing when there are none.
    pub fn expire(&self) -> Result<Vec<Run>, RunError> {
        let now = lockkeeper_store::runs::now().moment;
        if self.store.read(|tables| tables.overdue(now, 1))?.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.store.write(|tables| {
            let mut given_up = Vec::new();
            for run in tables.overdue(tables.now().moment, AT_ONCE)? {
                if let Some(moved) = life::time_out(&run, tables.now()) {
                    given_up.push(advance(tables, &run, moved)?);
                }
            }
            Ok(given_up)
        })?)
    }

    /// Removes requests that ended before this time on the wall clock, with their runs, events and folders. Requests
    /// that open ones come after stay.
    pub fn prune(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, RunError> {
        let removed = self.store.write(|tables| tables.prune(before_unix_micros))?;
        for run in removed.iter().flat_map(|(_, runs)| runs) {
            // What is left of a folder is found by the doctor; the records are gone in any case.
            let _ = self.folder_of(run).remove();
        }
        Ok(removed.into_iter().map(|(request, _)| request).collect())
    }

    /// What [`Runs::prune`] would remove.
    pub fn prunable(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, RunError> {
        let found = self.store.read(|tables| tables.prunable(before_unix_micros))?;
        Ok(found.into_iter().map(|old| old.request).collect())
    }

    /// Moves one run by a rule. The move is on the disk when this returns.
    pub(crate) fn change(
        &self,
        id: &RunId,
        rule: impl FnOnce(&Run, &Tables<'_>) -> Result<Moved, Lost>,
    ) -> Result<Run, RunError> {
        self.store.write(|tables| move_run(tables, id, rule))?
    }
}

/// Moves one run by a rule, in the transaction that is under way.
pub(super) fn move_run(
    tables: &Tables<'_>,
    id: &RunId,
    rule: impl FnOnce(&Run, &Tables<'_>) -> Result<Moved, Lost>,
) -> Result<Result<Run, RunError>, StoreError> {
    let run = match Runs::found(tables, id)? {
        Ok(run) => run,
        Err(error) => return Ok(Err(error)),
    };
    match rule(&run, tables) {
        Ok(moved) => advance(tables, &run, moved).map(Ok),
        Err(error) => Ok(Err(lost(&run, error))),
    }
}

/// Calls a run off within a transaction that has just read it. One that is about to end already stays as it is.
pub(super) fn call_off(
    tables: &Tables<'_>,
    mut run: Run,
    message: Option<&str>,
) -> Result<Result<Run, RunError>, StoreError> {
    // Once more when the first move left it with nobody who could make the second.
    for _ in 0..2 {
        match life::cancel(&run, tables.now(), message.map(ToOwned::to_owned)) {
            Ok(moved) => run = advance(tables, &run, moved)?,
            Err(_) if run.status == Status::Cancelling => break,
            Err(error) => return Ok(Err(lost(&run, error))),
        }
        if run.status.is_terminal() || run.worker.is_some() {
            break;
        }
    }
    Ok(Ok(run))
}

/// Replaces the record within a transaction that has just read it.
pub(crate) fn advance(tables: &Tables<'_>, before: &Run, moved: Moved) -> Result<Run, StoreError> {
    if tables.advance(before, &moved)? {
        Ok(moved.run)
    } else {
        Err(StoreError::Mismatch(format!("run {} changed within a transaction", before.id)))
    }
}

/// What decides about the end of an attempt at this request.
pub(crate) fn terms(request: &Request) -> Terms<'_> {
    // Only another attempt is spread by chance.
    let chance = if request.retry.limit > 0 { random::number().unwrap_or(0) } else { 0 };
    Terms { success: &request.success, retry: &request.retry, chance }
}

fn lost(run: &Run, source: Lost) -> RunError {
    RunError::Lost { run: run.id.clone(), current: run.status, source }
}
