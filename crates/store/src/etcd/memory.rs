//! What the cluster remembers: a note, by which a client finds out that the cluster was started again or restored.
//!
//! The note has the id of the cluster and the term of its leader. A new term of a cluster with several members is an election, and the
//! members forget nothing by it. Everything else may have forgotten leases: another cluster, a term that is not larger, a
//! leader that counts anew in the same term, a member that is alone and was started again, and revisions that go back.

use lockkeeper_core::time::Moment;

/// 2026-01-01, in seconds since 1970.
const EPOCH: u64 = 1_767_225_600;
/// More revisions than this in a second, on average, no cluster makes; as a power of two.
const REVISIONS: u32 = 10;

/// The note, as the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) cluster: u64,
    pub(super) term: u64,
    /// Since when the cluster remembers everything.
    pub(super) since: i64,
    /// What is added to a revision for a number: revisions of a cluster that was restored go back.
    pub(super) offset: u64,
}

/// What a client sees of the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) cluster: u64,
    pub(super) term: u64,
    pub(super) members: usize,
    /// The client knew a later revision.
    pub(super) goes_back: bool,
    /// The moment now, and how many seconds the leader has counted.
    pub(super) now: Moment,
    pub(super) seconds: i64,
    /// Seconds since 1970, on the clock of this machine.
    pub(super) unix_seconds: u64,
}

impl Note {
    /// The note of a new project, which may be one that was forgotten.
    pub(super) fn first(seen: Seen) -> Self {
        Self { cluster: seen.cluster, term: seen.term, since: since_start(seen), offset: 0 }
    }

    /// The next note.
    pub(super) fn after(self, seen: Seen) -> Self {
        let Seen { cluster, term, .. } = seen;
        let is_same = cluster == self.cluster && !seen.goes_back;
        if is_same && term > self.term && seen.members > 1 {
            return Self { term, ..self };
        }
        let since = if is_same { since_start(seen) } else { seen.now.as_micros() };
        // Above every number that was ever drawn, also by what was lost. One second more, since others draw numbers meanwhile.
        let offset = self.offset.max((seen.unix_seconds.saturating_sub(EPOCH) + 1) << REVISIONS);
        Self { cluster, term, since, offset }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let Self { cluster, term, since, offset } = self;
        format!("{cluster} {term} {since} {offset}").into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(bytes).ok()?.split(' ');
        let mut field = || fields.next();
        Some(Self {
            cluster: field()?.parse().ok()?,
            term: field()?.parse().ok()?,
            since: field()?.parse().ok()?,
            offset: field()?.parse().ok()?,
        })
    }
}

/// Before its leader began to count, a cluster that was started again answered nobody.
fn since_start(seen: Seen) -> i64 {
    seen.now.as_micros().saturating_sub(seen.seconds.max(0).saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: Note = Note { cluster: 7, term: 3, since: 5, offset: 0 };
    const SEEN: Seen = Seen {
        cluster: 7,
        term: 4,
        members: 3,
        goes_back: false,
        now: Moment::from_micros(100_000_000),
        seconds: 10,
        unix_seconds: EPOCH + 1_000,
    };

    #[test]
    fn an_election_among_several_members_forgets_nothing() {
        assert_eq!(NOTE.after(SEEN), Note { term: 4, ..NOTE });
    }

    /// Invariant 3.
    #[test]
    fn everything_else_may_have_forgotten() {
        let started = 90_000_000;
        for (seen, since) in [
            (Seen { members: 1, ..SEEN }, started),
            (Seen { term: 3, ..SEEN }, started),
            (Seen { term: 2, ..SEEN }, started),
            (Seen { cluster: 8, ..SEEN }, 100_000_000),
            (Seen { goes_back: true, ..SEEN }, 100_000_000),
        ] {
            let note = NOTE.after(seen);
            assert_eq!((note.cluster, note.term, note.since), (seen.cluster, seen.term, since), "{seen:?}");
        }
    }

    /// Invariant 2.
    #[test]
    fn numbers_go_on_above_all_that_were_drawn() {
        let restored = NOTE.after(Seen { members: 1, ..SEEN });
        assert!(restored.offset > 1_000 << REVISIONS);
        let again = restored.after(Seen { goes_back: true, unix_seconds: EPOCH + 1_010, ..SEEN });
        assert!(again.offset >= restored.offset + (10 << REVISIONS));
        let clock_set_back = restored.after(Seen { goes_back: true, unix_seconds: 0, ..SEEN });
        assert_eq!(clock_set_back.offset, restored.offset);
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        assert_eq!(Note::from_bytes(&NOTE.to_bytes()), Some(NOTE));
        assert_eq!(Note::from_bytes(b"7 3 5"), None);
    }
}
