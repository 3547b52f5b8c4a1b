//! Log writer: appends each line with one `write`, and checks before and after that no other line is damaged.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use lockkeeper_platform::wall_clock::WallTime;

use super::error::StatusError;
use super::files::{Identity, check_folder, create_folder, open_to_append, path_of};
use super::follow::Follow;
use super::line::StatusLine;
use super::rotate::Rotation;
use super::summary::Summary;

/// How many times a line is written again after another program damaged it.
const TRIES: usize = 64;

/// The status log of a folder. It is cheap to open, and no file is created before the first line.
#[derive(Debug)]
pub struct StatusLog {
    folder: PathBuf,
    path: PathBuf,
    rotation: Rotation,
    /// One writer for the whole process, because the file offset of its descriptor shows where a line starts.
    writer: Mutex<Option<Writer>>,
}

impl StatusLog {
    /// Opens the log of a folder, which may be missing.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StatusError> {
        let folder = folder.into();
        check_folder(&folder)?;
        let path = path_of(&folder, 0);
        Ok(Self { folder, path, rotation: Rotation::default(), writer: Mutex::new(None) })
    }

    /// Sets the rotation.
    #[must_use]
    pub fn with_rotation(mut self, rotation: Rotation) -> Self {
        self.rotation = rotation;
        self
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line, and rotates the log when it has become too large.
    ///
    /// When this returns, the complete line is in the log, or in an older log if it was rotated meanwhile. The line is not
    /// synced to disk: it survives the death of any process, but not a power cut.
    pub fn append(&self, line: &StatusLine) -> Result<(), StatusError> {
        let bytes = line.to_bytes()?;
        // A panic cannot leave the writer in a bad state: its file and offset are checked each time.
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES {
            let current = match writer.take() {
                Some(known) => known.still_current(&self.path),
                None => None,
            };
            let (current, size) = match current {
                Some(current) => current,
                None => Writer::open(&self.folder, &self.path)?,
            };
            let current = writer.insert(current);
            let outcome = current.write(&bytes, size).map_err(StatusError::io("write to", &self.path));
            if outcome.is_err() {
                *writer = None;
            }
            match outcome? {
                Outcome::Whole { size } => {
                    if self.rotation.is_due(size) {
                        // The line is in the log already. If the rotation fails, the next writer tries again.
                        let _ = self.rotation.rotate(&self.folder);
                    }
                    return Ok(());
                }
                Outcome::Torn => {}
                Outcome::Deleted => *writer = None,
            }
        }
        Err(StatusError::Torn { path: self.path.clone() })
    }

    /// Follows the lines that are appended from now on.
    pub fn follow(&self) -> Result<Follow, StatusError> {
        Follow::from_now(&self.folder)
    }

    /// Follows the lines from the oldest one on.
    pub fn follow_from_start(&self) -> Result<Follow, StatusError> {
        Follow::from_start(&self.folder)
    }

    /// Reads everything, and returns the latest state of each task and worker.
    pub fn summary(&self, now: WallTime) -> Result<Summary, StatusError> {
        Summary::read(&self.folder, now)
    }
}

/// The log, open for appending.
#[derive(Debug)]
struct Writer {
    file: File,
    identity: Identity,
    /// The size of the log after our last line, if that was the last line.
    clean_at: u64,
}

/// The result of writing a line.
#[derive(Debug)]
enum Outcome {
    /// The line is complete, and the log has this size.
    Whole { size: u64 },
    /// The line was cut off, or joined to an incomplete line. It has to be written again.
    Torn,
    /// The file was deleted.
    Deleted,
}

impl Writer {
    fn open(folder: &Path, path: &Path) -> Result<(Self, u64), StatusError> {
        let file = match open_to_append(path) {
            Err(StatusError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create_folder(folder)?;
                open_to_append(path)?
            }
            opened => opened?,
        };
        let metadata = file.metadata().map_err(StatusError::io("look at", path))?;
        Ok((Self { file, identity: Identity::of(&metadata), clean_at: 0 }, metadata.len()))
    }

