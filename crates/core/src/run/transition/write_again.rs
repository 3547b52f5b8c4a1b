//! Runs that a store has lost: their worker writes them again.

use super::{Transition, TransitionError, next};
use crate::run::{EventKind, NoSuchMove, Run, RunState, Stamp, Status};

/// Writes the claim of a worker again, after the store has lost it: a server was restored from a backup, for instance.
///
/// `known` is the run as its worker executes it, `found` is the record of the store. None if the store has lost nothing of it. An error
/// if the run has ended, or if another worker has claimed it.
pub fn write_again(found: &Run, known: &Run, now: Stamp) -> Result<Option<Transition>, TransitionError> {
    let execution = known.execution().ok_or(TransitionError::NotExecuted)?;
    let (given, current) = (known.claim(), found.claim());
    if found.status().is_terminal() {
        return Err(NoSuchMove { from: found.status(), to: Status::Running }.into());
    }
    if given == current && found.worker() == Some(&execution.worker) {
        return Ok(None);
    }
    if given <= current {
        return Err(TransitionError::Claim { given, current });
    }
    let message = format!("worker {}, whose claim the store had lost", execution.worker);
    let state = match found.status() {
        // It was canceled meanwhile.
        Status::Cancelling => RunState::Cancelling(execution.clone()),
        _ => RunState::Running(execution.clone()),
    };
    Ok(Some(next(found, state, EventKind::Adopted, Some(message), now)))
}
