//! One group lock: acquire, register, release.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper_platform::flock::{self, Sharing, Waited};
use lockkeeper_platform::lock_holders::{self, FileId, LockHolders, LockProcess};
use rustix::fs::fstat;

use super::folder::{FallbackReason, Folders, Opened};
use super::survey::{Liveness, liveness_of};
use super::{GroupError, GroupId, failed};
use crate::registry::{Entry, RegistryError, Status};

/// How to wait for a lock.
pub struct WaitOptions<'p> {
    /// When the wait ends.
    pub until: Option<Instant>,
    /// Descriptors that end the wait when they are readable.
    pub interrupts: &'p [BorrowedFd<'p>],
    /// A function that is called once, after this much time without the lock.
    pub after: (Duration, &'p mut dyn FnMut(&GroupLock)),
}

/// The lock of one group, on an open lock file.
#[derive(Debug)]
pub struct GroupLock {
    group: GroupId,
    opened: Opened,
    /// The caller's own descriptor and its number; without it, the opened file carries the lock.
    inherited: Option<(OwnedFd, i32)>,
    sharing: Sharing,
}

impl GroupLock {
    /// Opens the lock file with a description of its own. The lock lasts until the last process that shares it has ended.
    pub fn open(folders: &Folders, group: &GroupId) -> Result<Self, GroupError> {
        Ok(Self {
            group: group.clone(),
            opened: folders.open(group)?,
            inherited: None,
            sharing: Sharing::Exclusive,
        })
    }

    /// Uses the description that the caller opened as descriptor `number`, as `flock NUMBER` does.
    pub fn on_descriptor(folders: &Folders, group: &GroupId, number: i32) -> Result<Self, GroupError> {
        let descriptor = flock::inherited(number).map_err(|source| GroupError::Io {
            action: "use descriptor of",
            path: folders.first().join(group.file_name()),
            source,
        })?;
        let descriptor = descriptor.ok_or(GroupError::NotOpen { number })?;
        let opened = folders.open(group)?;
        let stat = fstat(&descriptor).map_err(failed("look at", &opened.path))?;
        if !flock::same_file(&stat, &opened.stat) {
            return Err(GroupError::OtherFile { number, path: opened.path });
        }
        let inherited = Some((descriptor, number));
        Ok(Self { group: group.clone(), opened, inherited, sharing: Sharing::Exclusive })
    }

