//! Execution log beside the STAGES.yml: JSON Lines with the fields of the documented format, and some more.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use lockkeeper_platform::wall_clock::{WallTime, epoch_seconds};
use serde_json::{Map, Value, json};

use super::StageError;

/// Writer of `logs/parallel_execution.log`.
#[derive(Clone, Debug)]
pub struct ExecutionLog {
    path: PathBuf,
    session: String,
    phase: String,
}

impl ExecutionLog {
    /// The path of the log beside a STAGES.yml.
    pub fn path_beside(stages: &Path) -> PathBuf {
        stages.parent().unwrap_or(Path::new("")).join("logs/parallel_execution.log")
    }

    /// The log for one execution of one phase.
    pub fn of(path: PathBuf, session: &str, phase: &str) -> Self {
        Self { path, session: session.to_owned(), phase: phase.to_owned() }
    }

    /// The id that all lines of one group share: `<group>_<epoch>_<pid>`.
    pub(super) fn execution_id(group: &str) -> String {
        format!("{group}_{}_{}", epoch_seconds(), std::process::id())
    }

    /// Appends one line.
    pub(super) fn write(&self, status: &str, fields: Map<String, Value>) -> Result<(), StageError> {
        let failed = |action| move |source| StageError::Io { action, path: self.path.clone(), source };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(failed("make the folder of"))?;
        }
        let mut line = json!({ "timestamp": WallTime::now().to_string() });
        let object = line.as_object_mut().expect("it is an object");
        object.extend(fields);
        object.entry("phase").or_insert_with(|| json!(self.phase));
        object.insert("status".to_owned(), json!(status));
        object.insert("session".to_owned(), json!(self.session));
        let mut file =
            OpenOptions::new().append(true).create(true).open(&self.path).map_err(failed("open"))?;
        // One write for each line, so lines of several executions never mix.
        file.write_all(format!("{line}\n").as_bytes()).map_err(failed("write to"))
    }
}

/// The fields of a line.
pub(super) fn fields<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
