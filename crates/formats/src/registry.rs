//! The registry of group locks: one line a lock, `lock_id:pid:group_id:timestamp:status`.
//!
//! It tells who took which lock and what became of it; whether a lock is held, only the kernel says. A line begins as
//! ACTIVE and ends as exactly one of the others. Shell scripts append to the file and edit it with `sed -i` at the same
//! time, so every line that is not understood is kept as it stands.

mod error;
mod file;

use std::fmt;

pub use error::RegistryError;
pub use file::Registry;

use lockkeeper_platform::process::MAX_PID;

/// The first line of a new registry.
pub const HEADER: &str = "# Format: lock_id:pid:group_id:timestamp:status";

/// Nothing that we or the scripts write comes near this.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// What became of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is held, as far as its holder said.
    Active,
    /// Its holder gave it back.
    Released,
    /// Its waiter waited in vain, or it was older than allowed and its holder dead.
    Timeout,
    /// Its holder had died.
    OrphanCleaned,
    /// Only ever read: other programs write it when the locked command failed.
    Failed,
    /// Somebody struck it off by force.
    ForceReleased,
}

impl Status {
    const ALL: [Self; 6] =
        [Self::Active, Self::Released, Self::Timeout, Self::OrphanCleaned, Self::Failed, Self::ForceReleased];

    /// The word in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Released => "RELEASED",
            Self::Timeout => "TIMEOUT",
            Self::OrphanCleaned => "ORPHAN_CLEANED",
            Self::Failed => "FAILED",
            Self::ForceReleased => "FORCE_RELEASED",
        }
    }

    /// Whether a line may go from this status to `next`: from ACTIVE to every end, and from TIMEOUT to cleaned.
    pub const fn leads_to(self, next: Self) -> bool {
        match (self, next) {
            (Self::Active, Self::Active) => false,
            (Self::Active, _) | (Self::Timeout, Self::OrphanCleaned) => true,
            (
                Self::Released | Self::Timeout | Self::OrphanCleaned | Self::Failed | Self::ForceReleased,
                _,
            ) => false,
        }
    }
}

/// A line that was understood. Times are seconds of the wall clock, which is all that the format has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The lock; the group's own name in all that is known.
    pub lock_id: String,
    /// The process that stands for it.
    pub pid: u32,
    /// The group.
    pub group: String,
    /// When it was taken.
    pub since: i64,
    /// What became of it.
    pub status: Status,
    /// When that was, where the line says so.
    pub ended: Option<i64>,
}

impl Entry {
    /// A lock that was taken now.
    pub fn active(group: &str, pid: u32, now: i64) -> Self {
        let (lock_id, group) = (group.to_owned(), group.to_owned());
        Self { lock_id, pid, group, since: now, status: Status::Active, ended: None }
    }

    /// The same lock with another end. An orphan has no second time: nobody knows when it ended.
    #[must_use]
    pub fn ending(mut self, status: Status, now: i64) -> Self {
        self.status = status;
        self.ended = match status {
            Status::Active | Status::OrphanCleaned => None,
            Status::Released | Status::Timeout | Status::Failed | Status::ForceReleased => Some(now),
        };
        self
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let fields: Vec<&str> = str::from_utf8(line).ok()?.trim_end_matches('\r').split(':').collect();
        let (front, ended) = match fields[..] {
            [_, _, _, _, _] => (&fields[..], None),
            [_, _, _, _, _, ended] => (&fields[..5], Some(ended.parse().ok()?)),
            _ => return None,
        };
        let [lock_id, pid, group, since, word] = front else { return None };
        let pid = pid.parse().ok().filter(|pid| (1..=MAX_PID).contains(pid))?;
        let status = Status::ALL.into_iter().find(|status| status.word() == *word)?;
        if lock_id.is_empty() || group.is_empty() {
            return None;
        }
        let (lock_id, group) = ((*lock_id).to_owned(), (*group).to_owned());
        Some(Self { lock_id, pid, group, since: since.parse().ok()?, status, ended })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lock_id, pid, group, since, status, ended } = self;
        write!(f, "{lock_id}:{pid}:{group}:{since}:{}", status.word())?;
        ended.map_or(Ok(()), |ended| write!(f, ":{ended}"))
    }
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Entry(Entry),
    /// Nothing to read: a comment or an empty line.
    Comment,
    /// Torn, damaged or of another program.
    Odd,
}

/// All lines of a registry, those that are not understood included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    lines: Vec<(Vec<u8>, Line)>,
}

impl Ledger {
    /// Reads the whole file; nothing in it is an error.
    pub fn parse(bytes: &[u8]) -> Self {
        let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        if body.is_empty() {
            return Self::default();
        }
        let line = |raw: &[u8]| {
            let blank = raw.first().is_none_or(|first| *first == b'#') || raw.trim_ascii().is_empty();
            let line = match Entry::parse(raw) {
                _ if blank => Line::Comment,
                Some(entry) => Line::Entry(entry),
                None => Line::Odd,
            };
            (raw.to_owned(), line)
        };
        Self { lines: body.split(|byte| *byte == b'\n').map(line).collect() }
    }

