//! Keywords of conflict rules: severities, actions, and the strategy of each action.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A rule uses a keyword that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{}` is not {what}", word.escape_debug())]
pub struct UnknownKeyword {
    what: &'static str,
    word: String,
    known: String,
}

impl UnknownKeyword {
    fn new(what: &'static str, word: &str, known: &[&str]) -> Self {
        Self { what, word: word.to_owned(), known: known.join(", ") }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        format!("write one of {}", self.known)
    }
}

/// How bad a conflict is; the worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Minor,
    /// Work may have to be done again.
    Major,
    /// Work would be lost.
    Fatal,
}

impl Severity {
    /// Every severity, the worst first.
    pub const ALL: [Self; 3] = [Self::Fatal, Self::Major, Self::Minor];

    /// Returns the name used in files and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Major => "MAJOR",
            Self::Minor => "MINOR",
        }
    }
}

/// What a rule does about two groups that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The groups of the phase run one after the other.
    DowngradeToSerial,
    /// The two groups run under one lock.
    MutexLock,
    /// The two groups run in the order of the file.
    QueueExecution,
    /// The two groups run one after the other, as for git operations; the others do not wait.
    SerializeOperations,
    /// Nothing runs.
    Abort,
}

impl Action {
    /// Every action, in the order of the format.
    pub const ALL: [Self; 5] = [
        Self::DowngradeToSerial,
        Self::MutexLock,
        Self::QueueExecution,
        Self::SerializeOperations,
        Self::Abort,
    ];

    /// Returns the name used in files and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DowngradeToSerial => "downgrade_to_serial",
            Self::MutexLock => "mutex_lock",
            Self::QueueExecution => "queue_execution",
            Self::SerializeOperations => "serialize_operations",
            Self::Abort => "abort",
        }
    }

    /// Returns the strategy that replaces parallel execution.
    pub const fn strategy(self) -> Strategy {
        match self {
            Self::Abort => Strategy::Abort,
            Self::DowngradeToSerial | Self::SerializeOperations => Strategy::Serial,
            Self::MutexLock => Strategy::Mutex,
            Self::QueueExecution => Strategy::Queue,
        }
    }
}

/// What replaces parallel execution; the strictest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// Groups that conflict run in the order of the file.
    Queue,
    /// Groups that conflict exclude each other.
    Mutex,
    /// All groups run one after the other.
    Serial,
    /// Nothing runs.
    Abort,
}

impl Strategy {
    /// Returns the name used in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "QUEUE",
            Self::Mutex => "MUTEX",
            Self::Serial => "SERIAL",
            Self::Abort => "ABORT",
        }
    }
}

impl FromStr for Severity {
    type Err = UnknownKeyword;

    fn from_str(word: &str) -> Result<Self, UnknownKeyword> {
        Self::ALL
            .into_iter()
            .find(|severity| severity.as_str() == word)
            .ok_or_else(|| UnknownKeyword::new("a severity", word, &Self::ALL.map(Self::as_str)))
    }
}

impl FromStr for Action {
    type Err = UnknownKeyword;

    fn from_str(word: &str) -> Result<Self, UnknownKeyword> {
        Self::ALL
            .into_iter()
            .find(|action| action.as_str() == word)
            .ok_or_else(|| UnknownKeyword::new("an action", word, &Self::ALL.map(Self::as_str)))
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Display for Action {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}
