//! What is kept of an execution, so that it can be gone on with after a crash.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StageError;
use crate::engine::runs::write_whole;

/// An execution of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Its id, never given twice.
    pub id: String,
    /// The file, as its path was when it began.
    pub file: String,
    /// The phase.
    pub phase: String,
    /// The groups that were to be executed, in the order of the plan.
    pub groups: Vec<String>,
    /// When it began, in microseconds since 1970.
    pub started_at: i64,
    /// How groups ended, by their ids.
    pub ended: BTreeMap<String, String>,
    /// Whether it came to its end.
    pub finished: bool,
}

impl Execution {
    /// Keeps it, whole or not at all.
    pub(super) fn keep(&self, state: &Path) -> Result<(), StageError> {
        let folder = folder(state);
        let failed = |action| {
            let path = folder.clone();
            move |source| StageError::Io { action, path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed("make"))?;
        let text = serde_json::to_string_pretty(self).expect("texts and numbers can always be written");
        write_whole(&folder.join(format!("{}.json", self.id)), text.as_bytes()).map_err(failed("write to"))
    }
}

/// The latest execution of this phase of this file that did not come to its end.
pub fn latest_unfinished(state: &Path, file: &str, phase: &str) -> Result<Option<Execution>, StageError> {
    let folder = folder(state);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StageError::Io { action: "list", path: folder, source }),
    };
    let mut found: Option<Execution> = None;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        // What cannot be read is not ours to go on with; what is there of it stays.
        let Some(execution) =
            fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Execution>(&bytes).ok())
        else {
            continue;
        };
        let same = execution.file == file && execution.phase == phase && !execution.finished;
        if same && found.as_ref().is_none_or(|known| known.started_at < execution.started_at) {
            found = Some(execution);
        }
    }
    Ok(found)
}

fn folder(state: &Path) -> PathBuf {
    state.join("stages")
}
