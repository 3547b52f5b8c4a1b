//! What is wrong with a file, or worth a second look, and where.

use std::fmt;

use super::place::Place;

/// How much a problem weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weight {
    /// The file cannot be run as it is.
    Error,
    /// It can be run, but hardly as it was meant.
    Warning,
}

impl Weight {
    /// The name used in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// One thing that is wrong, where it stands, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How much it weighs.
    pub weight: Weight,
    /// A stable name for programs.
    pub code: &'static str,
    /// Where it stands.
    pub place: Place,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
}

impl Problem {
    pub(super) fn error(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { weight: Weight::Error, code, place, message: message.into(), hint: None }
    }

    pub(super) fn warning(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { weight: Weight::Warning, ..Self::error(code, place, message) }
    }

    #[must_use]
    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// A key that means nothing to this program. It is kept, and told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// Where it lies in the tree, such as `parallel_groups.P3[0].colour`.
    pub path: String,
    /// Where it stands.
    pub place: Place,
    /// Its value in short.
    pub value: String,
}
