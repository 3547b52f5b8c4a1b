//! Reports about a STAGES.yml with errors, and about executions that failed.

use lockkeeper_stages::json::refusal_to_json;
use lockkeeper_stages::{File, SelectError, StagesError};

use super::{Exit, Report};
use crate::stages::StageError;

impl Report {
    /// Reports the errors that keep a STAGES.yml from being planned. `name` is the name of the file for the user.
    pub fn unsound(file: &File, name: &str) -> Option<Self> {
        let first = file.errors().next()?;
        let count = file.errors().count();
        let errors = if count == 1 { "an error".to_owned() } else { format!("{count} errors") };
        let report = Self::new(Exit::Usage, "BAD_STAGES", format!("{name} has {errors}"))
            .with_hint("`lockkeeper stages check FILE` lists all that is wrong")
            .with_context("file", name)
            .with_context("line", first.place.line)
            .with_context("column", first.place.column)
            .with_context("problems", refusal_to_json(file));
        Some(report)
    }
}

impl From<SelectError> for Report {
    fn from(error: SelectError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
    }
}

impl From<StageError> for Report {
    fn from(error: StageError) -> Self {
        let error = match error {
            StageError::Refused(error) => return error.into(),
            StageError::Run(error) => return error.into(),
            StageError::Conflicts(error) => return error.into(),
            StageError::GroupLock(error) => return error.into(),
            error => error,
        };
        let (exit, code) = match &error {
            StageError::Abort(_) => (Exit::Refused, "CONFLICT_ABORT"),
            StageError::QueueFull { .. } => (Exit::Refused, "QUEUE_FULL"),
            StageError::NoCommand(_) | StageError::GroupName { .. } | StageError::GroupLockName { .. } => {
                (Exit::Usage, "BAD_STAGES")
            }
            StageError::NothingToResume { .. } => (Exit::Usage, "NOTHING_TO_RESUME"),
            StageError::Changed { .. } => (Exit::Usage, "STAGES_CHANGED"),
            StageError::AlreadyRunning { .. } => (Exit::Refused, "EXECUTION_RUNS"),
            StageError::NotOurs(_) => (Exit::Refused, "DUPLICATE"),
            StageError::Io { .. } => (Exit::Failed, "STAGES_FAILED"),
            StageError::Refused(_)
            | StageError::Run(_)
            | StageError::Conflicts(_)
            | StageError::GroupLock(_) => (Exit::Failed, "STAGES_FAILED"),
        };
        let hint = error.hint();
        Self::of(exit, code, &error).with_hint(hint)
    }
}

impl From<StagesError> for Report {
    fn from(error: StagesError) -> Self {
        let report = match error {
            StagesError::Unreadable { .. } | StagesError::NotAFile { .. } => {
                Self::of(Exit::Failed, "UNREADABLE", &error).explained_as("FILE_UNREADABLE")
            }
            StagesError::TooLarge { .. } => Self::of(Exit::Usage, "BAD_STAGES", &error),
        };
        report.with_hint(error.hint())
    }
}
