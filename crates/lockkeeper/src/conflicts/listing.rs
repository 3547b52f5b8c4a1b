//! The paths that a repository has: those that git tracks, and new ones that it does not ignore.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use super::error::ConflictsError;

/// How much of what git complains about is passed on.
const MAX_SAID: u64 = 4096;

/// A list that git is writing, from the root of the repository. A path may have any bytes but NUL.
#[derive(Debug)]
pub struct Listing {
    folder: PathBuf,
    git: Child,
    paths: BufReader<ChildStdout>,
    /// Read at the same time: git would wait for somebody to hear many of them.
    complaints: Option<JoinHandle<Vec<u8>>>,
    /// A path that is both in conflict and tracked comes several times, in a row.
    last: Vec<u8>,
}

impl Listing {
    /// Asks git for the paths below a folder.
    ///
    /// # Errors
    ///
    /// There is no git.
    pub fn of(folder: &Path) -> Result<Self, ConflictsError> {
        let mut git = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(ConflictsError::NoGit)?;
        let paths = git.stdout.take().expect("the output was asked for as a pipe");
        let complaints = git.stderr.take().expect("the complaints were asked for as a pipe");
        Ok(Self {
            folder: folder.to_owned(),
            git,
            paths: BufReader::new(paths),
            complaints: Some(std::thread::spawn(move || first_words(complaints))),
            last: Vec::new(),
        })
    }

    /// Hears whether git had no more to say, or failed.
    fn end(&mut self) -> Result<(), ConflictsError> {
        let said = self.complaints.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        let ended = self.git.wait().map_err(ConflictsError::io("read the paths of", &self.folder))?;
        if ended.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        let said = said.lines().next().unwrap_or("it does not say why").trim_start_matches("fatal: ");
        Err(ConflictsError::Git { folder: self.folder.clone(), said: said.to_owned() })
    }
}

impl Iterator for Listing {
    /// A path; or, at the end, that the folder is in no repository, or that git failed in the middle.
    type Item = Result<Vec<u8>, ConflictsError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut path = Vec::new();
            if let Err(error) = self.paths.read_until(0, &mut path) {
                return Some(Err(ConflictsError::io("read the paths of", &self.folder)(error)));
            }
            if path.pop().is_none() {
                return self.end().err().map(Err);
            }
            if path != self.last {
                self.last.clone_from(&path);
                return Some(Ok(path));
            }
        }
    }
}

/// Reads all that is said, and keeps its beginning.
fn first_words(mut complaints: ChildStderr) -> Vec<u8> {
    let mut said = Vec::new();
    // What cannot be read is not said.
    let _ = complaints.by_ref().take(MAX_SAID).read_to_end(&mut said);
    let _ = io::copy(&mut complaints, &mut io::sink());
    said
}

impl Drop for Listing {
    fn drop(&mut self) {
        // Without a reader git would wait or die of the closed pipe; either way nothing of it is left.
        let _ = self.git.kill();
        let _ = self.git.wait();
    }
}
