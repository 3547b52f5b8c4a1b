//! A run as a flat database row. One parser turns a row into a run and rejects rows that no run can have.

use std::time::Duration;

use thiserror::Error;

use super::{
    Attempt, End, Ending, Execution, LastAttempt, Process, Reason, Report, Run, RunResult, RunState, Stamp,
    Status,
};
use crate::id::{LeaseId, RequestId, RunId, Token, WorkerId};
use crate::time::Moment;

/// The columns of a run. They mean the same as the functions of [`Run`] with the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the functions of `Run` with the same names say what the columns are")]
pub struct RunRow {
    pub id: RunId,
    pub request: RequestId,
    pub version: u32,
    pub status: Status,
    pub attempt: u32,
    pub claim: u64,
    pub worker: Option<WorkerId>,
    pub process: Option<Process>,
    pub lease: Option<(LeaseId, Token)>,
    pub queued_at: Stamp,
    pub give_up_at: Option<Moment>,
    pub started_at: Option<Stamp>,
    pub timeout: Option<Duration>,
    pub retry_at: Option<Moment>,
    pub completed_at: Option<Stamp>,
    pub ending: Option<Ending>,
    pub reason: Option<Reason>,
    pub message: Option<String>,
    pub help: bool,
}

/// A row that no run can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the row of run {run} says that it is {status}, and also that {what}")]
pub struct ImpossibleRow {
    /// Which run.
    pub run: RunId,
    /// Its status.
    pub status: Status,
    /// What does not fit the status.
    pub what: &'static str,
}

impl From<&Run> for RunRow {
    fn from(run: &Run) -> Self {
        Self {
            id: run.id.clone(),
            request: run.request.clone(),
            version: run.version,
            status: run.status(),
            attempt: run.attempt(),
            claim: run.claim(),
            worker: run.worker().cloned(),
            process: run.process(),
            lease: run.lease(),
            queued_at: run.queued_at,
            give_up_at: run.give_up_at(),
            started_at: run.started_at(),
            timeout: run.timeout,
            retry_at: run.retry_at(),
            completed_at: run.completed_at(),
            ending: run.ending(),
            reason: run.reason(),
            message: run.message().map(ToOwned::to_owned),
            help: run.help(),
        }
    }
}

impl Run {
    /// The same run on the clock of another store, which shows `there` when that of this run shows `here`. A run that has ended
    /// stays as it is: nobody compares its moments with a clock.
    #[must_use]
    pub fn on_clock(&self, here: Moment, there: Moment) -> Self {
        if self.status().is_terminal() {
            return self.clone();
        }
        let shift = there.as_micros().saturating_sub(here.as_micros());
        let moved = |at: Moment| Moment::from_micros(at.as_micros().saturating_add(shift));
        let stamp = |at: Stamp| Stamp { moment: moved(at.moment), ..at };
        let row = RunRow::from(self);
        let row = RunRow {
            queued_at: stamp(row.queued_at),
            give_up_at: row.give_up_at.map(moved),
            started_at: row.started_at.map(stamp),
            retry_at: row.retry_at.map(moved),
            ..row
        };
        Self::try_from(row).expect("only its moments differ")
    }
}

impl TryFrom<RunRow> for Run {
    type Error = ImpossibleRow;

    fn try_from(row: RunRow) -> Result<Self, ImpossibleRow> {
        let (id, status) = (row.id.clone(), row.status);
        let (request, version, queued_at, timeout) =
            (row.request.clone(), row.version, row.queued_at, row.timeout);
        match row.state() {
            Ok(state) => Ok(Self { id, request, version, queued_at, timeout, state }),
            Err(what) => Err(ImpossibleRow { run: id, status, what }),
        }
    }
}