    /// Sets who else may have the lock at the same time.
    #[must_use]
    pub fn sharing(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// Returns the group.
    pub fn group(&self) -> &GroupId {
        &self.group
    }

    /// Returns the path of its file.
    pub fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Returns why the file is in the fallback folder, if it is.
    pub fn fallback(&self) -> Option<&FallbackReason> {
        self.opened.fallback.as_ref()
    }

    /// Returns a descriptor that commands inherit, so that the lock lasts as long as they run.
    pub fn inheritable(&self) -> Result<OwnedFd, GroupError> {
        flock::inheritable(self.descriptor()).map_err(|source| self.failed("share", source))
    }

    /// Returns another descriptor of the locked file, which no command inherits by itself.
    pub fn shared(&self) -> Result<OwnedFd, GroupError> {
        self.descriptor().try_clone_to_owned().map_err(|source| self.failed("share", source))
    }

    /// Returns the process that opened the caller's descriptor: the lock ends with it.
    pub fn opener(&self) -> Option<u32> {
        let (_, number) = self.inherited.as_ref()?;
        lock_holders::opener(*number, self.file_id()).map(|process| process.pid)
    }

    /// Says whether the caller's description carries the lock. Where the system does not show that, tries to take it.
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
            if self.is_current(folders)? {
                return Ok(true);
            }
        }
    }

    /// Waits for the lock.
    pub fn acquire(&mut self, folders: &Folders, patience: WaitOptions<'_>) -> Result<Waited, GroupError> {
        let WaitOptions { until, interrupts, after: (delay, tell) } = patience;
        loop {
            let mut told = || tell(self);
            let waited = flock::wait(self.descriptor(), self.sharing, until, interrupts, (delay, &mut told));
            let waited = waited.map_err(|source| self.failed("lock", source))?;
            if waited != Waited::Locked || self.is_current(folders)? {
                return Ok(waited);
            }
        }
    }

    /// Registers `pid` as the holder, and marks the entries of dead holders of this group.
    pub fn register(&self, pid: u32, now: i64) -> Result<(), RegistryError> {
        let name = self.group.as_str();
        let entry = Entry::active(name, pid, now);
        let died = |found: &Entry| {
            found.group == name && found.pid != pid && matches!(liveness_of(found, now), Liveness::Dead)
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

    /// Registers that `pid` waited since then and did not get the lock.
    pub fn register_timeout(&self, pid: u32, since: i64, now: i64) -> Result<(), RegistryError> {
        let entry = Entry::active(self.group.as_str(), pid, since).ending(Status::Timeout, now);
        self.opened.registry.append(&entry)
    }

    /// Registers the release, and then unlocks. In this order, the registry never shows two holders.
    ///
    /// Unlocks even if the registry cannot be written. Returns that error as the value.
    pub fn release(&self, pid: u32, now: i64) -> Result<Option<RegistryError>, GroupError> {
        let written = self.register_release(pid, now);
        flock::unlock(self.descriptor()).map_err(|source| self.failed("unlock", source))?;
        Ok(written.err())
    }

    /// Registers the release, and does not unlock: `caller` closes its descriptor next, and the kernel unlocks when no
    /// process has the description open any more.
    ///
    /// Returns the processes that still hold the lock then. While there are any, the line stays ACTIVE.
    pub fn release_on_close(
        &self,
        pid: u32,
        caller: u32,
        now: i64,
    ) -> (Vec<LockProcess>, Result<(), RegistryError>) {
        let leaving = [std::process::id(), caller];
        let mut left = self.lock_holders().holders;
        left.retain(|holder| !leaving.contains(&holder.process.pid));
        let written = if left.is_empty() { self.register_release(pid, now) } else { Ok(()) };
        (left, written)
    }

    fn register_release(&self, pid: u32, now: i64) -> Result<(), RegistryError> {
        self.opened.registry.edit(|ledger| {
            let name = self.group.as_str();
            let active = |entry: &Entry| entry.status == Status::Active && entry.group == name;
            // Another process of the same script may have taken the lock. As we hold it, the newest ACTIVE line is ours.
            let chosen = ledger
                .entries()
                .rfind(|entry| active(entry) && entry.pid == pid)
                .or_else(|| ledger.entries().rfind(|entry| active(entry)))
                .cloned();
            match chosen {
                Some(chosen) => drop(ledger.end(Status::Released, now, |entry| *entry == chosen)),
                // Another program's edit lost our line. The release is registered all the same.
                None => ledger.push(Entry::active(name, pid, now).ending(Status::Released, now)),
            }
        })
    }

    /// Returns the processes that hold the lock or wait for it, according to the kernel.
    pub fn lock_holders(&self) -> LockHolders {
        lock_holders::find(&[self.file_id()]).pop().unwrap_or_default()
    }

    /// Describes the holder for messages. Where the kernel shows none, the newest ACTIVE line counts.
    pub fn held_by(&self) -> String {
        if let Some(holder) = self.lock_holders().holders.first() {
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
        flock::try_lock_as(self.descriptor(), self.sharing).map_err(|source| self.failed("lock", source))
    }

    /// Says whether the locked file is still the group's file. If not, nobody else sees our lock: unlocks it, and opens
    /// the current file for the next try.
    fn is_current(&mut self, folders: &Folders) -> Result<bool, GroupError> {
        let found = folders.open(&self.group)?;
        if flock::same_file(&found.stat, &self.opened.stat) {
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
        FileId::of(&self.opened.stat)
    }

    fn failed(&self, action: &'static str, source: std::io::Error) -> GroupError {
        GroupError::Io { action, path: self.opened.path.clone(), source }
    }
}

/// Describes a process for people.
pub(super) fn describe(process: &LockProcess) -> String {
    format!("process {} (`{}`)", process.process.pid, process.command)
}
