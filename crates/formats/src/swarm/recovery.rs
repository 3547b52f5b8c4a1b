//! Expired locks of a swarm: found, and put away by whoever likes, as the format allows.

use super::{Standing, Swarm, SwarmError};
use crate::guard::Removal;
use lockkeeper_platform::wall_clock::WallTime;

/// An expired lock that was put away.
#[derive(Debug)]
pub struct Recovered {
    /// The task that is free again.
    pub task: String,
    /// What was in it.
    pub standing: Standing,
}

/// What a recovery did.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Locks that are free again.
    pub recovered: Vec<Recovered>,
    /// Lock files that cannot be judged or put away; they count as held.
    pub problems: Vec<(String, SwarmError)>,
}

/// A task, and what is to be made of its lock if that can be told.
pub type Listed = (String, Result<Standing, SwarmError>);

impl Swarm {
    /// Tells of every lock, in order; those that cannot be judged come with the reason.
    pub fn list(&self, now: WallTime) -> Result<Vec<Listed>, SwarmError> {
        if self.folder()?.is_none() {
            return Ok(Vec::new());
        }
        let tasks = self.tasks().map_err(|source| SwarmError::List { path: self.locks(), source })?;
        let mut found = Vec::new();
        for task in tasks {
            match self.show(&task, now) {
                Ok(Some(standing)) => found.push((task, Ok(standing))),
                Ok(None) => {}
                Err(error) => found.push((task, Err(error))),
            }
        }
        Ok(found)
    }

    /// Puts away expired locks. Each is judged again under the guard, so that nobody's new lock is removed.
    pub fn recover(&self, now: WallTime) -> Result<Recovery, SwarmError> {
        let mut recovery = Recovery::default();
        for (task, standing) in self.list(now)? {
            match standing {
                Ok(standing) if standing.verdict.is_stale() => match self.recover_one(&task, now) {
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
        match file.remove(&mut |sighting| self.verdict(task, sighting, now).is_stale())? {
            Removal::Removed(sighting) => {
                let standing = self.standing(task, &file.path(), &sighting, now)?;
                Ok(Some(Recovered { task: task.to_owned(), standing }))
            }
            Removal::Absent | Removal::Lost(_) => Ok(None),
        }
    }
}
