//! Survey of all groups: compares the registry with the kernel's locks, and marks entries of dead processes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_platform::lock_holders::{self, FileId, LockHolders};
use lockkeeper_platform::process::{self, IdentifyError};

use super::{Folders, GroupError};
use crate::registry::{Entry, Registry, Status};

/// A process that started this much later than the line with its pid is another process.
const REUSE_SLACK: Duration = Duration::from_secs(5);

/// Whether the process of a line is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It is alive.
    Alive,
    /// It has ended, or another process has its pid now.
    Dead,
    /// The system does not say.
    Unknown,
}

/// An ACTIVE line of the registry, and the state of its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line.
    pub entry: Entry,
    /// Whether its process is alive.
    pub liveness: Liveness,
    /// Its age; zero when its time is in the future.
    pub age: Duration,
}

/// A group with its lock and its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub id: String,
    /// Its lock file.
    pub path: PathBuf,
    /// The processes that hold the lock or wait for it, according to the kernel.
    pub lock: LockHolders,
    /// Its ACTIVE lines.
    pub findings: Vec<Finding>,
}

/// A deadlock: the holder of each group waits for the next group, and the holder of the last for the first.
pub type Cycle = Vec<String>;

/// All groups at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// All groups, by name.
    pub groups: Vec<Group>,
    /// Lines that cannot be parsed: file, line number, text.
    pub malformed: Vec<(PathBuf, usize, String)>,
}

impl Survey {
    /// Reads everything. Changes nothing.
    pub fn take(folders: &Folders, now: i64) -> Result<Self, GroupError> {
        let mut survey = Self::default();
        for folder in folders.existing() {
            survey.read_folder(&folder, now)?;
        }
        // Read after the registry: a holder writes its release before it unlocks, so an ACTIVE line is not released yet.
        let files: Vec<Option<FileId>> = survey.groups.iter().map(|group| file_id(&group.path)).collect();
        let known: Vec<FileId> = files.iter().flatten().copied().collect();
        let mut found = lock_holders::find(&known).into_iter();
        for (group, file) in survey.groups.iter_mut().zip(files) {
            group.lock = match file {
                Some(_) => found.next().unwrap_or_default(),
                None => LockHolders { complete: true, ..LockHolders::default() },
            };
        }
        Ok(survey)
    }

    /// Finds deadlocks: follows the kernel's waits from group to group.
    pub fn cycles(&self) -> Vec<Cycle> {
        let mut waits: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for held in &self.groups {
            for wanted in self.groups.iter().filter(|wanted| wanted.id != held.id) {
                let stuck =
                    wanted.lock.waiters.iter().any(|waiter| {
                        held.lock.holders.iter().any(|holder| holder.process == waiter.process)
                    });
                if stuck {
                    waits.entry(&held.id).or_default().insert(&wanted.id);
                }
            }
        }
        cycles(&waits)
    }

    /// Returns the lines of live processes whose file nobody has locked: they closed it without a release.
    pub fn closed(&self) -> Vec<&Entry> {
        let unlocked = |group: &&Group| group.lock.complete && group.lock.holders.is_empty();
        let findings = self.groups.iter().filter(unlocked).flat_map(|group| &group.findings);
        findings.filter(|finding| finding.liveness == Liveness::Alive).map(|finding| &finding.entry).collect()
    }

    fn read_folder(&mut self, folder: &Path, now: i64) -> Result<(), GroupError> {
        let registry = Registry::new(folder);
        let ledger = registry.read()?;
        self.malformed
            .extend(ledger.malformed().map(|(number, text)| (registry.path().to_owned(), number, text)));
        let mut groups: BTreeMap<String, Vec<Finding>> = lock_files(folder)?;
        for entry in ledger.entries().filter(|entry| entry.status == Status::Active) {
            let age = Duration::from_secs(u64::try_from(now.saturating_sub(entry.since)).unwrap_or(0));
            let finding = Finding { entry: entry.clone(), liveness: liveness_of(entry, now), age };
            groups.entry(entry.group.clone()).or_default().push(finding);
        }
        self.groups.extend(groups.into_iter().map(|(id, findings)| {
            let path = folder.join(format!("{id}.lock"));
            Group { id, path, lock: LockHolders::default(), findings }
        }));
        Ok(())
    }
}

/// The lines that were marked, by their new status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleanup {
    /// Marked TIMEOUT, because they were too old.
    pub timeouts: Vec<Entry>,
    /// Marked ORPHAN_CLEANED.
    pub orphans: Vec<Entry>,
    /// Marked RELEASED, because the file was closed without a release.
    pub closed: Vec<Entry>,
    /// Marked FORCE_RELEASED.
    pub forced: Vec<Entry>,
}

/// Marks every line of a dead process ORPHAN_CLEANED, of whatever age, and every line whose file was closed RELEASED.
pub fn clean_up(folders: &Folders, now: i64) -> Result<Cleanup, GroupError> {
    let survey = Survey::take(folders, now)?;
    let closed = survey.closed();
    let mut cleanup = Cleanup::default();
    for folder in folders.existing() {
        let (orphans, released) = Registry::new(&folder).edit(|ledger| {
            let dead =
                |entry: &Entry| entry.status == Status::Active && liveness_of(entry, now) == Liveness::Dead;
            let orphans = ledger.end(Status::OrphanCleaned, now, dead);
            (orphans, ledger.end(Status::Released, now, |entry| closed.contains(&entry)))
        })?;
        cleanup.orphans.extend(orphans);
        cleanup.closed.extend(released);
    }
    Ok(cleanup)
}

