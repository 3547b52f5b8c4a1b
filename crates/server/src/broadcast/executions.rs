//! Watches the records of stage executions: files in a folder of their own beside the store.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_engine::stages;
use lockkeeper_platform::changes::Changes;

use super::message::Message;

/// The folder of records, and its content at the last read.
pub(super) struct Executions {
    folder: PathBuf,
    /// None until the folder exists.
    changes: Option<Changes>,
    known: BTreeMap<String, FileVersion>,
}

/// The version of a record. A record is replaced as a whole when it changes, so the metadata of the file tells versions apart.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    inode: u64,
    size: u64,
    written_at: (i64, i64),
}

impl Executions {
    /// Records that exist at this moment are not reported as changes.
    pub(super) fn new(state: &Path) -> Self {
        let mut executions = Self { folder: stages::folder(state), changes: None, known: BTreeMap::new() };
        executions.watch_folder();
        executions.known = executions.read();
        executions
    }

    /// Readable after a change; none while the folder is missing, or where the system cannot report changes.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().and_then(Changes::as_fd)
    }

    /// The records that are new or different since the last call.
    pub(super) fn changes(&mut self) -> Vec<Message> {
        let is_new = self.watch_folder();
        // The notifications are taken before the folder is read: a change during the read is reported next time.
        let changed = self.changes.as_ref().is_none_or(|changes| changes.take() || changes.as_fd().is_none());
        if !is_new && !changed {
            return Vec::new();
        }
        let current = self.read();
        let different = current.iter().filter(|(id, version)| self.known.get(*id) != Some(version));
        let messages = different.map(|(id, _)| {
            let kind = if self.known.contains_key(id) { "stages.changed" } else { "stages.began" };
            Message::stages(kind, id.clone())
        });
        let messages = messages.collect();
        self.known = current;
        messages
    }

    /// Watches the folder once it exists; true when this call was the first that could.
    fn watch_folder(&mut self) -> bool {
        if self.changes.is_some() || !self.folder.is_dir() {
            return false;
        }
        self.changes = Changes::watch(&self.folder).ok();
        self.changes.is_some()
    }

    fn read(&self) -> BTreeMap<String, FileVersion> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let versions = entries.filter_map(|entry| {
            let path = entry.path();
            let id = path.file_stem()?.to_str()?.to_owned();
            let is_record = path.extension().is_some_and(|extension| extension == "json");
            let meta = entry.metadata().ok().filter(|_| is_record)?;
            let written_at = (meta.mtime(), meta.mtime_nsec());
            Some((id, FileVersion { inode: meta.ino(), size: meta.len(), written_at }))
        });
        versions.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(messages: &[Message]) -> Vec<String> {
        messages.iter().map(|message| message.to_line().to_string()).collect()
    }

    fn one(kind: &str) -> Vec<String> {
        vec![format!(r#"{{"type":"{kind}","execution_id":"EX-1"}}"#)]
    }

    #[test]
    fn a_record_is_reported_when_it_appears_and_when_it_changes_and_not_otherwise() {
        let state = tempfile::tempdir().unwrap();
        let mut executions = Executions::new(state.path());
        assert!(executions.changes().is_empty());
        let folder = stages::folder(state.path());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("EX-1.json"), "{}").unwrap();
        fs::write(folder.join("EX-1.plan"), "{}").unwrap();
        assert_eq!(lines(&executions.changes()), one("stages.began"));
        assert!(executions.changes().is_empty());
        fs::write(folder.join("new"), "{\"ended\":{}}").unwrap();
        fs::rename(folder.join("new"), folder.join("EX-1.json")).unwrap();
        assert_eq!(lines(&executions.changes()), one("stages.changed"));
        assert!(executions.changes().is_empty());
    }

    #[test]
    fn records_that_exist_at_the_start_are_not_reported() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(stages::folder(state.path())).unwrap();
        fs::write(stages::folder(state.path()).join("EX-1.json"), "{}").unwrap();
        assert!(Executions::new(state.path()).changes().is_empty());
    }
}
