//! What can happen to a run: each a function from its record to the next one and the event that tells of it.
//!
//! None of them reads a clock or decides by itself whether a process lives; those who call say what they saw.

use std::time::Duration;

use thiserror::Error;

use super::{Ending, Event, EventKind, NoSuchMove, Process, Reason, Run, Stamp, Status, step};
use crate::id::{HolderId, LeaseId, Token, WorkerId};
use crate::liveness::ProcessRef;
use crate::retry::RetryPolicy;

/// The exit code by which a command asks for somebody.
pub const NEEDS_INPUT_CODE: u8 = 10;

/// The next record, and the event that is appended with it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "nothing has happened before a store replaced the record"]
pub struct Moved {
    /// The record.
    pub run: Run,
    /// What happened.
    pub event: Event,
}

/// Why something did not happen to a run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// It is not where it would have to be.
    #[error(transparent)]
    Status(#[from] NoSuchMove),
    /// Somebody else has claimed it since.
    #[error("the run was claimed again: claim {given} is over, the present one is {current}")]
    Claim {
        /// The claim that was named.
        given: u64,
        /// The one that counts.
        current: u64,
    },
    /// Somebody executes it, or its time for the next attempt has not come.
    #[error("the run does not wait for an attempt")]
    NotDue,
    /// Nobody executes it: what was executed under this claim has been told already.
    #[error("nobody executes the run")]
    Nobody,
}

/// Who takes a run, and with what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taker {
    /// Who executes it from now on.
    pub worker: WorkerId,
    /// The kernel lock that its processes will share; none for executors outside of Lockkeeper.
    pub holder: Option<HolderId>,
    /// The lease that was taken for it.
    pub lease: Option<(LeaseId, Token)>,
}

/// Takes a run that is queued, or whose next attempt is due. An attempt that Lockkeeper 0.1.0 gave back before it began is
/// not counted.
pub fn claim(run: &Run, taker: Taker, now: Stamp) -> Result<Moved, Lost> {
    let kind = match run.status {
        Status::Running if run.worker.is_some() || run.retry_at.is_none_or(|at| at > now.moment) => {
            return Err(Lost::NotDue);
        }
        Status::Running if run.was_given_back() => EventKind::Claimed,
        Status::Running => EventKind::Retried,
        _ => EventKind::Claimed,
    };
    let waited = run.status == Status::Running;
    let status = if waited { run.status } else { step(run.status, Status::Running)? };
    let attempt = run.attempt + u32::from(!run.was_given_back());
    let message = format!("worker {}, attempt {attempt}", taker.worker);
    let after = Run {
        status,
        attempt,
        claim: run.claim + 1,
        worker: Some(taker.worker),
        process: taker.holder.map(|holder| Process { holder, command: None }),
        lease: taker.lease,
        started_at: Some(now),
        retry_at: None,
        give_up_at: None,
        ending: None,
        reason: None,
        message: None,
        help: false,
        ..run.clone()
    };
    Ok(moved(run, after, kind, Some(message)))
}

/// Notes which process the command is.
pub fn started(run: &Run, claim: u64, command: ProcessRef) -> Result<Moved, Lost> {
    check_executed(run, claim)?;
    let process = run.process.map(|process| Process { command: Some(command), ..process });
    let after = Run { process, ..run.clone() };
    Ok(moved(run, after, EventKind::Started, Some(format!("process {}", command.pid))))
}

/// Notes that the command asks for somebody. It goes on; its end will say so.
pub fn ask_for_help(run: &Run, message: Option<String>) -> Result<Option<Moved>, Lost> {
    if !run.status.is_active() {
        return Err(NoSuchMove { from: run.status, to: run.status }.into());
    }
    if run.help && run.message == message {
        return Ok(None);
    }
    let after = Run { help: true, message: message.clone(), ..run.clone() };
    Ok(Some(moved(run, after, EventKind::HelpAsked, message)))
}

/// What was seen of the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The command ended by itself.
    Ended(Ending),
    /// The command was ended because the run was called off.
    Stopped(Option<Ending>),
    /// The command could not be started: the code that shells give, and why.
    NotStarted(u8, String),
    /// Nothing of it lives, and nobody saw how it ended.
    Vanished,
    /// It was ended because its worker gave no sign of life.
    Replaced,
    /// It was ended because it lost what it has to hold.
    LeaseLost(Option<Ending>),
}

