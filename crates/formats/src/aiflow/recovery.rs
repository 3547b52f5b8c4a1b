//! Recovery of stale aiflow locks.

use std::io;

use lockkeeper_platform::wall_clock::WallTime;

use super::plain;
use super::record::{AiflowRecord, Subject};
use super::{Aiflow, AiflowError, LockState};
use crate::guard::Removal;

/// How thorough a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Before a run: removes complete records that are stale.
    Quick,
    /// In the doctor: also removes incomplete records, and reports every problem.
    Full,
}

/// A stale lock that was removed.
#[derive(Debug)]
pub struct Recovered {
    /// What it locked.
    pub subject: Subject,
    /// The state of the lock before.
    pub state: LockState,
}

impl Recovered {
    /// The reason code in reports.
    pub const REASON_CODE: &'static str = "LOCK_STALE_RECOVERED";
}

/// The result of a recovery.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The locks that were removed.
    pub recovered: Vec<Recovered>,
    /// The lock files that could not be removed and, in the full pass, those that cannot be judged. They count as held.
    pub problems: Vec<(Subject, AiflowError)>,
}

/// A lock file, and its state or the reason why it cannot be judged.
pub type Listed = (Subject, Result<LockState, AiflowError>);

impl Aiflow {
    /// Lists every lock, the queue first.
    pub fn list(&self, now: WallTime) -> Result<Vec<Listed>, AiflowError> {
        let mut found = Vec::new();
        for subject in self.subjects()? {
            match self.show(&subject, now) {
                Ok(Some(state)) => found.push((subject, Ok(state))),
                Ok(None) => {}
                Err(error) => found.push((subject, Err(error))),
            }
        }
        Ok(found)
    }

    /// Removes stale locks. Judges each one again under the guard, so that a new lock is never removed.
    pub fn recover(&self, pass: Pass, now: WallTime) -> Result<Recovery, AiflowError> {
        let mut recovery = Recovery::default();
        for (subject, state) in self.list(now)? {
            match state {
                Ok(state) if state.verdict.is_stale() => {
                    if pass == Pass::Full || state.record.is_some() {
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
        if let Some(record) = file.read()?.and_then(|snapshot| AiflowRecord::read(subject, &snapshot).ok())
            && record.judge(now).is_stale()
        {
            self.remove_plain(subject, &record)?;
        }
        let removal = file.remove(&mut |snapshot| super::verdict(subject, snapshot, now).is_stale())?;
        match removal {
            Removal::Removed(snapshot) => {
                let state = super::state(subject, &file.path(), &snapshot, now)?;
                Ok(Some(Recovered { subject: subject.clone(), state }))
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
        // A request may have a record and a plain file.
        subjects.dedup();
        Ok(subjects)
    }
}

fn subject_of(name: &str) -> Option<Subject> {
    let Some(stem) = name.strip_suffix(super::SUFFIX) else { return plain::subject_of(name) };
    match stem {
        "queue" => Some(Subject::Queue),
        stem => stem.strip_prefix(super::REQUEST_PREFIX).map(|id| Subject::Request(id.to_owned())),
    }
}
