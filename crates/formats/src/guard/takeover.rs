//! Create, take over, renew and remove: the four things that are done to a lock file, each under the guard.

use std::io;
use std::path::PathBuf;

use rustix::fs::{AtFlags, renameat, unlinkat};

use super::held::Held;
use super::temporary::{Temporary, sweep, unused_name};
use super::{Folder, Guard, GuardError};
use crate::hostile::{self, FileId, FileName, HostileError, Sighting};
use crate::{HeldReason, Verdict};
use lockkeeper_platform::rename_exchange;

/// How often a foreign program may be faster before we give way to it.
const ROUNDS: usize = 16;

/// One lock file: a name in a folder, the access rights of its records, and how one is told from rubbish.
#[derive(Debug)]
pub struct LockFile {
    pub(super) folder: Folder,
    pub(super) name: FileName,
    pub(super) mode: u32,
    pub(super) is_record: fn(&[u8]) -> bool,
}

/// What came of taking a lock.
#[derive(Debug)]
pub enum Take {
    /// It is ours.
    Taken {
        /// Our record.
        held: Held,
        /// The stale one that it replaced.
        replaced: Option<Sighting>,
    },
    /// It is not.
    Busy {
        /// What is there, unless it changed while we looked.
        sighting: Option<Sighting>,
        /// Why it stays.
        verdict: Verdict,
    },
}

/// What came of renewing a record that a command left behind.
#[derive(Debug)]
pub enum Renewal {
    /// The new content is in place.
    Renewed,
    /// It is not ours any more; this is there instead.
    Lost(Option<Sighting>),
}

/// What came of removing a record.
#[derive(Debug)]
pub enum Removal {
    /// It is gone; this is what it was.
    Removed(Sighting),
    /// There was none.
    Absent,
    /// It is not ours, and stays.
    Lost(Sighting),
}

/// Whether a swap took out what it should.
enum Swapped {
    Expected,
    /// Something else came out, and was put back.
    Other,
    /// There was nothing to be swapped.
    Absent,
}

impl LockFile {
    /// Names a lock file. `is_record` tells whether a new record, read back, is one.
    pub fn new(folder: Folder, name: FileName, mode: u32, is_record: fn(&[u8]) -> bool) -> Self {
        Self { folder, name, mode, is_record }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(self.name.as_str())
    }

    /// The folder that it lies in.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Looks at it, and changes nothing.
    pub fn look(&self) -> Result<Option<Sighting>, GuardError> {
        self.look_under(&self.folder.guard()?)
    }

    /// Takes the lock if it is free, or if `judge` finds its record stale. Never waits for a holder.
    pub fn take(
        self,
        content: &[u8],
        judge: &mut dyn FnMut(&Sighting) -> Verdict,
    ) -> Result<Take, GuardError> {
        let guard = self.folder.guard()?;
        for round in 0..ROUNDS {
            let stale = match self.look_under(&guard)? {
                Some(sighting) => match judge(&sighting) {
                    verdict @ Verdict::Held(_) => {
                        return Ok(Take::Busy { sighting: Some(sighting), verdict });
                    }
                    Verdict::Stale(_) => Some(sighting),
                },
                None => None,
            };
            if round == 0 {
                // What was left behind costs nothing but space: failing to remove it is no reason to refuse the lock.
                let _ = sweep(&guard);
            }
            let new = self.written(&guard, content)?;
            let placed = match &stale {
                None => self.publish(&guard, &new)?,
                Some(judged) => match self.swap(&guard, &new, judged)? {
                    Swapped::Expected => true,
                    Swapped::Other => {
                        let verdict = Verdict::Held(HeldReason::Changed);
                        return Ok(Take::Busy { sighting: self.look_under(&guard)?, verdict });
                    }
                    Swapped::Absent => false,
                },
            };
            if placed {
                let file = new.file().try_clone().map_err(|source| self.write_error(source))?;
                // After a publication nothing has the random name; after an exchange the stale record has.
                drop(new);
                drop(guard);
                let held = Held::new(self, file, content.to_vec());
                return Ok(Take::Taken { held, replaced: stale });
            }
        }
        let verdict = Verdict::Held(HeldReason::Changed);
        Ok(Take::Busy { sighting: self.look_under(&guard)?, verdict })
    }

    /// Replaces a record that `renewed` recognises as ours; it gives the new content.
    pub fn renew(
        &self,
        renewed: &mut dyn FnMut(&Sighting) -> Option<Vec<u8>>,
    ) -> Result<Renewal, GuardError> {
        let guard = self.folder.guard()?;
        let Some(sighting) = self.look_under(&guard)? else { return Ok(Renewal::Lost(None)) };
        let Some(content) = renewed(&sighting) else { return Ok(Renewal::Lost(Some(sighting))) };
        let new = self.written(&guard, &content)?;
        match self.swap(&guard, &new, &sighting)? {
            Swapped::Expected => Ok(Renewal::Renewed),
            Swapped::Other => Ok(Renewal::Lost(self.look_under(&guard)?)),
            Swapped::Absent => Ok(Renewal::Lost(None)),
        }
    }

