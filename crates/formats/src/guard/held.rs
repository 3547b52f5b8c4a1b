//! Held lock: a record that this process renews with heartbeats, using a spare file with reserved blocks.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use lockkeeper_platform::{folder, rename_exchange};
use rustix::fs::{AtFlags, renameat, unlinkat};

use super::takeover::{LockFile, Removal};
use super::temporary::{Temporary, reads_back};
use super::{Guard, GuardError};
use crate::safe_open::{FileId, Snapshot};

/// The bytes that are reserved for a record with its padding.
const BLOCK: u64 = 4096;

/// The result of a heartbeat.
#[derive(Debug)]
pub enum Heartbeat {
    /// The record is ours, with its new content.
    Kept,
    /// The record is not ours any more. This one is there instead.
    Lost(Option<Snapshot>),
}

/// Our own record. Dropping it does not remove the record: a command that exits keeps its lock.
#[derive(Debug)]
pub struct Held {
    lock: LockFile,
    /// The file of the record, kept open so that no other file can get its inode.
    file: File,
    content: Vec<u8>,
    spare: Option<Spare>,
}

/// The file that the next heartbeat is written to.
#[derive(Debug)]
struct Spare {
    name: String,
    file: File,
}

impl Held {
    pub(super) fn new(lock: LockFile, file: File, content: Vec<u8>) -> Self {
        Self { lock, file, content, spare: None }
    }

    /// Returns the lock file.
    pub fn lock(&self) -> &LockFile {
        &self.lock
    }

    /// Returns the content of the record.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Creates the spare file, so that heartbeats work on a full disk too. For holders that keep running.
    pub fn reserve(&mut self) -> Result<(), GuardError> {
        if self.spare.is_none() {
            let guard = self.lock.folder.guard()?;
            let spare = spare(&self.lock, &guard, &self.content)?;
            // The record becomes the spare at the first heartbeat, so it needs blocks and a lock too.
            self.mark_as_living(&self.file)?;
            drop(guard);
            self.spare = Some(spare);
        }
        Ok(())
    }

    /// Replaces our record by a newer one, if nobody has changed it.
    pub fn heartbeat(&mut self, content: &[u8]) -> Result<Heartbeat, GuardError> {
        self.reserve()?;
        let spare = self.spare.as_mut().expect("it was reserved above");
        match exchange(&self.lock, &self.file, &self.content, spare, content)? {
            Exchanged::Kept(content) => {
                std::mem::swap(&mut self.file, &mut spare.file);
                self.content = content;
                Ok(Heartbeat::Kept)
            }
            Exchanged::Moved(content) => {
                if let Some(spare) = self.spare.take() {
                    self.file = spare.file;
                }
                self.content = content;
                Ok(Heartbeat::Kept)
            }
            Exchanged::Lost(instead) => Ok(Heartbeat::Lost(instead)),
        }
    }

    /// Removes our record, if nobody has changed it.
    pub fn release(mut self) -> Result<Removal, GuardError> {
        self.drop_spare();
        let own = FileId::of(&self.file).map_err(|source| self.lock.rename_error(source))?;
        let content = std::mem::take(&mut self.content);
        self.lock.remove(&mut |snapshot| snapshot.id() == own && snapshot.bytes() == content)
    }

    fn mark_as_living(&self, file: &File) -> Result<(), GuardError> {
        folder::reserve(file, BLOCK).map_err(|source| self.lock.write_error(source))?;
        // Other processes lock these files only for a moment.
        folder::try_lock(file).map_err(|source| self.lock.write_error(source))?;
        Ok(())
    }

    fn drop_spare(&mut self) {
        if let Some(spare) = self.spare.take() {
            let _ = unlinkat(self.lock.folder.as_fd(), &*spare.name, AtFlags::empty());
            folder::unlock(spare.file.as_fd());
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.drop_spare();
    }
}

/// The outcome of a heartbeat for the record and its spare.
enum Exchanged {
    /// The spare became the record, and the record became the spare.
    Kept(Vec<u8>),
    /// The spare became the record, and there is no spare now.
    Moved(Vec<u8>),
    /// The record was not ours any more.
    Lost(Option<Snapshot>),
}

fn exchange(
    lock: &LockFile,
    record: &File,
    old: &[u8],
    spare: &Spare,
    content: &[u8],
) -> Result<Exchanged, GuardError> {
    let guard = lock.folder.guard()?;
    let id_of = |file: &File| FileId::of(file).map_err(|source| lock.rename_error(source));
    let (own, coming) = (id_of(record)?, id_of(&spare.file)?);
    if !is_in_place(lock, &guard, record, own, old)? {
        return Ok(Exchanged::Lost(lock.read_under(&guard)?));
    }
    let padded = padded(content, spare.file.metadata().map_or(0, |metadata| metadata.len()));
    let came_back = fill(&spare.file, &padded).map_err(|source| lock.write_error(source))?;
    if !came_back || !(lock.is_record)(&padded) {
        return Err(GuardError::ReadBack { path: lock.path() });
    }
    match rename_exchange::exchange(guard.as_fd(), &spare.name, lock.name.as_str()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Exchanged::Lost(lock.read_under(&guard)?));
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            // Under the guard, only a foreign program could have changed the record since the check.
            renameat(guard.as_fd(), &*spare.name, guard.as_fd(), lock.name.as_str())
                .map_err(|error| lock.rename_error(error.into()))?;
            return Ok(Exchanged::Moved(padded));
        }
        Err(source) => return Err(lock.rename_error(source)),
    }
    if FileId::at(guard.as_fd(), &spare.name).is_ok_and(|out| out == own) {
        return Ok(Exchanged::Kept(padded));
    }
    lock.put_back(&guard, &spare.name, coming)?;
    Ok(Exchanged::Lost(lock.read_under(&guard)?))
}

/// Says whether the name still belongs to our file, and nobody wrote to it.
fn is_in_place(
    lock: &LockFile,
    guard: &Guard<'_>,
    record: &File,
    own: FileId,
    content: &[u8],
) -> Result<bool, GuardError> {
    match FileId::at(guard.as_fd(), lock.name.as_str()) {
        Ok(found) if found == own => {}
        Ok(_) => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(lock.rename_error(source)),
    }
    reads_back(record, content).map_err(|source| lock.rename_error(source))
}

fn spare(lock: &LockFile, guard: &Guard<'_>, content: &[u8]) -> Result<Spare, GuardError> {
    let failed = |source| lock.write_error(source);
    let new = Temporary::create(guard, lock.mode).map_err(failed)?;
    new.fill(content).map_err(failed)?;
    folder::reserve(new.file(), BLOCK).map_err(failed)?;
    folder::try_lock(new.file()).map_err(failed)?;
    let (name, file) = new.keep().map_err(failed)?;
    Ok(Spare { name, file })
}

/// Overwrites a spare with one write, and never makes it shorter. A slow reader that still has it open as the record sees
/// a complete record, old or new.
fn fill(file: &File, content: &[u8]) -> io::Result<bool> {
    file.write_all_at(content, 0)?;
    reads_back(file, content)
}

/// Pads the content with line breaks, which mean nothing at the end of JSON and YAML.
fn padded(content: &[u8], length: u64) -> Vec<u8> {
    let mut padded = content.to_vec();
    let length = usize::try_from(length).unwrap_or(0).max(padded.len());
    padded.resize(length, b'\n');
    padded
}
