//! A file as it lies on disk, and all that can be said about it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::check;
use super::model::Stages;
use super::place::{Place, Source};
use super::problem::{Level, Problem, UnknownKey};
use super::read::{self, Reading};
use lockkeeper_formats::yaml::MAX_BYTES;

/// A file that was read, whatever is wrong with it.
#[derive(Debug)]
pub struct File {
    /// What it is called, for messages.
    pub name: String,
    /// Its text.
    pub source: Source,
    /// What it says.
    pub stages: Stages,
    /// What is wrong with it, in the order of its lines.
    pub problems: Vec<Problem>,
    /// The keys that mean nothing here, in the order of its lines.
    pub unknown: Vec<UnknownKey>,
}

/// Why a file cannot be read at all.
#[derive(Debug, Error)]
pub enum StagesError {
    /// The system says no.
    #[error("cannot read `{}`", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a folder, a device or the like.
    #[error("`{}` is not a file", .path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// It is larger than any plan.
    #[error("`{name}` has more than {MAX_BYTES} bytes")]
    TooLarge {
        /// The file.
        name: String,
    },
}

impl StagesError {
    /// The way out.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::NotAFile { .. } => {
                "name a STAGES.yml that you may read, or - for stdin"
            }
            Self::TooLarge { .. } => "is it the right file? split it by phases if it is",
        }
    }
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It is not there, not a file, not to be read, or too large. What is wrong with its text is no error here, but
    /// listed in [`File::problems`].
    pub fn load(path: &Path) -> Result<Self, StagesError> {
        let unreadable = |source| StagesError::Unreadable { path: path.to_owned(), source };
        // A pipe that nobody writes to would be waited for.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(StagesError::NotAFile { path: path.to_owned() });
        }
        let file = fs::File::open(path).map_err(unreadable)?;
        Self::from_reader(&path.display().to_string(), file)
    }

    /// Reads all that comes, as the text of a file of this name.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is too large.
    pub fn from_reader(name: &str, reader: impl Read) -> Result<Self, StagesError> {
        let mut bytes = Vec::new();
        let unreadable = |source| StagesError::Unreadable { path: PathBuf::from(name), source };
        reader.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(name, &bytes)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// It is too large.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, StagesError> {
        if bytes.len() > MAX_BYTES {
            return Err(StagesError::TooLarge { name: name.to_owned() });
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let (source, reading) = match std::str::from_utf8(bytes) {
            Ok(text) => {
                let source = Source::new(text.to_owned());
                let reading = read::read(&source);
                (source, reading)
            }
            Err(error) => {
                let source = Source::new(String::from_utf8_lossy(bytes).into_owned());
                (
                    source,
                    Reading { problems: vec![not_text(bytes, error.valid_up_to())], ..Reading::default() },
                )
            }
        };
        let Reading { stages, mut problems, mut unknown } = reading;
        problems.extend(check::check(&stages));
        if stages.validation.strict {
            problems.iter_mut().for_each(|problem| problem.level = Level::Error);
        }
        problems.sort_by_key(|problem| (problem.place, problem.level));
        unknown.sort_by_key(|key| key.place);
        Ok(Self { name: name.to_owned(), source, stages, problems, unknown })
    }

    /// What has to be mended first.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.level == Level::Error)
    }

    /// What keeps the file from being planned.
    pub fn obstacles(&self) -> impl Iterator<Item = &Problem> {
        self.errors().filter(|problem| problem.code != check::MORE_THAN_AGENTS)
    }
}

fn not_text(bytes: &[u8], valid: usize) -> Problem {
    let before = String::from_utf8_lossy(&bytes[..valid]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    Problem::error("NOT_TEXT", Place { line, column, width: 1 }, "this is not text in UTF-8")
}