    /// Removes the record if `is_ours` says so.
    pub fn remove(&self, is_ours: &mut dyn FnMut(&Sighting) -> bool) -> Result<Removal, GuardError> {
        let guard = self.folder.guard()?;
        for _ in 0..ROUNDS {
            let Some(sighting) = self.look_under(&guard)? else { return Ok(Removal::Absent) };
            if !is_ours(&sighting) {
                return Ok(Removal::Lost(sighting));
            }
            let aside = unused_name().map_err(|source| self.rename_error(source))?;
            match self.move_aside(&guard, &aside, &sighting)? {
                Swapped::Expected => {
                    self.unlink(&guard, &aside)?;
                    return Ok(Removal::Removed(sighting));
                }
                Swapped::Other | Swapped::Absent => {}
            }
        }
        match self.look_under(&guard)? {
            Some(sighting) => Ok(Removal::Lost(sighting)),
            None => Ok(Removal::Absent),
        }
    }

    pub(super) fn look_under(&self, guard: &Guard<'_>) -> Result<Option<Sighting>, GuardError> {
        let look = || hostile::look(guard.as_fd(), self.name.as_str());
        let seen = match look() {
            // Where publishing takes two steps, a writer that was killed between them leaves its other name behind.
            Err(HostileError::Linked(_)) if sweep(guard).is_ok() => look(),
            seen => seen,
        };
        seen.map_err(|source| GuardError::Hostile { path: self.path(), source })
    }

    /// Writes a record under a random name, and makes sure that it is one.
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

    /// Gives the record its name. False when somebody was faster.
    fn publish(&self, guard: &Guard<'_>, new: &Temporary<'_, '_>) -> Result<bool, GuardError> {
        match rename_exchange::publish(guard.as_fd(), new.name(), self.name.as_str()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(self.rename_error(source)),
        }
    }

    /// Puts a record in the place of the one that was judged, and nothing else.
    fn swap(
        &self,
        guard: &Guard<'_>,
        new: &Temporary<'_, '_>,
        judged: &Sighting,
    ) -> Result<Swapped, GuardError> {
        let placed = new.id().map_err(|source| self.write_error(source))?;
        match rename_exchange::exchange(guard.as_fd(), new.name(), self.name.as_str()) {
            Ok(()) if is_same(guard, new.name(), judged) => Ok(Swapped::Expected),
            Ok(()) => self.put_back(guard, new.name(), placed).map(|()| Swapped::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Swapped::Absent),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => self.swap_in_two(guard, new, judged),
            Err(source) => Err(self.rename_error(source)),
        }
    }

    /// The same where names cannot be exchanged: aside with the old, then in with the new.
    fn swap_in_two(
        &self,
        guard: &Guard<'_>,
        new: &Temporary<'_, '_>,
        judged: &Sighting,
    ) -> Result<Swapped, GuardError> {
        let aside = unused_name().map_err(|source| self.rename_error(source))?;
        match self.move_aside(guard, &aside, judged)? {
            Swapped::Expected => {}
            other @ (Swapped::Other | Swapped::Absent) => return Ok(other),
        }
        let published = self.publish(guard, new);
        self.unlink(guard, &aside)?;
        if published? { Ok(Swapped::Expected) } else { Ok(Swapped::Other) }
    }

    /// Takes the record out of its place, if it is the one that was judged.
    fn move_aside(&self, guard: &Guard<'_>, aside: &str, judged: &Sighting) -> Result<Swapped, GuardError> {
        match renameat(guard.as_fd(), self.name.as_str(), guard.as_fd(), aside) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOENT) => return Ok(Swapped::Absent),
            Err(error) => return Err(self.rename_error(error.into())),
        }
        if is_same(guard, aside, judged) {
            return Ok(Swapped::Expected);
        }
        match rename_exchange::publish(guard.as_fd(), aside, self.name.as_str()) {
            Ok(()) => Ok(Swapped::Other),
            // Two foreign programs came in between: the later one has the lock, the earlier one lost it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.unlink(guard, aside)?;
                Ok(Swapped::Other)
            }
            Err(source) => Err(self.rename_error(source)),
        }
    }

    /// Puts back what was exchanged out by mistake. `placed` is the file that we put in its place.
    ///
    /// A foreign heartbeat may replace ours meanwhile, so that its newest record comes out: then that goes back in.
    /// Should the name be gone, the foreign holder has released, and there is nothing to be put back.
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

    pub(super) fn write_error(&self, source: io::Error) -> GuardError {
        GuardError::Write { path: self.path(), source }
    }

    pub(super) fn rename_error(&self, source: io::Error) -> GuardError {
        GuardError::Rename { path: self.path(), source }
    }
}

/// Whether a name holds the file that was judged, with the content that was judged.
fn is_same(guard: &Guard<'_>, name: &str, judged: &Sighting) -> bool {
    let found = hostile::look(guard.as_fd(), name);
    found.is_ok_and(|found| found.is_some_and(|found| found.is_same(judged)))
}

/// Which file has a name now, whatever it is.
fn open_id(guard: &Guard<'_>, name: &str) -> Option<FileId> {
    FileId::at(guard.as_fd(), name).ok()
}
