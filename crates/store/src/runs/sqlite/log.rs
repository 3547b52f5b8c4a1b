//! The write-ahead log as a file: preallocates space in it, and forces it to the disk.
//!
//! If a commit makes the log longer, the disk writes twice: the frames, and the new length of the file. So the log is
//! extended with zeros before that, with space for many commits. SQLite reads a log up to the first incomplete frame, and
//! zeros are no frame. So zeros after the last frame mean nothing to SQLite, also after a crash.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::StoreError;

/// How many bytes the log is extended by.
const STEP: u64 = 256 * 1024;
/// A log of this length is not extended: SQLite soon copies it into the database and starts again at its beginning.
const LONG: u64 = 4 * 1024 * 1024;
/// The lengths of the header and of all frames are multiples of this. Preallocation adds one byte more, so a length that is no
/// multiple means that there is free space.
const GRAIN: u64 = 8;

/// The log of one database.
pub(super) struct Log {
    path: PathBuf,
    /// The open file.
    file: Mutex<Option<Arc<File>>>,
}

impl Log {
    /// The log of the database at `path`. It need not exist.
    pub(super) fn of(path: &Path) -> Self {
        let mut log = path.to_owned().into_os_string();
        log.push("-wal");
        Self { path: log.into(), file: Mutex::new(None) }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file again the next time: it is sure to be the same file only while a connection is open.
    pub(super) fn forget(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Preallocates space if there is none. The caller holds the write lock of the database, so that nobody else appends.
    pub(super) fn make_room(&self) {
        // Without space a commit only takes longer. If the disk is full, the commit fails and says so.
        let _ = self.file().and_then(|file| fill_up(&file));
    }

    /// Forces the log to the disk. Frames that a checkpoint has copied are on the disk already.
    pub(super) fn force(&self) -> Result<(), StoreError> {
        let failed = |action, source| StoreError::io(action, &self.path, source);
        let file = self.file().map_err(|error| failed("open", error))?;
        // If others do the same at the same time, the disk writes once for all of them.
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
    // Not from its metadata: after a program has read the times of a file, Linux writes an exact new time with the next
    // change, and the disk has to write that as well.
    let length = file.seek(SeekFrom::End(0))?;
    if length % GRAIN != 0 || length >= LONG {
        return Ok(());
    }
    // One byte more, so that the length is not a multiple of the grain.
    let (mut end, goal) = (length, length + STEP + 1);
    while end < goal {
        let part = &ZEROS[..ZEROS.len().min(usize::try_from(goal - end).unwrap_or(usize::MAX))];
        file.write_all_at(part, end)?;
        end += part.len() as u64;
    }
    Ok(())
}
