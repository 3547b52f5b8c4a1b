//! Lock file operations: create, take over, renew and remove, each under the guard.

use std::io;
use std::path::PathBuf;

use lockkeeper_platform::rename_exchange;
use rustix::fs::{AtFlags, renameat, unlinkat};

use super::held::Held;
use super::temporary::{Temporary, sweep, unused_name};
use super::{Folder, Guard, GuardError};
use crate::safe_open::{self, FileId, FileName, Owners, Snapshot, UnsafeFile};
use crate::{HeldReason, Verdict};

/// How many times a foreign program may be faster before we give up.
const ROUNDS: usize = 16;

/// One lock file: its name in a folder, its mode, and how a record is recognised.
#[derive(Debug)]
pub struct LockFile {
    pub(super) folder: Folder,
    pub(super) name: FileName,
    pub(super) mode: u32,
    pub(super) is_record: fn(&[u8]) -> bool,
    owners: Owners,
}

/// The result of taking a lock.
#[derive(Debug)]
pub enum Take {
    /// We have the lock.
    Taken {
        /// Our record.
        held: Held,
        /// The stale record that it replaced.
        replaced: Option<Snapshot>,
    },
    /// Another holder has the lock.
    Busy {
        /// The other record; `None` if it changed at the same time.
        snapshot: Option<Snapshot>,
        /// Why it is held.
        verdict: Verdict,
    },
}

/// The result of renewing a record that an earlier command wrote.
#[derive(Debug)]
pub enum Renewal {
    /// The new content is in place.
    Renewed,
    /// The record is not ours any more. This one is there instead.
    Lost(Option<Snapshot>),
}

/// The result of removing a record.
#[derive(Debug)]
pub enum Removal {
    /// This record was removed.
    Removed(Snapshot),
    /// There was no record.
    Absent,
    /// This record is not ours, and was not removed.
    Lost(Snapshot),
}

/// The result of replacing a record.
enum Replaced {
    /// The old record was the one that was judged.
    Expected,
    /// The old record was another one, and was put back.
    Other,
    /// There was no old record.
    Absent,
}

impl LockFile {
    /// Describes a lock file. `is_record` says whether the content of a new record is valid.
    pub fn new(folder: Folder, name: FileName, mode: u32, is_record: fn(&[u8]) -> bool) -> Self {
        Self { folder, name, mode, is_record, owners: Owners::Us }
    }

    /// Reads the records of other users, too. The functions that judge a record decide what they may do to it.
    #[must_use]
    pub fn of_anybody(self) -> Self {
        Self { owners: Owners::Anybody, ..self }
    }

