//! The plain lock file of a request, `ID.lock`: the program of the format creates it exclusively, with the id of its run
//! as text, and removes it at the end. It has no time and no process, so only its program or a person ends it.

use std::path::PathBuf;

use super::record::{AiflowRecord, Subject};
use super::{Aiflow, AiflowError, FILE_MODE, LockState};
use crate::guard::{Folder, Held, LockFile, Removal, Take};
use crate::safe_open::{FileName, NameError, Snapshot};
use crate::{HeldReason, StaleReason, Verdict};

const SUFFIX: &str = ".lock";
/// What we write if there is no run.
const NO_RUN: &str = "lockkeeper";

impl Aiflow {
    /// Returns the path of the plain file; `None` for the queue, which has none.
    pub fn plain_path(&self, subject: &Subject) -> Option<PathBuf> {
        let name = file_name(subject).ok()??;
        Some(self.locks().join(name.as_str()))
    }

    /// Takes the plain file of a request. It may replace that of `before`, whose record was stale. Otherwise returns the
    /// run of the program that holds it.
    pub(super) fn take_plain(
        &self,
        subject: &Subject,
        run: Option<&str>,
        before: Option<&str>,
    ) -> Result<Result<Option<Box<Held>>, String>, AiflowError> {
        let Some(file) = self.plain_file(subject, self.make_folder()?)? else { return Ok(Ok(None)) };
        let content = run.unwrap_or(NO_RUN).as_bytes();
        let taken = file.take(content, &mut |snapshot| match before {
            Some(before) if run_in(snapshot) == before => Verdict::Stale(StaleReason::ProcessGone),
            Some(_) | None => Verdict::Held(HeldReason::UntilRemoved),
        })?;
        Ok(match taken {
            Take::Taken { held, .. } => Ok(Some(Box::new(held))),
            Take::Busy { snapshot, .. } => {
                Err(snapshot.map(|snapshot| run_in(&snapshot)).unwrap_or_default())
            }
        })
    }

    /// Returns the run in a plain file that is not a part of `record`; `None` when there is no such file.
    pub(super) fn foreign_run(
        &self,
        subject: &Subject,
        record: Option<&AiflowRecord>,
    ) -> Result<Option<String>, AiflowError> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        let Some(file) = self.plain_file(subject, folder)? else { return Ok(None) };
        let run = file.read()?.map(|snapshot| run_in(&snapshot));
        let own = record.and_then(|record| record.run_id.as_deref());
        Ok(run.filter(|run| Some(run.as_str()) != own))
    }

    /// Removes the plain file that belongs to a record.
    pub(super) fn remove_plain(&self, subject: &Subject, record: &AiflowRecord) -> Result<(), AiflowError> {
        let (Some(folder), Some(run)) = (self.folder()?, &record.run_id) else { return Ok(()) };
        let Some(file) = self.plain_file(subject, folder)? else { return Ok(()) };
        match file.remove(&mut |snapshot| run_in(snapshot) == *run)? {
            Removal::Removed(_) | Removal::Absent | Removal::Lost(_) => Ok(()),
        }
    }

    fn plain_file(&self, subject: &Subject, folder: Folder) -> Result<Option<LockFile>, AiflowError> {
        let name = file_name(subject)?;
        Ok(name.map(|name| LockFile::new(folder, name, FILE_MODE, |_| true)))
    }
}

impl LockState {
    /// The state of a plain file that a run of another program holds.
    pub(super) fn plain(run: String) -> Self {
        Self { record: None, plain_run: Some(run), verdict: Verdict::Held(HeldReason::UntilRemoved) }
    }
}

/// The request of a plain file.
pub(super) fn subject_of(name: &str) -> Option<Subject> {
    let id = name.strip_suffix(SUFFIX).filter(|id| !id.is_empty())?;
    Some(Subject::Request(id.to_owned()))
}

fn file_name(subject: &Subject) -> Result<Option<FileName>, NameError> {
    match subject {
        Subject::Queue => Ok(None),
        Subject::Request(id) => FileName::around("", id, SUFFIX).map(Some),
    }
}

fn run_in(snapshot: &Snapshot) -> String {
    String::from_utf8_lossy(snapshot.bytes()).trim().to_owned()
}
