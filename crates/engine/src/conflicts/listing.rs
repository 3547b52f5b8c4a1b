//! Paths of a repository, listed by git: tracked files, and new files that git does not ignore.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

use super::error::ConflictsError;

/// How much of git's stderr is kept.
const MAX_STDERR: u64 = 4096;

/// Iterator over the output of `git ls-files`. A path may have any bytes but NUL.
#[derive(Debug)]
pub struct Listing {
    folder: PathBuf,
    git: Child,
    paths: BufReader<ChildStdout>,
    /// Reads stderr at the same time, so that git does not block on a full pipe.
    stderr: Option<JoinHandle<Vec<u8>>>,
    /// The previous path. git prints a path with merge conflicts several times in a row.
    last: Vec<u8>,
}

impl Listing {
    /// Starts git to list the paths below a folder.
    ///
    /// # Errors
    ///
    /// git cannot be started.
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
        let paths = git.stdout.take().expect("stdout is a pipe");
        let stderr = git.stderr.take().expect("stderr is a pipe");
        Ok(Self {
            folder: folder.to_owned(),
            git,
            paths: BufReader::new(paths),
            stderr: Some(std::thread::spawn(move || read_start(stderr))),
            last: Vec::new(),
        })
    }

    /// Waits for git. Fails if git failed.
    fn finish(&mut self) -> Result<(), ConflictsError> {
        let said = self.stderr.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
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
    /// A path. At the end an error, if the folder is in no repository or git failed.
    type Item = Result<Vec<u8>, ConflictsError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut path = Vec::new();
            if let Err(error) = self.paths.read_until(0, &mut path) {
                return Some(Err(ConflictsError::io("read the paths of", &self.folder)(error)));
            }
            if path.pop().is_none() {
                return self.finish().err().map(Err);
            }
            if path != self.last {
                self.last.clone_from(&path);
                return Some(Ok(path));
            }
        }
    }
}

/// Reads all of stderr, and keeps its start.
fn read_start(mut stderr: ChildStderr) -> Vec<u8> {
    let mut start = Vec::new();
    // The text is only for an error message, so a read error is ignored.
    let _ = stderr.by_ref().take(MAX_STDERR).read_to_end(&mut start);
    let _ = io::copy(&mut stderr, &mut io::sink());
    start
}

impl Drop for Listing {
    fn drop(&mut self) {
        // The reader may have stopped early. No git process may be left behind.
        let _ = self.git.kill();
        let _ = self.git.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn git(folder: &Path, args: &[&str]) {
        let done = Command::new("git").arg("-C").arg(folder).args(args).status().unwrap();
        assert!(done.success(), "{args:?}");
    }

    #[test]
    fn names_of_any_bytes_are_listed_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q"]);
        let names: [&[u8]; 4] = [b"\xff\xfe", b"a\nb", b"\"quoted\"", "日本".as_bytes()];
        let write = |name: &[u8]| fs::write(folder.path().join(OsStr::from_bytes(name)), "");
        // Some file systems take only names in UTF-8.
        let mut expected: Vec<Vec<u8>> =
            names.into_iter().filter(|name| write(name).is_ok()).map(<[u8]>::to_vec).collect();
        assert!(expected.len() >= 3);
        git(folder.path(), &["add", "日本"]);
        let mut listed: Vec<Vec<u8>> = Listing::of(folder.path()).unwrap().collect::<Result<_, _>>().unwrap();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
    }

    #[test]
    fn a_folder_without_a_repository_is_refused_with_what_git_says() {
        let folder = tempfile::tempdir().unwrap();
        let error = Listing::of(folder.path()).unwrap().next().unwrap().unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("not a git repository"), "{error}");
    }

    #[test]
    fn a_reader_that_has_seen_enough_leaves_no_process_behind() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q"]);
        // More than a pipe holds, so that git is still writing.
        for number in 0..1000 {
            fs::write(folder.path().join(format!("{number:0>200}")), "").unwrap();
        }
        let mut listing = Listing::of(folder.path()).unwrap();
        assert!(listing.next().unwrap().is_ok());
        let git = rustix::process::Pid::from_child(&listing.git);
        drop(listing);
        assert_eq!(
            rustix::process::test_kill_process(git),
            Err(rustix::io::Errno::SRCH),
            "it was waited for"
        );
    }
}
