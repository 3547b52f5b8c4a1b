//! Git as a subprocess: short questions, and one long answer that is read as it comes.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::JoinHandle;

use super::error::HistoryError;

/// As much of git's complaints as is kept.
const COMPLAINTS: u64 = 4096;

/// Git, asked about the repository that a folder is in.
pub(super) struct Git {
    folder: PathBuf,
}

impl Git {
    /// Finds the repository.
    pub(super) fn at(folder: &Path) -> Result<Self, HistoryError> {
        let git = Self { folder: folder.to_owned() };
        let output = git.output(&["rev-parse", "--git-dir"])?;
        let said = complaint(&output.stderr);
        match (output.status.success(), said.contains("not a git repository")) {
            (true, _) => Ok(git),
            (false, true) => Err(HistoryError::NotARepository { folder: folder.to_owned() }),
            (false, false) => Err(HistoryError::Git { action: "open the repository", said }),
        }
    }

    /// Whether the answer to a question is yes: an exit code of 0.
    pub(super) fn agrees(&self, args: &[&str]) -> Result<bool, HistoryError> {
        Ok(self.output(args)?.status.success())
    }

    /// A short answer as git prints it.
    pub(super) fn answer(&self, action: &'static str, args: &[&str]) -> Result<Vec<u8>, HistoryError> {
        let output = self.output(args)?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(HistoryError::Git { action, said: complaint(&output.stderr) })
        }
    }

    /// Starts an answer of any length.
    pub(super) fn stream(&self, action: &'static str, args: &[&str]) -> Result<Stream, HistoryError> {
        let mut child = self
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(HistoryError::NoGit)?;
        let out = child.stdout.take().expect("it was asked for above, and is taken once");
        let stderr = child.stderr.take().expect("it was asked for above, and is taken once");
        // Read on the side: git would stop at a full pipe.
        let complaints = std::thread::spawn(move || read_complaints(stderr));
        Ok(Stream {
            action,
            child,
            out: BufReader::with_capacity(1 << 16, out),
            complaints: Some(complaints),
        })
    }

    fn output(&self, args: &[&str]) -> Result<Output, HistoryError> {
        self.command(args).output().map_err(HistoryError::NoGit)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.args(["--no-pager", "--no-optional-locks"]).args(args).current_dir(&self.folder);
        // Its messages are read, and looking at the past must neither ask for a password nor use the network.
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_NO_LAZY_FETCH", "1");
        command.stdin(Stdio::null());
        command
    }
}

/// A long answer of git; dropping it ends git.
pub(super) struct Stream {
    action: &'static str,
    child: Child,
    pub(super) out: BufReader<ChildStdout>,
    complaints: Option<JoinHandle<Vec<u8>>>,
}

impl Stream {
    /// Waits for the end of git, which has said everything.
    pub(super) fn finish(mut self) -> Result<(), HistoryError> {
        let status = self.child.wait().map_err(HistoryError::Read)?;
        let said = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        if status.success() {
            Ok(())
        } else {
            Err(HistoryError::Git { action: self.action, said: complaint(&said) })
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // It has ended already unless reading failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_complaints(mut stderr: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    // Complaints are for people: what cannot be read of them is left out.
    let _ = stderr.by_ref().take(COMPLAINTS).read_to_end(&mut kept);
    let _ = io::copy(&mut stderr, &mut io::sink());
    kept
}

/// Git's complaint in one line.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "it does not say why".to_owned() } else { lines.join(" ") }
}
