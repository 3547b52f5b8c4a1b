//! Group lock registry: one line for each lock, `lock_id:pid:group_id:timestamp:status`.
//!
//! It records who took which lock and how that ended. Only the kernel knows whether a lock is held. A line starts as
//! ACTIVE and ends with exactly one of the other statuses. Shell scripts append to the file and edit it with `sed -i` at
//! the same time, so every line that cannot be parsed is kept unchanged.

mod error;
mod file;

use std::fmt;

use lockkeeper_platform::process::MAX_PID;

pub use error::RegistryError;
pub use file::Registry;

/// The first line of a new registry.
pub const HEADER: &str = "# Format: lock_id:pid:group_id:timestamp:status";

/// The most bytes of a registry. Normal ones are far smaller.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The status of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Its holder has registered it.
    Active,
    /// Its holder has released it.
    Released,
    /// The wait timed out, or the line was older than allowed and its holder dead.
    Timeout,
    /// Its holder had died.
    OrphanCleaned,
    /// The locked command failed. Other programs write this; we only read it.
    Failed,
    /// A user released it by force.
    ForceReleased,
}

impl Status {
    const ALL: [Self; 6] =
        [Self::Active, Self::Released, Self::Timeout, Self::OrphanCleaned, Self::Failed, Self::ForceReleased];

    /// Returns the word in the file.
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

    /// Says whether a line may change from this status to `next`: from ACTIVE to any other, and from TIMEOUT to
    /// ORPHAN_CLEANED.
    pub const fn can_become(self, next: Self) -> bool {
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

/// A parsed line. Times are seconds since 1970, as the format has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The lock. All known programs write the name of the group.
    pub lock_id: String,
    /// The process that holds it.
    pub pid: u32,
    /// The group.
    pub group: String,
    /// When it was taken.
    pub since: i64,
    /// Its status.
    pub status: Status,
    /// When it ended, where the line says so.
    pub ended: Option<i64>,
}

impl Entry {
    /// Creates the line of a lock that was taken now.
    pub fn active(group: &str, pid: u32, now: i64) -> Self {
        let (lock_id, group) = (group.to_owned(), group.to_owned());
        Self { lock_id, pid, group, since: now, status: Status::Active, ended: None }
    }

    /// Returns the line with an end. An orphan has no end time, because nobody knows it.
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
    /// A comment or an empty line.
    Comment,
    /// Incomplete, damaged, or written by another program.
    Malformed,
}

/// All lines of a registry, including those that cannot be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    lines: Vec<(Vec<u8>, Line)>,
}

impl Ledger {
    /// Parses the whole file. It never fails: lines that cannot be parsed are kept.
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
                None => Line::Malformed,
            };
            (raw.to_owned(), line)
        };
        Self { lines: body.split(|byte| *byte == b'\n').map(line).collect() }
    }

    /// Formats the whole file.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|(raw, _)| raw.iter().copied().chain([b'\n'])).collect()
    }

    /// Returns the parsed lines, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.lines.iter().filter_map(|(_, line)| match line {
            Line::Entry(entry) => Some(entry),
            Line::Comment | Line::Malformed => None,
        })
    }

    /// Returns the lines that cannot be parsed, with their numbers from 1, and with control characters escaped.
    pub fn malformed(&self) -> impl Iterator<Item = (usize, String)> {
        self.lines.iter().enumerate().filter(|(_, (_, line))| *line == Line::Malformed).map(
            |(place, (raw, _))| {
                let text: String = String::from_utf8_lossy(raw).escape_debug().take(80).collect();
                (place + 1, text)
            },
        )
    }

    /// Adds a line.
    pub fn push(&mut self, entry: Entry) {
        self.lines.push((entry.to_string().into_bytes(), Line::Entry(entry)));
    }

    /// Gives every chosen line this status, if it may change to it. Returns the lines as they were before.
    pub fn end(&mut self, status: Status, now: i64, mut chosen: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let mut ended = Vec::new();
        for (raw, line) in &mut self.lines {
            match line {
                Line::Entry(entry) if entry.status.can_become(status) && chosen(entry) => {
                    ended.push(entry.clone());
                    *entry = entry.clone().ending(status, now);
                    *raw = entry.to_string().into_bytes();
                }
                Line::Entry(_) | Line::Comment | Line::Malformed => {}
            }
        }
        ended
    }

    /// Removes the oldest finished lines until the rest fits into `bytes`. Keeps active and malformed lines. Returns the
    /// removed lines.
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
    fn the_example_of_the_format_is_parsed_and_written_back() {
        let ledger = Ledger::parse(SEED.as_bytes());
        assert_eq!(ledger.to_bytes(), SEED.as_bytes());
        let words: Vec<&str> = ledger.entries().map(|entry| entry.status.word()).collect();
        assert_eq!(words, ["ACTIVE", "RELEASED", "TIMEOUT", "ORPHAN_CLEANED"]);
        let released = ledger.entries().nth(1).unwrap();
        assert_eq!((released.pid, released.since, released.ended), (12346, 1728456790, Some(1728456800)));
        assert_eq!(ledger.malformed().count(), 0);
    }

    /// Requirement 103.
    #[test]
    fn a_line_ends_once_and_only_a_timeout_may_be_cleaned_afterwards() {
        let pairs: Vec<(Status, Status)> = Status::ALL
            .into_iter()
            .flat_map(|from| Status::ALL.into_iter().map(move |to| (from, to)))
            .filter(|(from, to)| from.can_become(*to))
            .collect();
        let ends = Status::ALL.into_iter().filter(|end| *end != Status::Active);
        let mut wanted: Vec<(Status, Status)> = ends.map(|end| (Status::Active, end)).collect();
        wanted.push((Status::Timeout, Status::OrphanCleaned));
        assert_eq!(pairs, wanted);
    }

    /// Requirement 101.
    #[test]
    fn a_line_that_cannot_be_parsed_is_kept_and_reported() {
        let malformed = [
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
        let mut bytes = malformed.join("\n").into_bytes();
        bytes.extend_from_slice(b"\n\xff\xfe:1:b:2:ACTIVE\n\n# note\na:1:b:2:ACTIVE\ntorn:1:b");
        let mut ledger = Ledger::parse(&bytes);
        assert_eq!(ledger.malformed().count(), malformed.len() + 2);
        let ended = ledger.end(Status::Released, 9, |_| true);
        assert_eq!(ended.len(), 1);
        let text = ledger.to_bytes();
        assert!(text.ends_with(b"# note\na:1:b:2:RELEASED:9\ntorn:1:b\n"));
        assert!(text.starts_with(malformed.join("\n").as_bytes()));
    }

    #[test]
    fn rotation_removes_only_the_oldest_finished_lines() {
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
