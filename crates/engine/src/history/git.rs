//! git subprocesses: commands with short output, and one stream of any length.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::JoinHandle;

use super::error::HistoryError;

/// How much of git's stderr is kept.
const MAX_STDERR: u64 = 4096;

/// Runs git in a folder of a repository.
pub(super) struct Git {
    folder: PathBuf,
}

impl Git {
    /// Checks that the folder is in a repository.
    pub(super) fn at(folder: &Path) -> Result<Self, HistoryError> {
        let git = Self { folder: folder.to_owned() };
        let output = git.output(&["rev-parse", "--git-dir"])?;
        let said = one_line(&output.stderr);
        match (output.status.success(), said.contains("not a git repository")) {
            (true, _) => Ok(git),
            (false, true) => Err(HistoryError::NotARepository { folder: folder.to_owned() }),
            (false, false) => Err(HistoryError::Git { action: "open the repository", said }),
        }
    }

    /// Whether a command exits with 0.
    pub(super) fn succeeds(&self, args: &[&str]) -> Result<bool, HistoryError> {
        Ok(self.output(args)?.status.success())
    }

    /// The output of a command.
    pub(super) fn stdout_of(&self, action: &'static str, args: &[&str]) -> Result<Vec<u8>, HistoryError> {
        let output = self.output(args)?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(HistoryError::Git { action, said: one_line(&output.stderr) })
        }
    }

    /// Starts a command with output of any length.
    pub(super) fn stream(&self, action: &'static str, args: &[&str]) -> Result<Stream, HistoryError> {
        let mut child = self
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(HistoryError::NoGit)?;
        let out = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        // A thread reads stderr, so that git does not block on a full pipe.
        let stderr = std::thread::spawn(move || read_start(stderr));
        Ok(Stream { action, child, out: BufReader::with_capacity(1 << 16, out), stderr: Some(stderr) })
    }

    fn output(&self, args: &[&str]) -> Result<Output, HistoryError> {
        self.command(args).output().map_err(HistoryError::NoGit)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.args(["--no-pager", "--no-optional-locks"]).args(args).current_dir(&self.folder);
        // Messages in English, because they are parsed. No password prompt and no network access.
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_NO_LAZY_FETCH", "1");
        command.stdin(Stdio::null());
        command
    }
}

/// The output of a running git command. Dropping it ends git.
pub(super) struct Stream {
    action: &'static str,
    child: Child,
    pub(super) out: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Stream {
    /// Waits for the end of git, after all output was read.
    pub(super) fn finish(mut self) -> Result<(), HistoryError> {
        let status = self.child.wait().map_err(HistoryError::Read)?;
        let said = self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        if status.success() {
            Ok(())
        } else {
            Err(HistoryError::Git { action: self.action, said: one_line(&said) })
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // git still runs only if reading its output failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads all of stderr, and keeps its start.
fn read_start(mut stderr: impl Read) -> Vec<u8> {
    let mut start = Vec::new();
    // The text is only for an error message, so a read error is ignored.
    let _ = stderr.by_ref().take(MAX_STDERR).read_to_end(&mut start);
    let _ = io::copy(&mut stderr, &mut io::sink());
    start
}

/// An error message of git in one line.
fn one_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "it does not say why".to_owned() } else { lines.join(" ") }
}