    /// The file that it was read from, or that it became.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|(raw, _)| raw.iter().copied().chain([b'\n'])).collect()
    }

    /// The lines that were understood, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.lines.iter().filter_map(|(_, line)| match line {
            Line::Entry(entry) => Some(entry),
            Line::Comment | Line::Odd => None,
        })
    }

    /// The lines that were not, with their numbers from 1 and without anything that could disturb a terminal.
    pub fn odd(&self) -> impl Iterator<Item = (usize, String)> {
        self.lines.iter().enumerate().filter(|(_, (_, line))| *line == Line::Odd).map(|(place, (raw, _))| {
            let text: String = String::from_utf8_lossy(raw).escape_debug().take(80).collect();
            (place + 1, text)
        })
    }

    /// Adds a line.
    pub fn push(&mut self, entry: Entry) {
        self.lines.push((entry.to_string().into_bytes(), Line::Entry(entry)));
    }

    /// Ends every line that `chosen` picks and that may end so; returns them as they were.
    pub fn end(&mut self, status: Status, now: i64, mut chosen: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let mut ended = Vec::new();
        for (raw, line) in &mut self.lines {
            match line {
                Line::Entry(entry) if entry.status.leads_to(status) && chosen(entry) => {
                    ended.push(entry.clone());
                    *entry = entry.clone().ending(status, now);
                    *raw = entry.to_string().into_bytes();
                }
                Line::Entry(_) | Line::Comment | Line::Odd => {}
            }
        }
        ended
    }

    /// Takes out the oldest finished lines until the rest fits into `bytes`; what is active or odd always stays.
    pub fn rotate(&mut self, bytes: usize) -> Vec<u8> {
        let mut excess = self.lines.iter().map(|(raw, _)| raw.len() + 1).sum::<usize>().saturating_sub(bytes);
        let mut old = Vec::new();
        self.lines.retain(|(raw, line)| {
            let finished = matches!(line, Line::Entry(entry) if entry.status != Status::Active);
            if !finished || excess == 0 {
                return true;
            }
            excess = excess.saturating_sub(raw.len() + 1);
            old.extend_from_slice(raw);
            old.push(b'\n');
            false
        });
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "# Format: lock_id:pid:group_id:timestamp:status\n\
        impl-backend:12345:impl-backend:1728456789:ACTIVE\n\
        impl-frontend:12346:impl-frontend:1728456790:RELEASED:1728456800\n\
        test-unit:12347:test-unit:1728456791:TIMEOUT:1728456821\n\
        old:12348:old:1728456791:ORPHAN_CLEANED\n";

    /// Requirements 101, 102.
    #[test]
    fn the_documents_own_example_is_read_and_written_back() {
        let ledger = Ledger::parse(SEED.as_bytes());
        assert_eq!(ledger.to_bytes(), SEED.as_bytes());
        let words: Vec<&str> = ledger.entries().map(|entry| entry.status.word()).collect();
        assert_eq!(words, ["ACTIVE", "RELEASED", "TIMEOUT", "ORPHAN_CLEANED"]);
        let released = ledger.entries().nth(1).unwrap();
        assert_eq!((released.pid, released.since, released.ended), (12346, 1728456790, Some(1728456800)));
        assert_eq!(ledger.odd().count(), 0);
    }

    /// Requirement 103.
    #[test]
    fn a_line_ends_once_and_only_a_timeout_is_cleaned_afterwards() {
        let pairs: Vec<(Status, Status)> = Status::ALL
            .into_iter()
            .flat_map(|from| Status::ALL.into_iter().map(move |to| (from, to)))
            .filter(|(from, to)| from.leads_to(*to))
            .collect();
        let ends = Status::ALL.into_iter().filter(|end| *end != Status::Active);
        let mut wanted: Vec<(Status, Status)> = ends.map(|end| (Status::Active, end)).collect();
        wanted.push((Status::Timeout, Status::OrphanCleaned));
        assert_eq!(pairs, wanted);
    }

    /// Requirement 101.
    #[test]
    fn what_is_not_understood_is_kept_and_told() {
        let odd = [
            "no colons",
            "a:1:b:2:WHAT",
            "a:0:b:2:ACTIVE",
            "a:-1:b:2:ACTIVE",
            "a:4194305:b:2:ACTIVE",
            ":1:b:2:ACTIVE",
            "a:1:b:x:ACTIVE",
            "a:1:b:2:RELEASED:x",
            "a:1:b:2:RELEASED:3:4",
            "a:1:b:2:ACT",
        ];
        let mut bytes = odd.join("\n").into_bytes();
        bytes.extend_from_slice(b"\n\xff\xfe:1:b:2:ACTIVE\n\n# note\na:1:b:2:ACTIVE\ntorn:1:b");
        let mut ledger = Ledger::parse(&bytes);
        assert_eq!(ledger.odd().count(), odd.len() + 2);
        let ended = ledger.end(Status::Released, 9, |_| true);
        assert_eq!(ended.len(), 1);
        let text = ledger.to_bytes();
        assert!(text.ends_with(b"# note\na:1:b:2:RELEASED:9\ntorn:1:b\n"));
        assert!(text.starts_with(odd.join("\n").as_bytes()));
    }

    #[test]
    fn rotation_takes_the_oldest_finished_lines_only() {
        let mut ledger = Ledger::parse(SEED.as_bytes());
        let before = ledger.to_bytes().len();
        let old = ledger.rotate(before - 10);
        assert_eq!(old, b"impl-frontend:12346:impl-frontend:1728456790:RELEASED:1728456800\n");
        let old = ledger.rotate(0);
        assert_eq!(old.iter().filter(|byte| **byte == b'\n').count(), 2);
        let left = String::from_utf8(ledger.to_bytes()).unwrap();
        assert_eq!(left, SEED.lines().take(2).collect::<Vec<_>>().join("\n") + "\n");
    }
}
