//! Ends of attempts, written by the worker that made them: many ends and the next claims in one transaction.

use lockkeeper_core::id::RunId;
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::{self, Lost, Seen};
use lockkeeper_core::run::{Run, Stamp, Status};

use super::claiming::{Claimant, claim_next, with_request};
use super::moves::{advance, move_run, terms};
use super::{RunError, Runs};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Tables;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker saw this, and nobody has written it down yet.
    Seen(Seen),
    /// The end was written before the command was stopped: its time was up, or a program outside said that it is over.
    Recorded,
    /// Another worker has the run by now.
    Superseded,
}

/// The end of an attempt.
#[derive(Debug)]
pub(crate) struct End {
    /// The run as it was claimed.
    pub(crate) run: Run,
    /// Its request.
    pub(crate) request: Request,
    /// How it ended.
    pub(crate) outcome: Outcome,
    /// When it ended.
    pub(crate) ended_at: Stamp,
}

/// What [`Runs::complete`] did.
pub(crate) struct Completed {
    /// The runs after their ends, in the order of the ends. None where another worker has the run.
    pub(crate) ended: Vec<Option<Run>>,
    /// Runs that were claimed in the same transaction.
    pub(crate) claimed: Vec<(Run, Request)>,
}

impl Runs {
    /// Writes the ends of attempts and claims the next runs, in one transaction.
    ///
    /// Nothing of it is sure to survive a power cut before [`Runs::sync`] has returned. `retried` says that the same call
    /// failed before: its transaction may have been committed all the same, and nothing is done twice.
    pub(crate) fn complete<'e>(
        &self,
        ends: impl Iterator<Item = &'e End>,
        claimant: &Claimant<'_>,
        retried: bool,
    ) -> Result<Completed, StoreError> {
        self.store.note(|tables| {
            let ended = ends.map(|end| finish(tables, end)).collect::<Result<_, _>>()?;
            let mut claimed = Vec::new();
            if retried {
                for lock in claimant.locks {
                    claimed.extend(with_request(tables, tables.run_of_holder(*lock)?)?);
                }
            }
            if claimed.is_empty() {
                claimed = claim_next(tables, claimant)?;
            }
            Ok(Completed { ended, claimed })
        })
    }

    /// Waits until everything that was committed is on the disk.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.store.force()
    }

    /// Records which process the command of a run is. A power cut may lose it: the process is gone then, too.
    pub(crate) fn record_process(&self, run: &Run, process: ProcessRef) -> Result<Run, RunError> {
        let rule = |found: &Run, _: &Tables<'_>| life::started(found, run.claim, process);
        self.store.note(|tables| move_run(tables, &run.id, rule))?
    }

    /// Ends a run whose time is up. From then on it can end in no other way, whatever its command returns.
    pub(crate) fn time_out(&self, id: &RunId, claim: u64) -> Result<Run, RunError> {
        self.change(id, |run, tables| {
            if run.claim != claim {
                return Err(Lost::Claim { given: claim, current: run.claim });
            }
            life::time_out(run, tables.now()).ok_or(Lost::NotDue)
        })
    }
}

/// Writes one end. None when another worker has the run by now.
fn finish(tables: &Tables<'_>, end: &End) -> Result<Option<Run>, StoreError> {
    let claim = end.run.claim;
    let tables = &tables.at(end.ended_at);
    // Mostly nothing happened to the record since the claim, and it need not be read again.
    if let Outcome::Seen(seen @ Seen::Ended(_)) = &end.outcome
        && let Ok(moved) = life::finish(&end.run, claim, seen.clone(), terms(&end.request), tables.now())
        && tables.advance(&end.run, &moved)?
    {
        return Ok(Some(moved.run));
    }
    let Some(run) = tables.run(&end.run.id)?.filter(|run| run.claim == claim) else { return Ok(None) };
    let seen = match &end.outcome {
        Outcome::Superseded => return Ok(None),
        Outcome::Recorded => return settle(tables, &run).map(Some),
        // The same call was committed before.
        Outcome::Seen(_) if run.waits_for_retry() => return Ok(Some(run)),
        Outcome::Seen(seen) => seen,
    };
    let run = if matches!(seen, Seen::Stopped(_)) && run.status == Status::Running {
        // A worker that was told to stop ends its commands even when nobody canceled them.
        match life::cancel(&run, tables.now(), Some("the worker was stopped".to_owned())) {
            Ok(moved) => advance(tables, &run, moved)?,
            Err(_) => run,
        }
    } else {
        run
    };
    match life::finish(&run, claim, seen.clone(), terms(&end.request), tables.now()) {
        Ok(moved) => advance(tables, &run, moved).map(Some),
        // Its end is there already: its time was up in the same moment, or the same call was committed before.
        Err(Lost::Status(_)) => settle(tables, &run).map(Some),
        Err(Lost::Claim { .. } | Lost::NotDue | Lost::Nobody) => Ok(None),
    }
}

/// Notes that nothing of a run lives any more.
fn settle(tables: &Tables<'_>, run: &Run) -> Result<Run, StoreError> {
    let settled = life::settle(run);
    tables.settle(run, &settled)?;
    Ok(settled)
}
