//! A record that is ours for as long as this process wants it: renewed on a spare that has its blocks already.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, renameat, unlinkat};

use super::takeover::{LockFile, Removal};
use super::temporary::{Temporary, reads_back};
use super::{Guard, GuardError};
use crate::hostile::{FileId, Sighting};
use lockkeeper_platform::{folder, rename_exchange};

/// What a record and its padding may grow to without needing another block.
const BLOCK: u64 = 4096;

/// What came of a heartbeat.
#[derive(Debug)]
pub enum Beat {
    /// The record is ours, with its new content.
    Kept,
    /// It is not ours any more; this is there instead.
    Lost(Option<Sighting>),
}

/// Our own record. Dropping it leaves the record where it is: a command that exits keeps its lock.
#[derive(Debug)]
pub struct Held {
    lock: LockFile,
    /// The record's file, kept open so that its number stays its own.
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

    /// The lock file.
    pub fn lock(&self) -> &LockFile {
        &self.lock
    }

    /// What stands in the record.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Sets a spare aside, so that heartbeats work on a full disk too. For holders that stay.
    pub fn reserve(&mut self) -> Result<(), GuardError> {
        if self.spare.is_none() {
            let guard = self.lock.folder.guard()?;
            let spare = spare(&self.lock, &guard, &self.content)?;
            // The record becomes the spare at the first heartbeat: it needs its blocks and its lock too.
            self.mark_as_living(&self.file)?;
            drop(guard);
            self.spare = Some(spare);
        }
        Ok(())
    }

    /// Replaces our record by a newer one, if it is still there untouched.
    pub fn beat(&mut self, content: &[u8]) -> Result<Beat, GuardError> {
        self.reserve()?;
        let spare = self.spare.as_mut().expect("it was reserved above");
        match exchange(&self.lock, &self.file, &self.content, spare, content)? {
            Exchanged::Kept(content) => {
                std::mem::swap(&mut self.file, &mut spare.file);
                self.content = content;
                Ok(Beat::Kept)
            }
            Exchanged::Moved(content) => {
                if let Some(spare) = self.spare.take() {
                    self.file = spare.file;
                }
                self.content = content;
                Ok(Beat::Kept)
            }
            Exchanged::Lost(instead) => Ok(Beat::Lost(instead)),
        }
    }

    /// Removes our record, if it is still there untouched.
    pub fn release(mut self) -> Result<Removal, GuardError> {
        self.drop_spare();
        let own = FileId::of(&self.file).map_err(|source| self.lock.rename_error(source))?;
        let content = std::mem::take(&mut self.content);
        self.lock.remove(&mut |sighting| sighting.id() == own && sighting.bytes() == content)
    }

    fn mark_as_living(&self, file: &File) -> Result<(), GuardError> {
        folder::reserve(file, BLOCK).map_err(|source| self.lock.write_error(source))?;
        // Nobody else ever locks these files for longer than a look.
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

/// How the record and its spare stand after a heartbeat.
enum Exchanged {
    /// The spare is the record, and the record the spare.
    Kept(Vec<u8>),
    /// The spare is the record, and there is none left.
    Moved(Vec<u8>),
    Lost(Option<Sighting>),
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
        return Ok(Exchanged::Lost(lock.look_under(&guard)?));
    }
    let padded = padded(content, spare.file.metadata().map_or(0, |metadata| metadata.len()));
    let came_back = fill(&spare.file, &padded).map_err(|source| lock.write_error(source))?;
    if !came_back || !(lock.is_record)(&padded) {
        return Err(GuardError::ReadBack { path: lock.path() });
    }
    match rename_exchange::exchange(guard.as_fd(), &spare.name, lock.name.as_str()) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Exchanged::Lost(lock.look_under(&guard)?));
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            // Under the guard only a foreign breaker could have come in since the look.
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
    Ok(Exchanged::Lost(lock.look_under(&guard)?))
}

/// Whether the name still leads to our file, and nobody wrote to it.
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

/// Overwrites a spare in one write that never makes it shorter: a slow reader of the record that it once was sees a
/// whole record, old or new.
fn fill(file: &File, content: &[u8]) -> io::Result<bool> {
    file.write_all_at(content, 0)?;
    reads_back(file, content)
}

/// Blank lines at the end mean nothing in JSON and YAML.
fn padded(content: &[u8], length: u64) -> Vec<u8> {
    let mut padded = content.to_vec();
    let length = usize::try_from(length).unwrap_or(0).max(padded.len());
    padded.resize(length, b'\n');
    padded
}