    /// Returns this writer and the size of the log, if the path is still its file.
    fn still_current(self, path: &Path) -> Option<(Self, u64)> {
        let metadata = fs::symlink_metadata(path).ok()?;
        if Identity::of(&metadata) == self.identity { Some((self, metadata.len())) } else { None }
    }

    fn write(&mut self, line: &[u8], size: u64) -> io::Result<Outcome> {
        let clean = size == self.clean_at || self.ends_line(size)?;
        let mut ended = Vec::new();
        let bytes = if clean {
            line
        } else {
            ended.push(b'\n');
            ended.extend_from_slice(line);
            &ended
        };
        if self.write_once(bytes)? < bytes.len() {
            self.clean_at = 0;
            return Ok(Outcome::Torn);
        }
        let metadata = self.file.metadata()?;
        if metadata.nlink() == 0 {
            return Ok(Outcome::Deleted);
        }
        let length = bytes.len() as u64;
        let alone = metadata.len() == size + length;
        if !alone && clean {
            // Others wrote too, so the line may not be at the offset that was checked.
            let began_at = self.file.stream_position()?.saturating_sub(length);
            if !self.ends_line(began_at)? {
                return Ok(Outcome::Torn);
            }
        }
        self.clean_at = if alone { metadata.len() } else { 0 };
        Ok(Outcome::Whole { size: metadata.len() })
    }

    /// Writes the bytes with one call. Returns how many the kernel took.
    fn write_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.end_incomplete_line();
                    return Err(error);
                }
                taken => return taken,
            }
        }
    }

    /// Adds a newline after an incomplete write of ours, if there is space for one more byte.
    fn end_incomplete_line(&mut self) {
        let torn =
            self.file.metadata().is_ok_and(|metadata| matches!(self.ends_line(metadata.len()), Ok(false)));
        if torn {
            // If this fails, the next writer adds the newline.
            let _ = self.file.write(b"\n");
        }
    }

    /// Says whether a line may start at this offset.
    fn ends_line(&self, at: u64) -> io::Result<bool> {
        let Some(last) = at.checked_sub(1) else { return Ok(true) };
        let mut byte = [0];
        // The read returns 0 bytes when the log was truncated meanwhile.
        Ok(self.file.read_at(&mut byte, last)? == 0 || byte == *b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(folder: &Path) -> (Writer, PathBuf) {
        let path = path_of(folder, 0);
        (Writer::open(folder, &path).unwrap().0, path)
    }

    /// Requirement 52.
    #[test]
    fn a_line_that_was_joined_to_an_incomplete_line_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ours, path) = writer(folder.path());
        let (mut theirs, _) = writer(folder.path());
        assert!(matches!(ours.write(b"one\n", 0).unwrap(), Outcome::Whole { size: 4 }));
        theirs.file.write_all(b"pie").unwrap();
        // The size was checked before the incomplete line was written.
        assert!(matches!(ours.write(b"two\n", 4).unwrap(), Outcome::Torn));
        assert!(matches!(ours.write(b"two\n", 11).unwrap(), Outcome::Whole { size: 15 }));
        assert_eq!(fs::read_to_string(path).unwrap(), "one\npietwo\ntwo\n");
    }

    /// Requirement 52.
    #[test]
    fn a_line_after_a_complete_one_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ours, path) = writer(folder.path());
        let (mut theirs, _) = writer(folder.path());
        theirs.file.write_all(b"one\n").unwrap();
        assert!(matches!(ours.write(b"two\n", 0).unwrap(), Outcome::Whole { size: 8 }));
        assert_eq!(fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }

    /// Requirement 52.
    #[test]
    fn a_line_in_a_deleted_file_is_noticed_and_one_in_a_renamed_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ours, path) = writer(folder.path());
        fs::rename(&path, path_of(folder.path(), 1)).unwrap();
        assert!(matches!(ours.write(b"one\n", 0).unwrap(), Outcome::Whole { .. }));
        fs::remove_file(path_of(folder.path(), 1)).unwrap();
        assert!(matches!(ours.write(b"two\n", 4).unwrap(), Outcome::Deleted));
        assert!(ours.still_current(&path).is_none());
    }
}