impl RunRow {
    /// The state, or what contradicts the status.
    fn state(self) -> Result<RunState, &'static str> {
        if self.version == 0 {
            return Err("it has no event");
        }
        if self.status != Status::Running && self.retry_at.is_some() {
            return Err("it waits for its next attempt");
        }
        let attempt = self.last_attempt()?;
        match self.status {
            Status::Queued | Status::Running | Status::Cancelling if self.completed_at.is_some() => {
                Err("it has ended")
            }
            Status::Succeeded | Status::Failed if attempt.is_none() => Err("it was never claimed"),
            Status::Queued => self.queued(attempt),
            Status::Running => self.running(attempt),
            Status::Cancelling => self.cancelling(attempt),
            Status::Rejected => self.rejected(attempt),
            Status::Succeeded => self.ended(attempt, |_| Ok(RunResult::Succeeded)),
            Status::Failed => self.ended(attempt, |reason| reason.map(RunResult::Failed)),
            Status::Canceled => self.ended(attempt, |reason| reason.map(RunResult::Canceled)),
            Status::TimedOut => self.ended(attempt, |reason| reason.map(RunResult::TimedOut)),
        }
    }

    fn last_attempt(&self) -> Result<Option<Attempt>, &'static str> {
        let (number, claim) = (self.attempt, self.claim);
        match self.started_at {
            None if number == 0 && claim == 0 => Ok(None),
            None => Err("it was claimed at no time"),
            Some(_) if number == 0 => Err("it was claimed for no attempt"),
            Some(_) if claim < u64::from(number) => Err("it has more attempts than claims"),
            Some(started_at) => Ok(Some(Attempt { number, claim, started_at })),
        }
    }

    fn queued(self, attempt: Option<Attempt>) -> Result<RunState, &'static str> {
        if attempt.is_some() {
            return Err("it was claimed");
        }
        self.check_not_executed()?;
        Ok(RunState::Queued { give_up_at: self.give_up_at })
    }

    fn running(self, attempt: Option<Attempt>) -> Result<RunState, &'static str> {
        let attempt = attempt.ok_or("it was never claimed")?;
        match (self.worker.is_some(), self.retry_at) {
            (true, None) => self.execution(attempt).map(RunState::Running),
            (false, Some(retry_at)) => {
                let last = self.last(attempt)?;
                Ok(RunState::WaitingForRetry { last, retry_at })
            }
            (true, Some(_)) => Err("a worker executes it and it waits for its next attempt"),
            (false, None) => Err("no worker executes it and it does not wait for its next attempt"),
        }
    }

    fn cancelling(self, attempt: Option<Attempt>) -> Result<RunState, &'static str> {
        let attempt = attempt.ok_or("it was never claimed")?;
        if self.worker.is_some() {
            self.execution(attempt).map(RunState::Cancelling)
        } else {
            self.last(attempt).map(RunState::CancellingRetry)
        }
    }

    fn rejected(self, attempt: Option<Attempt>) -> Result<RunState, &'static str> {
        if attempt.is_some() {
            return Err("it was claimed");
        }
        self.check_not_executed()?;
        let at = self.completed_at.ok_or("it has not ended")?;
        let reason = self.reason.ok_or("there is no reason")?;
        Ok(RunState::Rejected { at, reason, message: self.message })
    }

    fn ended(
        self,
        attempt: Option<Attempt>,
        result: impl FnOnce(Result<Reason, &'static str>) -> Result<RunResult, &'static str>,
    ) -> Result<RunState, &'static str> {
        if self.worker.is_some() {
            return Err("a worker executes it");
        }
        let at = self.completed_at.ok_or("it has not ended")?;
        let result = result(self.reason.ok_or("there is no reason"))?;
        let (process, lease) = (self.process, self.lease);
        Ok(RunState::Ended(End { result, at, attempt, process, lease, report: self.report() }))
    }

    fn execution(self, attempt: Attempt) -> Result<Execution, &'static str> {
        let (process, lease) = (self.process, self.lease);
        let worker = self.worker.clone().ok_or("no worker executes it")?;
        Ok(Execution { attempt, worker, process, lease, report: self.report() })
    }

    fn last(self, attempt: Attempt) -> Result<LastAttempt, &'static str> {
        self.check_not_executed()?;
        Ok(LastAttempt { attempt, reason: self.reason, report: self.report() })
    }

    /// A run that no worker executes, and that has not ended, has no process and no lease.
    fn check_not_executed(&self) -> Result<(), &'static str> {
        if self.worker.is_some() {
            return Err("a worker executes it");
        }
        if self.process.is_some() {
            return Err("it has processes");
        }
        if self.lease.is_some() {
            return Err("it holds a lease");
        }
        Ok(())
    }

    fn report(self) -> Report {
        Report { ending: self.ending, message: self.message, help: self.help }
    }
}
