//! What is to be seen of all groups: the registry's word, the kernel's word, and what to make of both.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Folders, GroupError};
use crate::registry::{Entry, Registry, Status};
use lockkeeper_platform::lock_holders::{self, FileId, LockHolders};
use lockkeeper_platform::process::{self, IdentifyError};

/// A process that is this much younger than the line with its number is another process.
const REUSE_SLACK: Duration = Duration::from_secs(5);

/// Whether the process of a line lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Alive,
    /// It has ended, or its number belongs to another process by now.
    Dead,
    /// The system does not tell.
    Unknown,
}

/// An ACTIVE line and what is to be made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line.
    pub entry: Entry,
    /// Whether its process lives.
    pub life: Life,
    /// How old it is; zero when it lies in the future.
    pub age: Duration,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub id: String,
    /// Its lock file.
    pub path: PathBuf,
    /// Who holds and waits, by the kernel's word.
    pub sight: LockHolders,
    /// Its ACTIVE lines.
    pub findings: Vec<Finding>,
}

/// Holders that wait for each other: each group is held by somebody who waits for the next one, round in a circle.
pub type Circle = Vec<String>;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// All groups, by name.
    pub groups: Vec<Group>,
    /// Lines that are not understood: file, number, text.
    pub odd: Vec<(PathBuf, usize, String)>,
}

impl Survey {
    /// Looks at everything; changes nothing.
    pub fn take(folders: &Folders, now: i64) -> Result<Self, GroupError> {
        let mut survey = Self::default();
        for folder in folders.existing() {
            survey.look_into(&folder, now)?;
        }
        // After the registry: whoever gives a lock back writes that first, so a line that stands is not yet given back.
        let files: Vec<Option<FileId>> = survey.groups.iter().map(|group| file_id(&group.path)).collect();
        let known: Vec<FileId> = files.iter().flatten().copied().collect();
        let mut sights = lock_holders::find(&known).into_iter();
        for (group, file) in survey.groups.iter_mut().zip(files) {
            group.sight = match file {
                Some(_) => sights.next().unwrap_or_default(),
                None => LockHolders { complete: true, ..LockHolders::default() },
            };
        }
        Ok(survey)
    }

    /// Those who can never go on: the kernel's waits, followed from group to group.
    pub fn circles(&self) -> Vec<Circle> {
        let mut waits: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for held in &self.groups {
            for wanted in self.groups.iter().filter(|wanted| wanted.id != held.id) {
                let stuck =
                    wanted.sight.waiters.iter().any(|waiter| {
                        held.sight.holders.iter().any(|holder| holder.process == waiter.process)
                    });
                if stuck {
                    waits.entry(&held.id).or_default().insert(&wanted.id);
                }
            }
        }
        circles(&waits)
    }

    /// Lines whose process lives although nobody has the file locked: closed without a word.
    pub fn closed(&self) -> Vec<&Entry> {
        let unlocked = |group: &&Group| group.sight.complete && group.sight.holders.is_empty();
        let findings = self.groups.iter().filter(unlocked).flat_map(|group| &group.findings);
        findings.filter(|finding| finding.life == Life::Alive).map(|finding| &finding.entry).collect()
    }

    fn look_into(&mut self, folder: &Path, now: i64) -> Result<(), GroupError> {
        let registry = Registry::new(folder);
        let ledger = registry.read()?;
        self.odd.extend(ledger.odd().map(|(number, text)| (registry.path().to_owned(), number, text)));
        let mut groups: BTreeMap<String, Vec<Finding>> = lock_files(folder)?;
        for entry in ledger.entries().filter(|entry| entry.status == Status::Active) {
            let age = Duration::from_secs(u64::try_from(now.saturating_sub(entry.since)).unwrap_or(0));
            let finding = Finding { entry: entry.clone(), life: life_of(entry, now), age };
            groups.entry(entry.group.clone()).or_default().push(finding);
        }
        self.groups.extend(groups.into_iter().map(|(id, findings)| {
            let path = folder.join(format!("{id}.lock"));
            Group { id, path, sight: LockHolders::default(), findings }
        }));
        Ok(())
    }
}

