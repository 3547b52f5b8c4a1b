//! Log rotation: one process at a time renames a log that has become too large.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::error::StatusError;
use super::files::{ages, path_of};

/// When the log is rotated, and how many older logs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The most bytes of the log; 0 for no limit.
    pub limit: u64,
    /// The number of older logs that are kept, at least one.
    pub keep: u32,
}

impl Default for Rotation {
    fn default() -> Self {
        Self { limit: 16 * 1024 * 1024, keep: 4 }
    }
}

impl Rotation {
    /// Says whether a log of this size has to be rotated.
    pub(super) const fn is_due(&self, size: u64) -> bool {
        self.limit > 0 && size > self.limit
    }

    /// Renames the log if that is due. Returns false when it is not, or another process is rotating.
    ///
    /// A crash in between leaves a gap in the numbers. The next rotation fills it before it deletes a log.
    pub(super) fn rotate(&self, folder: &Path) -> Result<bool, StatusError> {
        let keep = self.keep.max(1);
        let lock = File::open(folder).map_err(StatusError::io("open the folder", folder))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(StatusError::io("lock the folder", folder)(error)),
        }
        let current = path_of(folder, 0);
        let due = fs::symlink_metadata(&current)
            .is_ok_and(|metadata| metadata.is_file() && self.is_due(metadata.len()));
        if !due {
            return Ok(false);
        }
        let ages = ages(folder)?;
        let free = (1..keep).find(|age| !ages.contains(age)).unwrap_or(keep);
        for age in (0..free).rev() {
            let (from, to) = (path_of(folder, age), path_of(folder, age + 1));
            match fs::rename(&from, &to) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(StatusError::io("rotate", &from)(error)),
            }
        }
        Ok(true)
    }
}