/// What decides about the end of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'t> {
    /// The exit codes that are a success.
    pub success: &'t [u8],
    /// When another attempt is made.
    pub retry: &'t RetryPolicy,
    /// Any number, to spread retries by.
    pub chance: u64,
}

/// Ends an attempt: with the run's end, or with a wait for the next attempt.
///
/// Whoever sends a signal because the run was called off says [`Seen::Stopped`], whatever the command then returned:
/// such a run is never a success.
pub fn finish(run: &Run, claim: u64, seen: Seen, terms: Terms<'_>, now: Stamp) -> Result<Moved, Lost> {
    check_executed(run, claim)?;
    let ending = match &seen {
        Seen::Ended(ending) | Seen::Stopped(Some(ending)) | Seen::LeaseLost(Some(ending)) => Some(*ending),
        Seen::NotStarted(code, _) => Some(Ending::Exited(*code)),
        Seen::Stopped(None) | Seen::LeaseLost(None) | Seen::Vanished | Seen::Replaced => None,
    };
    let (status, reason, message) = match seen {
        Seen::Stopped(_) => (Status::Canceled, Some(Reason::UserCanceled), None),
        Seen::Vanished if run.status == Status::Cancelling => {
            (Status::Canceled, Some(Reason::UserCanceled), None)
        }
        Seen::Ended(Ending::Exited(code)) if run.help || code == NEEDS_INPUT_CODE => {
            (Status::Failed, Some(Reason::NeedsInput), run.message.clone())
        }
        Seen::Ended(Ending::Exited(code)) if terms.success.contains(&code) => (Status::Succeeded, None, None),
        Seen::Ended(Ending::Exited(_)) => (Status::Failed, Some(Reason::ExitCode), None),
        Seen::Ended(Ending::Signaled(_)) => (Status::Failed, Some(Reason::Signal), None),
        Seen::NotStarted(_, why) => (Status::Failed, Some(Reason::CommandNotStarted), Some(why)),
        Seen::Vanished => (Status::Failed, Some(Reason::Lost), None),
        Seen::Replaced => (Status::Failed, Some(Reason::WorkerSilent), None),
        Seen::LeaseLost(_) => (Status::Failed, Some(Reason::LeaseLost), None),
    };
    let worth_another = match reason {
        Some(Reason::ExitCode | Reason::Signal | Reason::Lost | Reason::WorkerSilent | Reason::LeaseLost) => {
            run.status == Status::Running
        }
        _ => false,
    };
    let code = ending.map(Ending::exit_code);
    let wait = terms.retry.wait_after(run.attempt, code, terms.chance).filter(|_| worth_another);
    let after = Run { worker: None, process: None, lease: None, ending, ..run.clone() };
    if let Some(wait) = wait {
        let retry_at = Some(now.moment.after(wait));
        let message = format!("attempt {} of {}: {}", run.attempt, terms.retry.limit + 1, in_words(wait));
        let after = Run { retry_at, reason, ..after };
        return Ok(moved(run, after, EventKind::Retrying, Some(message)));
    }
    let status = step(run.status, status)?;
    let after = Run { status, reason, message: message.clone(), completed_at: Some(now), ..after };
    Ok(moved(run, after, EventKind::Ended, message))
}

/// Calls a run off: at once when nobody executes it, else by asking whoever does.
///
/// A run that waits for its next attempt takes both moves; the first record is given, and this is to be called again.
pub fn cancel(run: &Run, now: Stamp, message: Option<String>) -> Result<Moved, Lost> {
    match run.status {
        Status::Queued => Ok(end(run, Status::Canceled, Reason::UserCanceled, message, now)?),
        Status::Cancelling if run.worker.is_none() => {
            Ok(end(run, Status::Canceled, Reason::UserCanceled, message, now)?)
        }
        Status::Running
        | Status::Cancelling
        | Status::Succeeded
        | Status::Failed
        | Status::Canceled
        | Status::TimedOut
        | Status::Rejected => {
            let status = step(run.status, Status::Cancelling)?;
            let after = Run { status, retry_at: None, message: message.clone(), ..run.clone() };
            Ok(moved(run, after, EventKind::Cancelling, message))
        }
    }
}

