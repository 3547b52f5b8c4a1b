//! One group lock: taken, written into the registry, given back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::fstat;

use super::folder::{Folders, Opened, Unusable};
use super::survey::{Life, life_of};
use super::{GroupError, GroupId, failed};
use crate::registry::{Entry, RegistryError, Status};
use lockkeeper_platform::flock::{self, Waited};
use lockkeeper_platform::lock_holders::{self, FileId, LockHolders, LockProcess};

/// How long and how to wait.
pub struct Patience<'p> {
    /// Until when.
    pub until: Option<Instant>,
    /// What cuts the wait short when it can be read.
    pub interrupts: &'p [BorrowedFd<'p>],
    /// Told once, after this much time in vain.
    pub after: (Duration, &'p mut dyn FnMut(&GroupLock)),
}

/// The lock of one group, on an open lock file.
#[derive(Debug)]
pub struct GroupLock {
    group: GroupId,
    opened: Opened,
    /// A caller's own description, whose number this is; without it, the opened file carries the lock.
    inherited: Option<(OwnedFd, i32)>,
}

impl GroupLock {
    /// Opens the lock on a description of its own: it lasts until the last process that shares it is gone.
    pub fn open(folders: &Folders, group: &GroupId) -> Result<Self, GroupError> {
        Ok(Self { group: group.clone(), opened: folders.open(group)?, inherited: None })
    }

    /// Takes up the lock on the description that the caller opened as `number`, as `flock NUMBER` does.
    pub fn on_descriptor(folders: &Folders, group: &GroupId, number: i32) -> Result<Self, GroupError> {
        let descriptor = flock::inherited(number).map_err(|source| GroupError::Io {
            action: "use descriptor of",
            path: folders.first().join(group.file_name()),
            source,
        })?;
        let descriptor = descriptor.ok_or(GroupError::NotOpen { number })?;
        let opened = folders.open(group)?;
        let facts = fstat(&descriptor).map_err(failed("look at", &opened.path))?;
        if !flock::same_file(&facts, &opened.facts) {
            return Err(GroupError::OtherFile { number, path: opened.path });
        }
        Ok(Self { group: group.clone(), opened, inherited: Some((descriptor, number)) })
    }