    /// Returns its path.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(self.name.as_str())
    }

    /// Returns its folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Reads the record.
    pub fn read(&self) -> Result<Option<Snapshot>, GuardError> {
        self.read_under(&self.folder.guard()?)
    }

    /// Reads the record without the guard, so that it waits for nobody.
    ///
    /// Where names cannot be exchanged, there may be no record for a moment, although the lock is held.
    pub fn peek(&self) -> Result<Option<Snapshot>, GuardError> {
        let read = safe_open::read(self.folder.as_fd(), self.name.as_str(), self.owners);
        read.map_err(|source| GuardError::UnsafeFile { path: self.path(), source })
    }

    /// Takes the lock if it is free, or if `judge` finds its record stale. Never waits for a holder.
    pub fn take(
        self,
        content: &[u8],
        judge: &mut dyn FnMut(&Snapshot) -> Verdict,
    ) -> Result<Take, GuardError> {
        let guard = self.folder.guard()?;
        for round in 0..ROUNDS {
            let stale = match self.read_under(&guard)? {
                Some(snapshot) => match judge(&snapshot) {
                    verdict @ Verdict::Held(_) => {
                        return Ok(Take::Busy { snapshot: Some(snapshot), verdict });
                    }
                    Verdict::Stale(_) => Some(snapshot),
                },
                None => None,
            };
            if round == 0 {
                // A file that cannot be removed only costs space. It is no reason to refuse the lock.
                let _ = sweep(&guard);
            }
            let new = self.written(&guard, content)?;
            let placed = match &stale {
                None => self.publish(&guard, &new)?,
                Some(judged) => match self.replace(&guard, &new, judged)? {
                    Replaced::Expected => true,
                    Replaced::Other => {
                        let verdict = Verdict::Held(HeldReason::Changed);
                        return Ok(Take::Busy { snapshot: self.read_under(&guard)?, verdict });
                    }
                    Replaced::Absent => false,
                },
            };
            if placed {
                let file = new.file().try_clone().map_err(|source| self.write_error(source))?;
                // After publishing, no file has the random name. After an exchange, the stale record has it.
                drop(new);
                drop(guard);
                let held = Held::new(self, file, content.to_vec());
                return Ok(Take::Taken { held, replaced: stale });
            }
        }
        let verdict = Verdict::Held(HeldReason::Changed);
        Ok(Take::Busy { snapshot: self.read_under(&guard)?, verdict })
    }

    /// Replaces a record that `renewed` recognises as ours. `renewed` returns the new content.
    pub fn renew(
        &self,
        renewed: &mut dyn FnMut(&Snapshot) -> Option<Vec<u8>>,
    ) -> Result<Renewal, GuardError> {
        let guard = self.folder.guard()?;
        let Some(snapshot) = self.read_under(&guard)? else { return Ok(Renewal::Lost(None)) };
        let Some(content) = renewed(&snapshot) else { return Ok(Renewal::Lost(Some(snapshot))) };
        let new = self.written(&guard, &content)?;
        match self.replace(&guard, &new, &snapshot)? {
            Replaced::Expected => Ok(Renewal::Renewed),
            Replaced::Other => Ok(Renewal::Lost(self.read_under(&guard)?)),
            Replaced::Absent => Ok(Renewal::Lost(None)),
        }
    }

    /// Removes the record if `is_ours` says so.
    pub fn remove(&self, is_ours: &mut dyn FnMut(&Snapshot) -> bool) -> Result<Removal, GuardError> {
        let guard = self.folder.guard()?;
        for _ in 0..ROUNDS {
            let Some(snapshot) = self.read_under(&guard)? else { return Ok(Removal::Absent) };
            if !is_ours(&snapshot) {
                return Ok(Removal::Lost(snapshot));
            }
            let aside = unused_name().map_err(|source| self.rename_error(source))?;
            match self.move_aside(&guard, &aside, &snapshot)? {
                Replaced::Expected => {
                    self.unlink(&guard, &aside)?;
                    return Ok(Removal::Removed(snapshot));
                }
                Replaced::Other | Replaced::Absent => {}
            }
        }
        match self.read_under(&guard)? {
            Some(snapshot) => Ok(Removal::Lost(snapshot)),
            None => Ok(Removal::Absent),
        }
    }

    pub(super) fn read_under(&self, guard: &Guard<'_>) -> Result<Option<Snapshot>, GuardError> {
        let read = || safe_open::read(guard.as_fd(), self.name.as_str(), self.owners);
        let outcome = match read() {
            // Where publishing takes two steps, a writer that was killed between them leaves a second name behind.
            Err(UnsafeFile::Linked(_)) if sweep(guard).is_ok() => read(),
            outcome => outcome,
        };
        outcome.map_err(|source| GuardError::UnsafeFile { path: self.path(), source })
    }

    /// Writes a record to a file with a random name, and checks it.
    pub(super) fn written<'g, 'f>(
        &self,
        guard: &'g Guard<'f>,
        content: &[u8],
    ) -> Result<Temporary<'g, 'f>, GuardError> {
        let new = Temporary::create(guard, self.mode).map_err(|source| self.write_error(source))?;
        let came_back = new.fill(content).map_err(|source| self.write_error(source))?;
        if came_back && (self.is_record)(content) {
            Ok(new)
        } else {
            Err(GuardError::ReadBack { path: self.path() })
        }
    }

    /// Gives the record its name. Returns false when another process was faster.
    fn publish(&self, guard: &Guard<'_>, new: &Temporary<'_, '_>) -> Result<bool, GuardError> {
        match rename_exchange::publish(guard.as_fd(), new.name(), self.name.as_str()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(self.rename_error(source)),
        }
    }

    /// Replaces the record that was judged, and no other record.
    fn replace(
        &self,
        guard: &Guard<'_>,
        new: &Temporary<'_, '_>,
        judged: &Snapshot,
    ) -> Result<Replaced, GuardError> {
        let placed = new.id().map_err(|source| self.write_error(source))?;
        match rename_exchange::exchange(guard.as_fd(), new.name(), self.name.as_str()) {
            Ok(()) if self.is_same(guard, new.name(), judged) => Ok(Replaced::Expected),
            Ok(()) => self.put_back(guard, new.name(), placed).map(|()| Replaced::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Replaced::Absent),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.replace_in_two_steps(guard, new, judged)
            }
            Err(source) => Err(self.rename_error(source)),
        }
    }

    /// Does the same where names cannot be exchanged: renames the old record, then publishes the new one.
    fn replace_in_two_steps(
        &self,
        guard: &Guard<'_>,
        new: &Temporary<'_, '_>,
        judged: &Snapshot,
    ) -> Result<Replaced, GuardError> {
        let aside = unused_name().map_err(|source| self.rename_error(source))?;
        match self.move_aside(guard, &aside, judged)? {
            Replaced::Expected => {}
            other @ (Replaced::Other | Replaced::Absent) => return Ok(other),
        }
        let published = self.publish(guard, new);
        self.unlink(guard, &aside)?;
        if published? { Ok(Replaced::Expected) } else { Ok(Replaced::Other) }
    }

    /// Renames the record to a random name, if it is the one that was judged.
    fn move_aside(&self, guard: &Guard<'_>, aside: &str, judged: &Snapshot) -> Result<Replaced, GuardError> {
        match renameat(guard.as_fd(), self.name.as_str(), guard.as_fd(), aside) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOENT) => return Ok(Replaced::Absent),
            Err(error) => return Err(self.rename_error(error.into())),
        }
        if self.is_same(guard, aside, judged) {
            return Ok(Replaced::Expected);
        }
        match rename_exchange::publish(guard.as_fd(), aside, self.name.as_str()) {
            Ok(()) => Ok(Replaced::Other),
            // Two foreign programs acted in between. The later one has the lock, the earlier one has lost it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.unlink(guard, aside)?;
                Ok(Replaced::Other)
            }
            Err(source) => Err(self.rename_error(source)),
        }
    }

    /// Puts a record back that was exchanged by mistake. `placed` is the file that we put in its place.
    ///
    /// The foreign holder may renew its record meanwhile. Then its newest record comes out, and is put back. If the name
    /// is gone, the foreign holder has released its lock, and there is nothing to put back.
    pub(super) fn put_back(
        &self,
        guard: &Guard<'_>,
        aside: &str,
        mut placed: FileId,
    ) -> Result<(), GuardError> {
        for _ in 0..ROUNDS {
            let coming = open_id(guard, aside);
            match rename_exchange::exchange(guard.as_fd(), aside, self.name.as_str()) {
                Ok(()) if open_id(guard, aside) == Some(placed) => return Ok(()),
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(source) => return Err(self.rename_error(source)),
            }
            match coming {
                Some(coming) => placed = coming,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    fn unlink(&self, guard: &Guard<'_>, name: &str) -> Result<(), GuardError> {
        match unlinkat(guard.as_fd(), name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(self.rename_error(error.into())),
        }
    }

    /// Says whether the file with this name is the one that was judged, with the same content.
    fn is_same(&self, guard: &Guard<'_>, name: &str, judged: &Snapshot) -> bool {
        let found = safe_open::read(guard.as_fd(), name, self.owners);
        found.is_ok_and(|found| found.is_some_and(|found| found.is_same(judged)))
    }

    pub(super) fn write_error(&self, source: io::Error) -> GuardError {
        GuardError::Write { path: self.path(), source }
    }

    pub(super) fn rename_error(&self, source: io::Error) -> GuardError {
        GuardError::Rename { path: self.path(), source }
    }
}

/// Returns the identity of the file that has this name now.
fn open_id(guard: &Guard<'_>, name: &str) -> Option<FileId> {
    FileId::at(guard.as_fd(), name).ok()
}