/// What became of the lines that were swept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Marked TIMEOUT first, since they were too old as well.
    pub timeouts: Vec<Entry>,
    /// Marked ORPHAN_CLEANED.
    pub orphans: Vec<Entry>,
    /// Marked RELEASED: closed without a word.
    pub closed: Vec<Entry>,
    /// Marked FORCE_RELEASED.
    pub forced: Vec<Entry>,
}

/// Marks every dead line ORPHAN_CLEANED, whatever its age, and every line whose lock is closed RELEASED.
pub fn clean_up(folders: &Folders, now: i64) -> Result<Swept, GroupError> {
    let survey = Survey::take(folders, now)?;
    let closed = survey.closed();
    let mut swept = Swept::default();
    for folder in folders.existing() {
        let (orphans, released) = Registry::new(&folder).edit(|ledger| {
            let dead = |entry: &Entry| entry.status == Status::Active && life_of(entry, now) == Life::Dead;
            let orphans = ledger.end(Status::OrphanCleaned, now, dead);
            (orphans, ledger.end(Status::Released, now, |entry| closed.contains(&entry)))
        })?;
        swept.orphans.extend(orphans);
        swept.closed.extend(released);
    }
    Ok(swept)
}

/// Marks dead lines that are older than allowed: TIMEOUT first, then ORPHAN_CLEANED.
pub fn check(folders: &Folders, max_age: Duration, now: i64) -> Result<Swept, GroupError> {
    let mut swept = Swept::default();
    let oldest = now.saturating_sub(i64::try_from(max_age.as_secs()).unwrap_or(i64::MAX));
    for folder in folders.existing() {
        let registry = Registry::new(&folder);
        let timeouts = registry.edit(|ledger| {
            ledger
                .end(Status::Timeout, now, |entry| entry.since < oldest && life_of(entry, now) == Life::Dead)
        })?;
        let cleaned = registry.edit(|ledger| {
            let timed_out = |entry: &Entry| {
                let before = timeouts.iter().find(|timeout| same_lock(timeout, entry));
                before.is_some() && entry.status == Status::Timeout
            };
            ledger.end(Status::OrphanCleaned, now, timed_out)
        })?;
        swept.timeouts.extend(timeouts);
        swept.orphans.extend(cleaned);
    }
    Ok(swept)
}

/// Marks every ACTIVE line FORCE_RELEASED. The kernel's locks stay with those who have them.
pub fn force(folders: &Folders, now: i64) -> Result<Swept, GroupError> {
    let mut swept = Swept::default();
    for folder in folders.existing() {
        let forced =
            Registry::new(&folder).edit(|ledger| ledger.end(Status::ForceReleased, now, |_| true))?;
        swept.forced.extend(forced);
    }
    Ok(swept)
}

/// Looks whether the process of a line lives.
pub fn life_of(entry: &Entry, now: i64) -> Life {
    match process::identify(entry.pid) {
        Ok(found) => {
            let line = Duration::from_secs(u64::try_from(now.saturating_sub(entry.since)).unwrap_or(0));
            let younger = process::age(found).is_some_and(|age| age + REUSE_SLACK < line);
            if younger { Life::Dead } else { Life::Alive }
        }
        Err(IdentifyError::NotRunning(_) | IdentifyError::Thread(_) | IdentifyError::OutOfRange(_)) => {
            Life::Dead
        }
        Err(IdentifyError::Unreadable { .. }) => Life::Unknown,
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

/// Every circle once, begun at its smallest name.
fn circles(waits: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Circle> {
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
    found: &mut Vec<Circle>,
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
    fn a_circle_is_found_once() {
        let waits = BTreeMap::from([
            ("a", BTreeSet::from(["b"])),
            ("b", BTreeSet::from(["c"])),
            ("c", BTreeSet::from(["a"])),
            ("d", BTreeSet::from(["a"])),
        ]);
        assert_eq!(circles(&waits), [["a", "b", "c"]]);
        assert!(circles(&BTreeMap::from([("a", BTreeSet::from(["b"]))])).is_empty());
    }

    /// Requirement 111.
    #[test]
    fn a_number_that_was_given_again_is_dead() {
        let own = std::process::id();
        assert_eq!(life_of(&Entry::active("g", own, 1_000), 1_000), Life::Alive);
        assert_eq!(life_of(&Entry::active("g", own, 1_000), 1_000 + 100_000_000), Life::Dead);
        assert_eq!(life_of(&Entry::active("g", own, 5_000), 1_000), Life::Alive);
    }
}
