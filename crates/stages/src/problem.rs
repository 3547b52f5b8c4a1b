//! Diagnostics: errors and warnings about a file, with their positions.

use std::fmt;

use lockkeeper_formats::yaml::YamlError;

use super::place::Place;

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The file cannot be run.
    Error,
    /// The file can be run, but probably does not do what its author meant.
    Warning,
}

impl Level {
    /// The name used in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// One error or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How serious it is.
    pub level: Level,
    /// A stable code for programs.
    pub code: &'static str,
    /// Where it is in the file.
    pub place: Place,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What the user can do about it.
    pub hint: Option<String>,
}

impl Problem {
    pub(super) fn error(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { level: Level::Error, code, place, message: message.into(), hint: None }
    }

    pub(super) fn warning(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::error(code, place, message) }
    }

    #[must_use]
    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<YamlError> for Problem {
    fn from(error: YamlError) -> Self {
        let YamlError { code, place, message, hint } = error;
        Self { level: Level::Error, code, place, message, hint }
    }
}

/// A key that this program does not know. It is kept and listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// Its path in the tree, such as `parallel_groups.P3[0].colour`.
    pub path: String,
    /// Where it is in the file.
    pub place: Place,
    /// A short form of its value.
    pub value: String,
}
