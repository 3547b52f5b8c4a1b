//! Recovery of expired task locks. Any process may remove them, as the format allows.

use lockkeeper_platform::wall_clock::WallTime;

use super::{LockState, Swarm, SwarmError};
use crate::guard::Removal;

/// An expired lock that was removed.
#[derive(Debug)]
pub struct Recovered {
    /// The task that is free now.
    pub task: String,
    /// The state of the lock before.
    pub state: LockState,
}

/// The result of a recovery.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The locks that were removed.
    pub recovered: Vec<Recovered>,
    /// The lock files that cannot be judged or removed. They count as held.
    pub problems: Vec<(String, SwarmError)>,
}

/// A task, and the state of its lock or the reason why it cannot be judged.
pub type Listed = (String, Result<LockState, SwarmError>);

impl Swarm {
    /// Lists every lock, by task.
    pub fn list(&self, now: WallTime) -> Result<Vec<Listed>, SwarmError> {
        if self.folder()?.is_none() {
            return Ok(Vec::new());
        }
        let tasks = self.tasks().map_err(|source| SwarmError::List { path: self.locks(), source })?;
        let mut found = Vec::new();
        for task in tasks {
            match self.show(&task, now) {
                Ok(Some(state)) => found.push((task, Ok(state))),
                Ok(None) => {}
                Err(error) => found.push((task, Err(error))),
            }
        }
        Ok(found)
    }

    /// Removes expired locks. Judges each one again under the guard, so that a new lock is never removed.
    pub fn recover(&self, now: WallTime) -> Result<Recovery, SwarmError> {
        let mut recovery = Recovery::default();
        for (task, state) in self.list(now)? {
            match state {
                Ok(state) if state.verdict.is_stale() => match self.recover_one(&task, now) {
                    Ok(recovered) => recovery.recovered.extend(recovered),
                    Err(error) => recovery.problems.push((task, error)),
                },
                Ok(_) => {}
                Err(error) => recovery.problems.push((task, error)),
            }
        }
        Ok(recovery)
    }

    fn recover_one(&self, task: &str, now: WallTime) -> Result<Option<Recovered>, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(None) };
        match file.remove(&mut |snapshot| self.verdict(task, snapshot, now).is_stale())? {
            Removal::Removed(snapshot) => {
                let state = self.state(task, &file.path(), &snapshot, now)?;
                Ok(Some(Recovered { task: task.to_owned(), state }))
            }
            Removal::Absent | Removal::Lost(_) => Ok(None),
        }
    }
}
