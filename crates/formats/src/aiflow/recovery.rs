//! Stale locks of a project: found, told apart from the living, and put away.

use std::io;

use super::record::Subject;
use super::{Aiflow, AiflowError, Standing};
use crate::guard::Removal;
use lockkeeper_platform::wall_clock::WallTime;

/// How thorough a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Before a run: whole records whose time is up.
    Quick,
    /// In the doctor: also records that were never written to their end, and whatever is wrong is told.
    Full,
}

/// A stale lock that was put away.
#[derive(Debug)]
pub struct Recovered {
    /// What it locked.
    pub subject: Subject,
    /// What was in it.
    pub standing: Standing,
}

impl Recovered {
    /// The code under which reports tell of it.
    pub const REASON_CODE: &'static str = "LOCK_STALE_RECOVERED";
}

/// What a recovery did.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Locks that are free again.
    pub recovered: Vec<Recovered>,
    /// Lock files that could not be put away, and, in the full pass, those that cannot be judged. They count as held.
    pub problems: Vec<(Subject, AiflowError)>,
}

/// A lock file, and what is to be made of it if that can be told.
pub type Listed = (Subject, Result<Standing, AiflowError>);

impl Aiflow {
    /// Tells of every lock, in order; those that cannot be judged come with the reason.
    pub fn list(&self, now: WallTime) -> Result<Vec<Listed>, AiflowError> {
        let mut found = Vec::new();
        for subject in self.subjects()? {
            match self.show(&subject, now) {
                Ok(Some(standing)) => found.push((subject, Ok(standing))),
                Ok(None) => {}
                Err(error) => found.push((subject, Err(error))),
            }
        }
        Ok(found)
    }

    /// Puts away stale locks. Each is judged again under the guard, so that nobody's new lock is removed.
    pub fn recover(&self, pass: Pass, now: WallTime) -> Result<Recovery, AiflowError> {
        let mut recovery = Recovery::default();
        for (subject, standing) in self.list(now)? {
            match standing {
                Ok(standing) if standing.verdict.is_stale() => {
                    if pass == Pass::Full || standing.record.is_some() {
                        match self.recover_one(&subject, now) {
                            Ok(recovered) => recovery.recovered.extend(recovered),
                            Err(error) => recovery.problems.push((subject, error)),
                        }
                    }
                }
                Ok(_) => {}
                Err(error) if pass == Pass::Full => recovery.problems.push((subject, error)),
                Err(_) => {}
            }
        }
        Ok(recovery)
    }

    fn recover_one(&self, subject: &Subject, now: WallTime) -> Result<Option<Recovered>, AiflowError> {
        let Some(file) = self.existing(subject)? else { return Ok(None) };
        let removal = file.remove(&mut |sighting| super::verdict(subject, sighting, now).is_stale())?;
        match removal {
            Removal::Removed(sighting) => {
                let standing = super::standing(subject, &file.path(), &sighting, now)?;
                Ok(Some(Recovered { subject: subject.clone(), standing }))
            }
            Removal::Absent | Removal::Lost(_) => Ok(None),
        }
    }

    fn subjects(&self) -> Result<Vec<Subject>, AiflowError> {
        let unreadable = |source| AiflowError::List { path: self.locks(), source };
        let entries = match std::fs::read_dir(self.locks()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(unreadable(source)),
        };
        let mut subjects = Vec::new();
        for entry in entries {
            let name = entry.map_err(unreadable)?.file_name();
            subjects.extend(name.to_str().and_then(subject_of));
        }
        subjects.sort();
        Ok(subjects)
    }
}

fn subject_of(name: &str) -> Option<Subject> {
    match name.strip_suffix(super::SUFFIX)? {
        "queue" => Some(Subject::Queue),
        stem => stem.strip_prefix(super::REQUEST_PREFIX).map(|id| Subject::Request(id.to_owned())),
    }
}
