//! Recovery of task locks: of expired ones, which any process may remove, and of those whose worker is gone while its task
//! goes on.

use lockkeeper_platform::wall_clock::WallTime;

use super::{LockState, Swarm, SwarmError, TaskLock, TaskRecord};
use crate::guard::{Removal, Take};
use crate::{HeldReason, StaleReason, Verdict};

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
    /// Takes over the lock of a worker that is gone, for the worker that goes on with its task. Returns `None` when the lock
    /// is not that of the old worker.
    pub fn adopt(
        &self,
        task: &str,
        gone: &str,
        worker: &str,
        now: WallTime,
    ) -> Result<Option<Box<TaskLock>>, SwarmError> {
        let Some(file) = self.existing(task)? else { return Ok(None) };
        let Some(before) = file.read()?.and_then(|snapshot| super::own_record(task, gone, &snapshot)) else {
            return Ok(None);
        };
        let record = TaskRecord { worker_id: worker.to_owned(), heartbeat_at: now, ..before };
        let taken =
            file.take(&record.content(), &mut |snapshot| match super::own_record(task, gone, snapshot) {
                Some(_) => Verdict::Stale(StaleReason::ProcessGone),
                None => Verdict::Held(HeldReason::Changed),
            })?;
        match taken {
            Take::Taken { held, .. } => Ok(Some(Box::new(TaskLock { held, record }))),
            Take::Busy { .. } => Ok(None),
        }
    }

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