    /// The group.
    pub fn group(&self) -> &GroupId {
        &self.group
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Why the file is not where it should be, if it is not.
    pub fn unusable(&self) -> Option<&Unusable> {
        self.opened.unusable.as_ref()
    }

    /// A descriptor that commands inherit, so that the lock outlives this process as long as they run.
    pub fn inheritable(&self) -> Result<OwnedFd, GroupError> {
        flock::inheritable(self.descriptor()).map_err(|source| self.failed("share", source))
    }

    /// The process that the lock lives and dies with, if the caller's descriptor tells.
    pub fn opener(&self) -> Option<u32> {
        let (_, number) = self.inherited.as_ref()?;
        lock_holders::opener(*number, self.file_id()).map(|process| process.pid)
    }

    /// Whether the caller's description carries the lock; where the system does not tell, whether it can be taken.
    pub fn is_ours(&self) -> Result<bool, GroupError> {
        match lock_holders::carries_lock(flock::number(self.descriptor())) {
            Some(carries) => Ok(carries),
            None => self.try_lock(),
        }
    }

    /// Takes the lock if nobody has it.
    pub fn try_acquire(&mut self, folders: &Folders) -> Result<bool, GroupError> {
        loop {
            if !self.try_lock()? {
                return Ok(false);
            }
            if self.stands(folders)? {
                return Ok(true);
            }
        }
    }

    /// Waits for the lock.
    pub fn acquire(&mut self, folders: &Folders, patience: Patience<'_>) -> Result<Waited, GroupError> {
        let Patience { until, interrupts, after: (delay, tell) } = patience;
        loop {
            let mut told = || tell(self);
            let waited = flock::wait(self.descriptor(), until, interrupts, (delay, &mut told));
            let waited = waited.map_err(|source| self.failed("lock", source))?;
            if waited != Waited::Locked || self.stands(folders)? {
                return Ok(waited);
            }
        }
    }

    /// Writes that `pid` holds it, and strikes off those of this group who died with it.
    pub fn register(&self, pid: u32, now: i64) -> Result<(), RegistryError> {
        let name = self.group.as_str();
        let entry = Entry::active(name, pid, now);
        let died = |found: &Entry| {
            found.group == name && found.pid != pid && matches!(life_of(found, now), Life::Dead)
        };
        let is_active = |found: &&Entry| found.status == Status::Active;
        let ledger = self.opened.registry.read()?;
        if ledger.entries().filter(is_active).any(|found| found.group == name && found.pid == pid) {
            return Ok(());
        }
        if !ledger.entries().filter(is_active).any(died) {
            return self.opened.registry.append(&entry);
        }
        self.opened.registry.edit(|ledger| {
            ledger.end(Status::OrphanCleaned, now, |found| found.status == Status::Active && died(found));
            ledger.push(entry.clone());
        })
    }

    /// Writes that `pid` waited since then in vain.
    pub fn register_timeout(&self, pid: u32, since: i64, now: i64) -> Result<(), RegistryError> {
        let entry = Entry::active(self.group.as_str(), pid, since).ending(Status::Timeout, now);
        self.opened.registry.append(&entry)
    }

    /// Writes that the lock is given back, and then gives it back: nobody ever reads of two holders.
    ///
    /// That the registry cannot be written does not keep the lock; the error is handed out beside.
    pub fn release(&self, pid: u32, now: i64) -> Result<Option<RegistryError>, GroupError> {
        let written = self.opened.registry.edit(|ledger| {
            let name = self.group.as_str();
            let active = |entry: &Entry| entry.status == Status::Active && entry.group == name;
            // Another process of the same script may have taken it. Only the holder's own line can be younger than
            // every other, since we hold the lock.
            let chosen = ledger
                .entries()
                .rfind(|entry| active(entry) && entry.pid == pid)
                .or_else(|| ledger.entries().rfind(|entry| active(entry)))
                .cloned();
            match chosen {
                Some(chosen) => drop(ledger.end(Status::Released, now, |entry| *entry == chosen)),
                // Somebody's edit lost it: the end of the story is told all the same.
                None => ledger.push(Entry::active(name, pid, now).ending(Status::Released, now)),
            }
        });
        flock::unlock(self.descriptor()).map_err(|source| self.failed("unlock", source))?;
        Ok(written.err())
    }

    /// Who holds and who waits, by the kernel's word.
    pub fn sight(&self) -> LockHolders {
        lock_holders::find(&[self.file_id()]).pop().unwrap_or_default()
    }

    /// The others who hold it, for messages; the newest ACTIVE line where the kernel does not tell.
    pub fn held_by(&self) -> String {
        let sight = self.sight();
        if let Some(holder) = sight.holders.first() {
            return describe(holder);
        }
        let ledger = self.opened.registry.read().unwrap_or_default();
        let active = |entry: &&Entry| entry.status == Status::Active && entry.group == self.group.as_str();
        match ledger.entries().rfind(active) {
            Some(entry) => format!("process {} by the registry", entry.pid),
            None => "a process that cannot be seen from here".to_owned(),
        }
    }

    fn try_lock(&self) -> Result<bool, GroupError> {
        flock::try_lock(self.descriptor()).map_err(|source| self.failed("lock", source))
    }

    /// Whether the locked file is still the group's; if not, nobody else can know of our lock, and we try again.
    fn stands(&mut self, folders: &Folders) -> Result<bool, GroupError> {
        let found = folders.open(&self.group)?;
        if flock::same_file(&found.facts, &self.opened.facts) {
            return Ok(true);
        }
        flock::unlock(self.descriptor()).map_err(|source| self.failed("unlock", source))?;
        if self.inherited.is_some() {
            return Err(GroupError::Replaced { path: self.opened.path.clone() });
        }
        self.opened = found;
        Ok(false)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.inherited {
            Some((descriptor, _)) => descriptor.as_fd(),
            None => self.opened.file.as_fd(),
        }
    }

    fn file_id(&self) -> FileId {
        FileId::of(&self.opened.facts)
    }

    fn failed(&self, action: &'static str, source: std::io::Error) -> GroupError {
        GroupError::Io { action, path: self.opened.path.clone(), source }
    }
}

/// A process, as people read it.
pub(super) fn describe(locker: &LockProcess) -> String {
    format!("process {} (`{}`)", locker.process.pid, locker.command)
}
