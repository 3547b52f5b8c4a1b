//! Errors in settings.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::keys::KNOWN;
use crate::report::{Exit, Report};

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read the settings in {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is not a regular file, or it is too large.
    #[error("{} is not a file of settings", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
    },
    /// The file is not valid TOML.
    #[error("{} is not valid TOML: line {line}: {what}", path.display())]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The error.
        what: String,
    },
    /// A key that does not exist.
    #[error("{} has an unknown setting `{key}`", path.display())]
    UnknownKey {
        /// Which file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A value is not valid.
    #[error("the setting `{key}` from {origin} cannot be used: {reason}")]
    Value {
        /// The key.
        key: &'static str,
        /// Where it comes from.
        origin: String,
        /// What is wrong.
        reason: String,
    },
}

impl ConfigError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::UnknownKey { .. } => {
                let keys: Vec<&str> = KNOWN.iter().map(|known| known.key).collect();
                format!("settings are: {}", keys.join(", "))
            }
            Self::Value { .. } => "`lockkeeper config` shows every setting with an example".to_owned(),
            Self::Unreadable { path, .. } | Self::NotAFile { path } | Self::Syntax { path, .. } => {
                format!("correct {} or move it away", path.display())
            }
        }
    }
}

impl From<ConfigError> for Report {
    fn from(error: ConfigError) -> Self {
        Self::of(Exit::Usage, "BAD_SETTING", &error).with_hint(error.hint())
    }
}
