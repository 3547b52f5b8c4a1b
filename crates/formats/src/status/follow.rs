//! Following: each line once, as it comes, through rotation, truncation and deletion.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::StatusError;
use super::files::{Identity, open_all, path_of};
use super::line::StatusLine;
use super::split::{Found, Splitter};
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::poll::{self, Ready};

/// How often to look where nobody tells of changes.
const LOOK: Duration = Duration::from_millis(250);
/// How often to look although changes are told of: a folder may be replaced, a network file system keeps silent.
const LOOK_ANYWAY: Duration = Duration::from_secs(2);
/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;
/// Files that were moved out of the folder and are still read, since programs that had them open may go on writing.
const MAX_STRAYS: usize = 4;

/// The lines of a log as they come.
///
/// A file is known by what it is and not by its name, and read on from where the reading ended. A program that
/// copies the log and truncates it, instead of renaming it, shows its lines twice.
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

/// A file that is read as it grows.
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
        follow.meet_new_files()?;
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
        follow.listen();
        follow
    }

    /// The next line, or nothing when none comes within the limit.
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

    /// The next line that is there already.
    pub fn take(&mut self) -> Result<Option<StatusLine>, StatusError> {
        while self.ready.is_empty() {
            if !self.read_on()? {
                return Ok(None);
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Sleeps until there may be a line, one of these descriptors is readable, `output` is closed at its other end,
    /// or the limit is reached. Tells which of the descriptors are ready, `output` as the one after the last.
    pub fn wait(
        &mut self,
        others: &[BorrowedFd<'_>],
        output: Option<BorrowedFd<'_>>,
        limit: Option<Duration>,
    ) -> Result<Ready, StatusError> {
        if self.listen() {
            // What came before we listened was not told of.
            return Ok(Ready::none());
        }
        let told = self.watch.as_ref().and_then(|(_, changes)| changes.as_fd());
        let look = if told.is_some() { LOOK_ANYWAY } else { LOOK };
        let limit = limit.map_or(look, |limit| limit.min(look));
        let mut readable = others.to_vec();
        readable.extend(told);
        let ready = poll::wait_or_hang_up(&readable, output.as_slice(), Some(limit));
        let mut ready = ready.map_err(StatusError::io("wait for", &self.path))?;
        if told.is_some()
            && ready.forget(others.len())
            && let Some((_, changes)) = &self.watch
        {
            changes.drain();
        }
        Ok(ready)
    }

    /// How many lines were passed over because they are not status lines.
    pub const fn bad_lines(&self) -> u64 {
        self.bad_lines
    }

    /// Reads one piece of the oldest file that has more; false when none has.
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
        let current = fs::symlink_metadata(&self.path).ok().map(|facts| Identity::of(&facts));
        match current {
            Some(current) if self.tails.iter().all(|tail| tail.identity != current) => self.meet_new_files(),
            Some(_) | None => Ok(false),
        }
    }

    /// Opens files that are not known yet; true when there are any.
    fn meet_new_files(&mut self) -> Result<bool, StatusError> {
        let files = open_all(&self.folder)?;
        let listed: Vec<Identity> = files.iter().map(|(identity, _)| *identity).collect();
        self.forget_strays(&listed);
        let known = self.tails.len();
        for (identity, file) in files {
            if self.tails.iter().all(|tail| tail.identity != identity) {
                self.tails.push(Tail { identity, file, offset: 0, splitter: Splitter::default() });
            }
        }
        Ok(self.tails.len() > known)
    }

    /// Closes files that were deleted, and all but a few of those that were moved elsewhere; they were read to their
    /// end. What is still listed stays open, or it would be met again as a new file.
    fn forget_strays(&mut self, listed: &[Identity]) {
        let mut strays = self.tails.iter().filter(|tail| !listed.contains(&tail.identity)).count();
        self.tails.retain(|tail| {
            if listed.contains(&tail.identity) {
                return true;
            }
            let deleted = tail.file.metadata().is_ok_and(|facts| facts.nlink() == 0);
            let closed = deleted || strays > MAX_STRAYS;
            strays -= 1;
            !closed
        });
    }

    /// Listens to the folder if it is not, or to another one; true when it just began to.
    fn listen(&mut self) -> bool {
        let folder = fs::metadata(&self.folder).ok().map(|facts| Identity::of(&facts));
        if folder == self.watch.as_ref().map(|(identity, _)| *identity) {
            return false;
        }
        // Where listening is not possible, looking now and then has to do.
        let changes = Changes::watch(&self.folder).ok();
        self.watch = folder.zip(changes);
        self.watch.is_some()
    }
}

impl Tail {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = self.file.read_at(buffer, self.offset)?;
        if read == 0 && self.offset > 0 && self.file.metadata()?.len() < self.offset {
            // Somebody truncated it: what is there now is new.
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
            self.splitter = Splitter::in_the_middle();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{State, StatusLog};
    use super::*;
    use lockkeeper_platform::wall_clock::WallTime;

    /// Requirement 69.
    #[test]
    fn where_nobody_tells_of_changes_they_are_looked_for() {
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