/// Ends a run whose time is up, if it is. Processes of it may still be there: `process` and `lease` stay.
pub fn time_out(run: &Run, now: Stamp) -> Option<Moved> {
    let queue = run.status == Status::Queued && run.give_up_at.is_some_and(|at| at <= now.moment);
    let execution = run.times_out_at().is_some_and(|at| at <= now.moment);
    let (reason, span, what) = if queue {
        (Reason::QueueTimeout, now.moment.since(run.queued_at.moment), "waited")
    } else if execution {
        (Reason::ExecutionTimeout, run.timeout.unwrap_or_default(), "ran")
    } else {
        return None;
    };
    let message = format!("it {what} for {}", crate::time::format_span(span));
    end(run, Status::TimedOut, reason, Some(message), now).ok()
}

/// Puts another worker in the place of one that is gone. The command, if it lives, goes on.
pub fn adopt(run: &Run, claim: u64, worker: WorkerId) -> Result<Moved, Lost> {
    check_executed(run, claim)?;
    let message = format!("worker {worker}");
    let after = Run { claim: run.claim + 1, worker: Some(worker), ..run.clone() };
    Ok(moved(run, after, EventKind::Adopted, Some(message)))
}

/// A bare compare-and-set, for executors outside of Lockkeeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where the run is to go.
    pub to: Status,
    /// Where it has to be; anywhere from where it can go there when not given.
    pub expect: Option<Status>,
    /// The claim that has to be the present one.
    pub claim: Option<u64>,
    /// The exit code to be kept.
    pub exit_code: Option<u8>,
    /// Who says so.
    pub worker: WorkerId,
}

/// Moves a run because a program outside of Lockkeeper says so.
pub fn mark(run: &Run, mark: &Mark, now: Stamp) -> Result<Moved, Lost> {
    check_claim(run, mark.claim)?;
    if mark.expect.is_some_and(|expected| expected != run.status) {
        return Err(NoSuchMove { from: run.status, to: mark.to }.into());
    }
    step(run.status, mark.to)?;
    let ending = mark.exit_code.map(Ending::Exited).or(run.ending);
    let moved = match mark.to {
        Status::Running => claim(run, Taker { worker: mark.worker.clone(), holder: None, lease: None }, now)?,
        Status::Cancelling => cancel(run, now, None)?,
        Status::Canceled if run.status == Status::Queued => cancel(run, now, None)?,
        to => end(run, to, Reason::Marked, None, now)?,
    };
    Ok(Moved { run: Run { ending, ..moved.run }, ..moved })
}

/// Forgets what may have lived of a run that is over: somebody saw that nothing does.
pub fn settle(run: &Run) -> Run {
    Run { process: None, lease: None, ..run.clone() }
}

fn end(
    run: &Run,
    to: Status,
    reason: Reason,
    message: Option<String>,
    now: Stamp,
) -> Result<Moved, NoSuchMove> {
    let status = step(run.status, to)?;
    let reason = Some(reason).filter(|_| status != Status::Succeeded);
    let after = Run {
        status,
        reason,
        message: message.clone(),
        worker: None,
        retry_at: None,
        give_up_at: None,
        completed_at: Some(now),
        ..run.clone()
    };
    Ok(moved(run, after, EventKind::Ended, message))
}

fn moved(before: &Run, after: Run, kind: EventKind, message: Option<String>) -> Moved {
    let event = Event { kind, from: Some(before.status), to: after.status, reason: after.reason, message };
    Moved { run: after, event }
}

fn check_claim(run: &Run, given: Option<u64>) -> Result<(), Lost> {
    match given {
        Some(given) if given != run.claim => Err(Lost::Claim { given, current: run.claim }),
        Some(_) | None => Ok(()),
    }
}

/// Only whoever executes a run has something to say about its command, and only under the claim that it has.
fn check_executed(run: &Run, claim: u64) -> Result<(), Lost> {
    check_claim(run, Some(claim))?;
    if !run.status.is_active() {
        return Err(NoSuchMove { from: run.status, to: Status::Running }.into());
    }
    if run.worker.is_none() { Err(Lost::Nobody) } else { Ok(()) }
}

fn in_words(wait: Duration) -> String {
    format!("the next in {}", crate::time::format_span(wait))
}
