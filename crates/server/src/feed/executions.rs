//! Hearing of executions of stages: their records are files in a folder of their own, beside the store.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use lockkeeper_engine::stages;
use lockkeeper_platform::changes::Changes;

/// The folder of records, and what was there at the last look.
pub(super) struct Executions {
    folder: PathBuf,
    /// None as long as the folder is not there.
    changes: Option<Changes>,
    known: BTreeMap<String, Mark>,
}

/// What makes two looks at a record different: it is replaced as a whole whenever it changes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: u64,
    size: u64,
    written_at: (i64, i64),
}

impl Executions {
    /// What is there now is no news.
    pub(super) fn new(state: &Path) -> Self {
        let mut executions = Self { folder: stages::folder(state), changes: None, known: BTreeMap::new() };
        executions.listen();
        executions.known = executions.look();
        executions
    }

    /// Readable after a change; none where the folder is not there, or nobody tells.
    pub(super) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().and_then(Changes::as_fd)
    }

    /// What happened since the last look.
    pub(super) fn news(&mut self) -> Vec<(&'static str, Value)> {
        let is_new = self.listen();
        // Before the look, so that what happens during it is heard of again.
        let heard = self.changes.as_ref().is_none_or(|changes| changes.take() || changes.as_fd().is_none());
        if !is_new && !heard {
            return Vec::new();
        }
        let now = self.look();
        let different = now.iter().filter(|(id, mark)| self.known.get(*id) != Some(mark));
        let news = different.map(|(id, _)| {
            let kind = if self.known.contains_key(id) { "stages.changed" } else { "stages.began" };
            ("stages", json!({ "type": kind, "execution_id": id }))
        });
        let news = news.collect();
        self.known = now;
        news
    }

    /// Listens as soon as there is something to listen to; says whether that is so only now.
    fn listen(&mut self) -> bool {
        if self.changes.is_some() || !self.folder.is_dir() {
            return false;
        }
        self.changes = Changes::watch(&self.folder).ok();
        self.changes.is_some()
    }

    fn look(&self) -> BTreeMap<String, Mark> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let marks = entries.filter_map(|entry| {
            let path = entry.path();
            let id = path.file_stem()?.to_str()?.to_owned();
            let is_record = path.extension().is_some_and(|extension| extension == "json");
            let meta = entry.metadata().ok().filter(|_| is_record)?;
            let written_at = (meta.mtime(), meta.mtime_nsec());
            Some((id, Mark { inode: meta.ino(), size: meta.len(), written_at }))
        });
        marks.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(news: &[(&'static str, Value)]) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        news.iter().map(|(_, data)| (text(&data["type"]), text(&data["execution_id"]))).collect()
    }

    fn one(kind: &str) -> Vec<(String, String)> {
        vec![(kind.to_owned(), "EX-1".to_owned())]
    }

    #[test]
    fn a_record_is_told_of_when_it_comes_and_when_it_changes_and_not_otherwise() {
        let state = tempfile::tempdir().unwrap();
        let mut executions = Executions::new(state.path());
        assert!(executions.news().is_empty());
        let folder = stages::folder(state.path());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("EX-1.json"), "{}").unwrap();
        fs::write(folder.join("EX-1.plan"), "{}").unwrap();
        assert_eq!(kinds(&executions.news()), one("stages.began"));
        assert!(executions.news().is_empty());
        fs::write(folder.join("new"), "{\"ended\":{}}").unwrap();
        fs::rename(folder.join("new"), folder.join("EX-1.json")).unwrap();
        assert_eq!(kinds(&executions.news()), one("stages.changed"));
        assert!(executions.news().is_empty());
    }

    #[test]
    fn what_was_there_before_is_no_news() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(stages::folder(state.path())).unwrap();
        fs::write(stages::folder(state.path()).join("EX-1.json"), "{}").unwrap();
        assert!(Executions::new(state.path()).news().is_empty());
    }
}
