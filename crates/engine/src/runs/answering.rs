//! Answers: a command that asked for help ends, and a new run of its request gets the answer of a person.

use std::io::{self, Read};

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_platform::fs as local;

use super::submit::requeue;
use super::{RunError, RunFolder, Runs, SubmitError};

/// The variable in which a command gets the answer.
pub const ANSWER: &str = "LOCKKEEPER_ANSWER";
/// The longest answer, in bytes: a variable of a process cannot be much longer.
pub(super) const LONGEST_ANSWER: usize = 64 * 1024;

impl Runs {
    /// Queues a new run of a request that needs input, and keeps the answer for its command. A crash in between leaves a folder
    /// without a run.
    pub fn answer(&self, request: &RequestId, answer: &str) -> Result<RunId, RunError> {
        if answer.is_empty() || answer.len() > LONGEST_ANSWER || answer.contains('\0') {
            return Err(RunError::BadAnswer);
        }
        let id = self.new_run_ids(1)?.swap_remove(0);
        let records = self.store.snapshot()?;
        let stored = records.request(request)?.ok_or_else(|| RunError::NoRequest(request.clone()))?;
        if stored.status != RequestStatus::NeedsInput {
            return Err(RunError::NotAsked { request: request.clone(), status: stored.status });
        }
        let new = requeue(&*records, request, id.clone())?;
        drop(records);
        if self.is_shared() {
            return self.answer_anywhere(stored.request, answer);
        }
        let folder = self.folder_of(&id);
        folder
            .make()
            .and_then(|()| folder.put(&folder.answer(), answer.as_bytes()))
            .map_err(RunError::Machine)?;
        // Another process may have answered since.
        if self.store.requeue(&[new])? == [true] {
            self.store.sync()?;
            return Ok(id);
        }
        folder.remove().map_err(RunError::Machine)?;
        let status = self.request(request)?.request.status;
        Err(RunError::NotAsked { request: request.clone(), status })
    }
}

impl Runs {
    /// Replaces the request by one that has the answer in its environment: any machine may execute it.
    fn answer_anywhere(&self, mut request: Request, answer: &str) -> Result<RunId, RunError> {
        request.env.retain(|(name, _)| name != ANSWER);
        request.env.push((ANSWER.to_owned(), answer.to_owned()));
        match self.replace(&request, None) {
            Ok(submitted) => Ok(submitted.run),
            Err(SubmitError::Run(error)) => Err(error),
            // Another process has answered since.
            Err(SubmitError::Refused(_)) => {
                let status = self.request(&request.id)?.request.status;
                Err(RunError::NotAsked { request: request.id, status })
            }
        }
    }
}

impl RunFolder {
    /// The answer for its command; none if there is none.
    pub(crate) fn read_answer(&self) -> io::Result<Option<String>> {
        let path = self.answer();
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let file = match local::open_in(folder, name.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = String::new();
        file.take(LONGEST_ANSWER as u64).read_to_string(&mut text)?;
        Ok(Some(text))
    }
}
