//! STAGES.yml as a file: reading, limits, and its list of problems.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lockkeeper_formats::yaml::MAX_BYTES;
use thiserror::Error;

use super::check;
use super::model::{ChecksOff, Stages};
use super::place::{Place, Source};
use super::problem::{Level, Problem, UnknownKey};
use super::read::{self, Reading};

/// A file that was read, with all of its problems.
#[derive(Debug)]
pub struct File {
    /// Its name, for messages.
    pub name: String,
    /// Its text.
    pub source: Source,
    /// Its content.
    pub stages: Stages,
    /// Its problems, in the order of lines.
    pub problems: Vec<Problem>,
    /// The keys that this program does not know, in the order of lines.
    pub unknown: Vec<UnknownKey>,
}

/// Why a file cannot be read at all.
#[derive(Debug, Error)]
pub enum StagesError {
    /// The system refuses to read it.
    #[error("cannot read `{}`", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is a folder, a device or a pipe.
    #[error("`{}` is not a file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is too large.
    #[error("`{name}` has more than {MAX_BYTES} bytes")]
    TooLarge {
        /// The file.
        name: String,
    },
}

impl StagesError {
    /// What the user can do about it.
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
    /// The file is missing, not a file, not readable, or too large. Problems of its text are not errors: they are in
    /// [`File::problems`].
    pub fn load(path: &Path) -> Result<Self, StagesError> {
        let unreadable = |source| StagesError::Unreadable { path: path.to_owned(), source };
        // Opening a pipe without a writer would block.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(StagesError::NotAFile { path: path.to_owned() });
        }
        let file = fs::File::open(path).map_err(unreadable)?;
        Self::from_reader(&path.display().to_string(), file)
    }

    /// Reads to the end, as the text of a file with this name.
    ///
    /// # Errors
    ///
    /// The text cannot be read, or is too large.
    pub fn from_reader(name: &str, reader: impl Read) -> Result<Self, StagesError> {
        let mut bytes = Vec::new();
        let unreadable = |source| StagesError::Unreadable { path: PathBuf::from(name), source };
        reader.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::parse(name, &bytes)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// The text is too large.
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
        let off = |problem: &Problem| match &stages.validation.off {
            ChecksOff::None => false,
            ChecksOff::Some(codes) => codes.contains(&problem.code),
            ChecksOff::All => true,
        };
        // A problem that prevents a plan is an error, whatever the file says about its check.
        problems.retain(|problem| !off(problem) || prevents_plan(problem));
        for problem in problems.iter_mut().filter(|problem| !prevents_plan(problem)) {
            if stages.validation.only_warn.contains(&problem.code) {
                problem.level = Level::Warning;
            }
        }
        if stages.validation.strict {
            problems.iter_mut().for_each(|problem| problem.level = Level::Error);
        }
        problems.sort_by_key(|problem| (problem.place, problem.level));
        unknown.sort_by_key(|key| key.place);
        Ok(Self { name: name.to_owned(), source, stages, problems, unknown })
    }

    /// Returns the errors: a file with one is neither planned nor run.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.level == Level::Error)
    }

    /// Returns the warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.level == Level::Warning)
    }
}

fn prevents_plan(problem: &Problem) -> bool {
    problem.level == Level::Error && problem.code != check::MORE_THAN_AGENTS
}

fn not_text(bytes: &[u8], valid: usize) -> Problem {
    let before = String::from_utf8_lossy(&bytes[..valid]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    Problem::error("NOT_TEXT", Place { line, column, width: 1 }, "this is not text in UTF-8")
}
