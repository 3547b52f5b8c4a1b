//! Index of one commit: made now from HEAD, with the paths of the commit as they are in the work tree. Also updates the same
//! paths in the common index after the commit, and nothing else there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::{poll, random, wall_clock};

use super::entry::Entry;
use crate::git::{Git, GitError};

/// How long to wait while another git command has locked the common index.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the lock is looked at where the system does not report changes.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The age in seconds at which the index of a killed commit is removed.
const LEFT_AFTER: i64 = 60 * 60;

/// An index file of its own. It is removed when it is dropped.
pub struct OwnIndex {
    path: PathBuf,
}

impl OwnIndex {
    /// Makes an index with the content of HEAD. It keeps the stat data of the common index, so that git need not read all files again.
    pub(super) fn new(git: &Git, state: &Path, head: Option<&str>) -> Result<Self, GitError> {
        let own = Self::free_name(state)?;
        match (head, copy_with_time(&git.folder.join("index"), &own.path)) {
            (Some(head), Ok(())) => own.run(git, &["read-tree", "--reset", head], b"")?,
            (Some(head), Err(_)) => own.run(git, &["read-tree", head], b"")?,
            (None, _) => own.run(git, &["read-tree", "--empty"], b"")?,
        };
        Ok(own)
    }

    /// Makes a copy of the common index in which these entries are replaced.
    pub(super) fn without(git: &Git, state: &Path, entries: &[Entry]) -> Result<Self, GitError> {
        let own = Self::free_name(state)?;
        copy_with_time(&git.folder.join("index"), &own.path).map_err(GitError::NotStarted)?;
        own.run(git, &["update-index", "-z", "--index-info"], &index_info(entries))?;
        Ok(own)
    }

    fn free_name(state: &Path) -> Result<Self, GitError> {
        remove_leftovers(state);
        let number = random::number().map_err(GitError::NotStarted)?;
        Ok(Self { path: state.join(format!("commit-{number:016x}.index")) })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Updates exactly these paths from the work tree: new, changed and deleted ones.
    ///
    /// It does not use `git add`, which also adds everything below a path: a file may have become a folder with files of others.
    pub(super) fn take(&self, git: &Git, paths: &[&Path]) -> Result<(), GitError> {
        let mut input = Vec::new();
        for path in paths {
            input.extend_from_slice(path.as_os_str().as_bytes());
            input.push(0);
        }
        self.run(git, &["update-index", "--add", "--remove", "--replace", "-z", "--stdin"], &input).map(drop)
    }

    pub(super) fn run(&self, git: &Git, args: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        git.run(Some(&self.path), args, input)
    }
}

impl Drop for OwnIndex {
    fn drop(&mut self) {
        // If the removal fails, a later commit removes the files.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(self.path.with_extension("index.lock"));
    }
}

/// Copies an index with its modification time. Git compares that time with those of files, to find files that changed while the
/// index was written.
fn copy_with_time(from: &Path, to: &Path) -> io::Result<()> {
    let written_at = fs::metadata(from)?.modified()?;
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(written_at)
}

fn remove_leftovers(state: &Path) {
    let Ok(entries) = fs::read_dir(state) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_own = name.as_bytes().starts_with(b"commit-")
            && Path::new(&name)
                .extension()
                .is_some_and(|end| end == OsStr::new("index") || end == OsStr::new("lock"));
        let written = entry.metadata().and_then(|meta| meta.modified()).ok();
        let written = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let written = written.and_then(|at| i64::try_from(at.as_secs()).ok());
        if is_own && written.is_some_and(|at| wall_clock::epoch_seconds() - at > LEFT_AFTER) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Waits until no other git command has the common index locked. False: one has, for longer than anybody waits, such as a `git commit`
/// whose editor is open.
pub(super) fn wait_for_common_index(git: &Git) -> bool {
    let lock = git.folder.join("index.lock");
    if !is_locked(&lock) {
        return true;
    }
    let watch = Changes::watch(&git.folder).unwrap_or_else(|_| Changes::disabled());
    let until = Instant::now() + PATIENCE;
    loop {
        watch.drain();
        if !is_locked(&lock) || Instant::now() >= until {
            return !is_locked(&lock);
        }
        let descriptors: Vec<_> = watch.as_fd().into_iter().collect();
        // If the wait fails, the loop looks again at once, until the time is up.
        let _ = poll::wait(&descriptors, Some(LOOK_AGAIN));
    }
}

/// Sets these paths in the common index to what was committed. Waits if another git command has locked it.
pub(super) fn set_in_common_index(git: &Git, entries: &[Entry]) -> Result<(), GitError> {
    let input = index_info(entries);
    let lock = git.folder.join("index.lock");
    let watch = Changes::watch(&git.folder).unwrap_or_else(|_| Changes::disabled());
    let until = Instant::now() + PATIENCE;
    loop {
        watch.drain();
        match git.run(None, &["update-index", "-z", "--index-info"], &input) {
            Err(GitError::Failed { .. }) if Instant::now() < until && is_locked(&lock) => {}
            done => return done.map(drop),
        }
        if is_locked(&lock) {
            let descriptors: Vec<_> = watch.as_fd().into_iter().collect();
            // If the wait fails, the loop tries again at once, until the time is up.
            let _ = poll::wait(&descriptors, Some(LOOK_AGAIN));
        }
    }
}

/// Entries as `update-index --index-info` reads them.
fn index_info(entries: &[Entry]) -> Vec<u8> {
    let mut input = Vec::new();
    for Entry { mode, object, path } in entries {
        input.extend_from_slice(format!("{mode} {object}\t").as_bytes());
        input.extend_from_slice(path.as_os_str().as_bytes());
        input.push(0);
    }
    input
}

fn is_locked(lock: &Path) -> bool {
    fs::symlink_metadata(lock).map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
}
