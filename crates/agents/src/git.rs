//! Runs git in one work tree, with the variables of git that the caller's environment names.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use thiserror::Error;

use crate::quote::{cut, one_line};

/// The longest message of git that is passed on, in characters.
const MAX_MESSAGE: usize = 500;

/// Why git did not do what it was asked for.
#[derive(Debug, Error)]
pub enum GitError {
    /// It could not be started.
    #[error("cannot run git")]
    NotStarted(#[source] io::Error),
    /// It failed.
    #[error("`git {command}` failed: {message}")]
    Failed {
        /// The sub-command.
        command: String,
        /// What it wrote to stderr, on one line.
        message: String,
    },
}

/// One work tree.
#[derive(Clone, Debug)]
pub struct Git {
    /// The root of the work tree.
    pub root: PathBuf,
    /// The git folder of this work tree.
    pub folder: PathBuf,
    /// `GIT_DIR`, if the environment named it. It may have been relative to another folder.
    named: bool,
}

impl Git {
    /// Finds the work tree around a folder.
    pub fn find(folder: &Path) -> Result<Self, GitError> {
        let mut git = Command::new("git");
        git.current_dir(folder).args(["rev-parse", "--absolute-git-dir", "--show-toplevel"]);
        let output = git.stdin(Stdio::null()).output().map_err(GitError::NotStarted)?;
        let text = path_text(&successful("rev-parse", output)?.stdout);
        let lines = text.to_str().and_then(|text| text.trim_end_matches('\n').split_once('\n'));
        let Some((git_dir, root)) = lines else {
            let message = "its folders have names that are not text".to_owned();
            return Err(GitError::Failed { command: "rev-parse".to_owned(), message });
        };
        let named = std::env::var_os("GIT_DIR").is_some_and(|value| !value.is_empty());
        Ok(Self { root: root.into(), folder: git_dir.into(), named })
    }

    /// A git command in the root of the work tree, with the common index.
    pub fn command(&self) -> Command {
        let mut git = Command::new("git");
        git.current_dir(&self.root).stdin(Stdio::null());
        // A hook of git may have started this program with another index.
        for variable in ["GIT_INDEX_FILE", "GIT_PREFIX", "GIT_LITERAL_PATHSPECS", "GIT_ICASE_PATHSPECS"] {
            git.env_remove(variable);
        }
        if self.named {
            git.env("GIT_DIR", &self.folder).env("GIT_WORK_TREE", &self.root);
        }
        git
    }

    /// Runs git to its end, with input. Fails if git fails.
    pub fn run(&self, index: Option<&Path>, args: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        let mut git = self.command();
        if let Some(index) = index {
            git.env("GIT_INDEX_FILE", index);
        }
        let output = with_input(git.args(args), input).map_err(GitError::NotStarted)?;
        let command = args.iter().find(|arg| !arg.starts_with('-')).copied().unwrap_or_default();
        Ok(successful(command, output)?.stdout)
    }

    /// Runs git and returns its output as one trimmed line. None if it fails.
    pub fn line(&self, args: &[&str]) -> Option<String> {
        let text = String::from_utf8(self.run(None, args, b"").ok()?).ok()?;
        Some(text.trim_end().to_owned()).filter(|line| !line.is_empty())
    }
}

/// Runs a command with input, and collects its output.
fn with_input(command: &mut Command, input: &[u8]) -> io::Result<Output> {
    if input.is_empty() {
        return command.output();
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    thread::scope(|scope| {
        // A command that fails early does not read its input. Its exit code tells.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    })
}

pub(crate) fn successful(command: &str, output: Output) -> Result<Output, GitError> {
    if output.status.success() {
        return Ok(output);
    }
    let message = cut(&one_line(&String::from_utf8_lossy(&output.stderr)), MAX_MESSAGE);
    Err(GitError::Failed { command: command.to_owned(), message })
}

/// Bytes of git as a path. Names on Linux need not be UTF-8.
pub(crate) fn path_text(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}
