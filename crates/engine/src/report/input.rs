//! Reports about bad input: words, settings and folders that a user gave.

use lockkeeper_core::id::IdError;
use lockkeeper_core::pattern::PatternError;
use lockkeeper_core::record::PriorityError;
use lockkeeper_core::request::NotARequestStatus;
use lockkeeper_core::run::NotAStatus;
use lockkeeper_core::size::SizeError;
use lockkeeper_core::time::SpanError;
use lockkeeper_formats::group::GroupIdError;
use lockkeeper_formats::status::StatusError;
use lockkeeper_platform::holder_process::HolderProcessError;

use super::{Exit, Report};
use crate::history::HistoryError;
use crate::location::{LocationError, OutsideError};
use crate::runs::template::TemplateError;

/// Reports errors of parsers as bad input, with the hint of the error.
macro_rules! bad_input {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Report {
            fn from(error: $error) -> Self {
                Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint(error.hint())
            }
        }
    )+};
}

bad_input!(
    HolderProcessError,
    GroupIdError,
    IdError,
    NotARequestStatus,
    NotAStatus,
    SizeError,
    SpanError,
    TemplateError,
);

impl From<PatternError> for Report {
    fn from(error: PatternError) -> Self {
        Self::of(Exit::Usage, "BAD_PATTERN", &error).with_hint(error.hint())
    }
}

impl From<PriorityError> for Report {
    fn from(error: PriorityError) -> Self {
        Self::of(Exit::Usage, "BAD_INPUT", &error).with_hint("0 is the default, more is sooner")
    }
}

impl From<OutsideError> for Report {
    fn from(error: OutsideError) -> Self {
        Self::of(Exit::Usage, "BAD_PATTERN", &error).with_hint("give a path inside of the repository")
    }
}

impl From<&LocationError> for Report {
    fn from(error: &LocationError) -> Self {
        let (exit, code) = match error {
            LocationError::Variable { .. } => (Exit::Usage, "BAD_INPUT"),
            LocationError::Unreadable { .. }
            | LocationError::NotVisible { .. }
            | LocationError::NotGit(_) => (Exit::Unreachable, "REPOSITORY_UNREADABLE"),
        };
        Self::of(exit, code, error).with_hint(error.hint())
    }
}

impl From<StatusError> for Report {
    fn from(error: StatusError) -> Self {
        let (exit, code) = match error {
            StatusError::Line(_) => (Exit::Usage, "BAD_INPUT"),
            StatusError::NotALog { .. } | StatusError::PlantedFolder { .. } => {
                (Exit::Failed, "STATUS_NOT_A_LOG")
            }
            StatusError::Io { .. } | StatusError::Torn { .. } => (Exit::Failed, "STATUS_FAILED"),
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}

impl From<HistoryError> for Report {
    fn from(error: HistoryError) -> Self {
        let (exit, code) = match error {
            HistoryError::NotARepository { .. } => (Exit::Usage, "NOT_A_REPOSITORY"),
            HistoryError::NoGit(_) => (Exit::Failed, "GIT_MISSING"),
            HistoryError::Git { .. } | HistoryError::Read(_) | HistoryError::Unexpected { .. } => {
                (Exit::Failed, "GIT_FAILED")
            }
        };
        Self::of(exit, code, &error).with_hint(error.hint())
    }
}
