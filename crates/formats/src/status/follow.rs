//! Follow mode: returns each line once, as it is appended, across rotation, truncation and deletion.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::poll::{self, Ready};

use super::error::StatusError;
use super::files::{Identity, open_all, path_of};
use super::line::StatusLine;
use super::line_splitter::{Found, Splitter};

/// How often to poll without change notification.
const POLL: Duration = Duration::from_millis(250);
/// How often to poll with change notification: a folder may be replaced, and a network file system sends no events.
const POLL_ANYWAY: Duration = Duration::from_secs(2);
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// The most files that were moved out of the folder and are still read: programs that have them open may go on writing.
const MAX_STRAYS: usize = 4;

/// The lines of a log as they are appended.
///
/// A file is identified by its inode, not by its name, and read on from the last offset. If a program copies the log and
/// truncates it, instead of renaming it, its lines appear twice.
#[derive(Debug)]
pub struct Follow {
    folder: PathBuf,
    path: PathBuf,
    /// Oldest first.
    tails: Vec<Tail>,
    ready: VecDeque<StatusLine>,
    bad_lines: u64,
    buffer: Vec<u8>,
    watch: Option<(Identity, Changes)>,
}

/// A file that is read while it grows.
#[derive(Debug)]
struct Tail {
    identity: Identity,
    file: File,
    offset: u64,
    splitter: Splitter,
}

impl Follow {
    pub(super) fn from_start(folder: &Path) -> Result<Self, StatusError> {
        let mut follow = Self::new(folder);
        follow.open_new_files()?;
        Ok(follow)
    }

    pub(super) fn from_now(folder: &Path) -> Result<Self, StatusError> {
        let mut follow = Self::from_start(folder)?;
        for tail in &mut follow.tails {
            tail.skip_to_end().map_err(StatusError::io("read", &follow.path))?;
        }
        Ok(follow)
    }

    fn new(folder: &Path) -> Self {
        let (ready, buffer) = (VecDeque::new(), vec![0; CHUNK]);
        let (folder, path) = (folder.to_owned(), path_of(folder, 0));
        let mut follow = Self { folder, path, tails: Vec::new(), ready, bad_lines: 0, buffer, watch: None };
        follow.watch_folder();
        follow
    }

