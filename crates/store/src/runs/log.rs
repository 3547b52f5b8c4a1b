//! The write-ahead log as a file: room for what comes next, and forcing it to the disk.
//!
//! A commit that makes the log longer costs the disk twice: its frames, and the file's new length. So the log is
//! filled up ahead with zeros, many commits' worth at a time. SQLite ends its reading of a log at the first frame that
//! is not whole, which zeros never are; so zeros after the last frame mean nothing to it, whenever a crash leaves them.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::StoreError;

/// By so much the log is made longer.
const STEP: u64 = 256 * 1024;
/// A log of this length is copied into the database before it grows much more, and then begins anew.
const LONG: u64 = 4 * 1024 * 1024;
/// Logs without room have a length that this divides, as their header and all frames have. One with room has not.
const GRAIN: u64 = 8;

/// The log of one database.
pub(super) struct Log {
    path: PathBuf,
    /// Once it was opened.
    file: Mutex<Option<Arc<File>>>,
}

impl Log {
    /// That of the database at `path`; it need not be there yet.
    pub(super) fn of(path: &Path) -> Self {
        let mut log = path.to_owned().into_os_string();
        log.push("-wal");
        Self { path: log.into(), file: Mutex::new(None) }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it anew the next time: only while a connection is open it is sure to stay the same file.
    pub(super) fn forget(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sees to it that there is room, as well as it can be done. Only for whoever has the right to write to the
    /// database: nobody else may append meanwhile.
    pub(super) fn make_room(&self) {
        // Without room a commit takes longer, and a disk that is full will say so then.
        let _ = self.file().and_then(|file| fill_up(&file));
    }

    /// Forces it to the disk. Frames that a checkpoint moved on meanwhile were forced by it.
    pub(super) fn force(&self) -> Result<(), StoreError> {
        let failed = |action, source| StoreError::io(action, &self.path, source);
        let file = self.file().map_err(|error| failed("open", error))?;
        // Others may force it at the same time; the disk does that once for all of them.
        file.sync_data().map_err(|error| failed("force to the disk", error))
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut known = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match known.take() {
            Some(file) => file,
            None => Arc::new(OpenOptions::new().write(true).open(&self.path)?),
        };
        Ok(Arc::clone(known.insert(file)))
    }
}

fn fill_up(mut file: &File) -> io::Result<()> {
    static ZEROS: [u8; 32 * 1024] = [0; 32 * 1024];
    // Not by its metadata: when somebody has looked at a file's times, Linux notes the next change exactly, and the
    // disk has to write that as well.
    let length = file.seek(SeekFrom::End(0))?;
    if length % GRAIN != 0 || length >= LONG {
        return Ok(());
    }
    // One byte more than frames could come to.
    let (mut end, goal) = (length, length + STEP + 1);
    while end < goal {
        let part = &ZEROS[..ZEROS.len().min(usize::try_from(goal - end).unwrap_or(usize::MAX))];
        file.write_all_at(part, end)?;
        end += part.len() as u64;
    }
    Ok(())
}