/// Marks lines of dead processes that are older than allowed: TIMEOUT first, then ORPHAN_CLEANED.
pub fn check(folders: &Folders, max_age: Duration, now: i64) -> Result<Cleanup, GroupError> {
    let mut cleanup = Cleanup::default();
    let oldest = now.saturating_sub(i64::try_from(max_age.as_secs()).unwrap_or(i64::MAX));
    for folder in folders.existing() {
        let registry = Registry::new(&folder);
        let timeouts = registry.edit(|ledger| {
            ledger.end(Status::Timeout, now, |entry| {
                entry.since < oldest && liveness_of(entry, now) == Liveness::Dead
            })
        })?;
        let cleaned = registry.edit(|ledger| {
            let timed_out = |entry: &Entry| {
                let before = timeouts.iter().find(|timeout| same_lock(timeout, entry));
                before.is_some() && entry.status == Status::Timeout
            };
            ledger.end(Status::OrphanCleaned, now, timed_out)
        })?;
        cleanup.timeouts.extend(timeouts);
        cleanup.orphans.extend(cleaned);
    }
    Ok(cleanup)
}

/// Marks every ACTIVE line FORCE_RELEASED. The kernel's locks stay with their holders.
pub fn force(folders: &Folders, now: i64) -> Result<Cleanup, GroupError> {
    let mut cleanup = Cleanup::default();
    for folder in folders.existing() {
        let forced =
            Registry::new(&folder).edit(|ledger| ledger.end(Status::ForceReleased, now, |_| true))?;
        cleanup.forced.extend(forced);
    }
    Ok(cleanup)
}

/// Checks whether the process of a line is alive.
pub fn liveness_of(entry: &Entry, now: i64) -> Liveness {
    match process::identify(entry.pid) {
        Ok(found) => {
            let line = Duration::from_secs(u64::try_from(now.saturating_sub(entry.since)).unwrap_or(0));
            let younger = process::age(found).is_some_and(|age| age + REUSE_SLACK < line);
            if younger { Liveness::Dead } else { Liveness::Alive }
        }
        Err(IdentifyError::NotRunning(_) | IdentifyError::Thread(_) | IdentifyError::OutOfRange(_)) => {
            Liveness::Dead
        }
        Err(IdentifyError::Unreadable { .. }) => Liveness::Unknown,
    }
}

fn same_lock(one: &Entry, other: &Entry) -> bool {
    (&one.lock_id, one.pid, &one.group, one.since) == (&other.lock_id, other.pid, &other.group, other.since)
}

fn lock_files(folder: &Path) -> Result<BTreeMap<String, Vec<Finding>>, GroupError> {
    let failed = |source| GroupError::Io { action: "read", path: folder.to_owned(), source };
    let names = std::fs::read_dir(folder).map_err(failed)?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| Some((name.strip_suffix(".lock")?.to_owned(), Vec::new()))).collect())
}

fn file_id(path: &Path) -> Option<FileId> {
    let meta = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(FileId { device: meta.dev(), inode: meta.ino() })
}

/// Returns every cycle once, starting at its smallest name.
fn cycles(waits: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Cycle> {
    let mut found = Vec::new();
    for start in waits.keys() {
        let mut path = vec![*start];
        follow(waits, &mut path, &mut BTreeSet::new(), &mut found);
    }
    found
}

fn follow<'g>(
    waits: &BTreeMap<&'g str, BTreeSet<&'g str>>,
    path: &mut Vec<&'g str>,
    seen: &mut BTreeSet<&'g str>,
    found: &mut Vec<Cycle>,
) {
    let (start, last) = (path[0], path[path.len() - 1]);
    for next in waits.get(last).into_iter().flatten() {
        if *next == start {
            found.push(path.iter().map(|group| (*group).to_owned()).collect());
        } else if *next > start && seen.insert(next) {
            path.push(next);
            follow(waits, path, seen, found);
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_once() {
        let waits = BTreeMap::from([
            ("a", BTreeSet::from(["b"])),
            ("b", BTreeSet::from(["c"])),
            ("c", BTreeSet::from(["a"])),
            ("d", BTreeSet::from(["a"])),
        ]);
        assert_eq!(cycles(&waits), [["a", "b", "c"]]);
        assert!(cycles(&BTreeMap::from([("a", BTreeSet::from(["b"]))])).is_empty());
    }

    /// Requirement 111.
    #[test]
    fn a_pid_that_was_reused_is_dead() {
        let own = std::process::id();
        assert_eq!(liveness_of(&Entry::active("g", own, 1_000), 1_000), Liveness::Alive);
        assert_eq!(liveness_of(&Entry::active("g", own, 1_000), 1_000 + 100_000_000), Liveness::Dead);
        assert_eq!(liveness_of(&Entry::active("g", own, 5_000), 1_000), Liveness::Alive);
    }
}