    /// Waits for the next line; `None` when the limit passes.
    pub fn next(&mut self, limit: Option<Duration>) -> Result<Option<StatusLine>, StatusError> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if let Some(line) = self.take()? {
                return Ok(Some(line));
            }
            let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                return Ok(None);
            }
            self.wait(&[], None, remaining)?;
        }
    }

    /// Returns the next line without waiting.
    pub fn take(&mut self) -> Result<Option<StatusLine>, StatusError> {
        while self.ready.is_empty() {
            if !self.read_on()? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Sleeps until there may be a line, one of `others` is readable, nobody reads `output` any more, or the limit passes.
    /// Returns which descriptors are ready. `output` has the index after the last.
    pub fn wait(
        &mut self,
        others: &[BorrowedFd<'_>],
        output: Option<BorrowedFd<'_>>,
        limit: Option<Duration>,
    ) -> Result<Ready, StatusError> {
        if self.watch_folder() {
            // There are no events for changes before the watch started, so the caller reads once more.
            return Ok(Ready::none());
        }
        let events = self.watch.as_ref().and_then(|(_, changes)| changes.as_fd());
        let poll = if events.is_some() { POLL_ANYWAY } else { POLL };
        let limit = limit.map_or(poll, |limit| limit.min(poll));
        let mut readable = others.to_vec();
        readable.extend(events);
        let ready = poll::wait_or_hang_up(&readable, output.as_slice(), Some(limit));
        let mut ready = ready.map_err(StatusError::io("wait for", &self.path))?;
        if events.is_some()
            && ready.forget(others.len())
            && let Some((_, changes)) = &self.watch
        {
            changes.drain();
        }
        Ok(ready)
    }

    /// Returns how many lines were skipped because they are not status lines.
    pub const fn bad_lines(&self) -> u64 {
        self.bad_lines
    }

    /// Reads one chunk of the oldest file that has more. Returns false when none has.
    fn read_on(&mut self) -> Result<bool, StatusError> {
        for tail in &mut self.tails {
            let read = tail.read(&mut self.buffer).map_err(StatusError::io("read", &self.path))?;
            if read > 0 {
                tail.splitter.feed(&self.buffer[..read], |found| match found {
                    Found::Line(line) => self.ready.push_back(*line),
                    Found::Garbage => self.bad_lines += 1,
                });
                return Ok(true);
            }
        }
        let current = fs::symlink_metadata(&self.path).ok().map(|metadata| Identity::of(&metadata));
        match current {
            Some(current) if self.tails.iter().all(|tail| tail.identity != current) => self.open_new_files(),
            Some(_) | None => Ok(false),
        }
    }

    /// Opens the files that are not open yet. Returns whether there were any.
    fn open_new_files(&mut self) -> Result<bool, StatusError> {
        let files = open_all(&self.folder)?;
        let listed: Vec<Identity> = files.iter().map(|(identity, _)| *identity).collect();
        self.close_strays(&listed);
        let known = self.tails.len();
        for (identity, file) in files {
            if self.tails.iter().all(|tail| tail.identity != identity) {
                self.tails.push(Tail { identity, file, offset: 0, splitter: Splitter::default() });
            }
        }
        Ok(self.tails.len() > known)
    }

    /// Closes files that were deleted, and all but a few of those that were moved elsewhere; they were read to their end.
    /// Files that are still in the folder stay open, or they would be read again as new files.
    fn close_strays(&mut self, listed: &[Identity]) {
        let mut strays = self.tails.iter().filter(|tail| !listed.contains(&tail.identity)).count();
        self.tails.retain(|tail| {
            if listed.contains(&tail.identity) {
                return true;
            }
            let deleted = tail.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
            let closed = deleted || strays > MAX_STRAYS;
            strays -= 1;
            !closed
        });
    }

    /// Watches the folder if it is not watched yet, or was replaced. Returns whether a new watch was started.
    fn watch_folder(&mut self) -> bool {
        let folder = fs::metadata(&self.folder).ok().map(|metadata| Identity::of(&metadata));
        if folder == self.watch.as_ref().map(|(identity, _)| *identity) {
            return false;
        }
        // Without a watch, the caller polls.
        let changes = Changes::watch(&self.folder).ok();
        self.watch = folder.zip(changes);
        self.watch.is_some()
    }
}

impl Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = self.file.read_at(buffer, self.offset)?;
        if read == 0 && self.offset > 0 && self.file.metadata()?.len() < self.offset {
            // Another program truncated the file, so its content is new.
            self.offset = 0;
            self.splitter.restart();
            read = self.file.read_at(buffer, 0)?;
        }
        self.offset += read as u64;
        Ok(read)
    }

    fn skip_to_end(&mut self) -> io::Result<()> {
        self.offset = self.file.metadata()?.len();
        let mut last = [b'\n'];
        if let Some(before) = self.offset.checked_sub(1) {
            self.file.read_at(&mut last, before)?;
        }
        if last != *b"\n" {
            self.splitter = Splitter::inside_line();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_platform::wall_clock::WallTime;

    use super::*;
    use crate::status::{State, StatusLog};

    /// Requirement 69.
    #[test]
    fn without_change_notification_the_log_is_polled() {
        let folder = tempfile::tempdir().unwrap();
        let log = StatusLog::open(folder.path()).unwrap();
        let mut follow = log.follow().unwrap();
        let identity = Identity::of(&fs::metadata(folder.path()).unwrap());
        follow.watch = Some((identity, Changes::disabled()));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| follow.next(Some(Duration::from_secs(60))).unwrap().unwrap());
            log.append(&StatusLine::new(State::Done, "t", WallTime::now()).unwrap()).unwrap();
            assert_eq!(waiting.join().unwrap().task(), "t");
        });
        assert!(follow.watch.is_some_and(|(_, changes)| changes.as_fd().is_none()));
    }
}
