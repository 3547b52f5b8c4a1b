//! Detection of lost data: a note in the cluster, with which a client finds out that the cluster was restarted or restored.
//!
//! The note has the id of the cluster and the term of its leader. A new term of a cluster with several members is an election,
//! which loses nothing. In all other cases the cluster may have lost leases: another cluster id, a term that is not larger, a
//! count that started again in the same term, a single member that was restarted, and revisions that go back.

use lockkeeper_core::time::Moment;

/// 2026-01-01, in microseconds since 1970.
const EPOCH: i64 = 1_767_225_600_000_000;
/// No cluster makes more revisions a second than this, on average.
const REVISIONS: i64 = 1_024;
const SECOND: i64 = 1_000_000;

/// The note, as the value of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) cluster: u64,
    pub(super) term: u64,
    /// Since when the cluster has lost nothing.
    pub(super) since: i64,
    /// Is added to a revision to make a number: the revisions of a restored cluster go back.
    pub(super) offset: u64,
}

/// What a client sees of the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClusterState {
    pub(super) cluster: u64,
    pub(super) term: u64,
    pub(super) members: usize,
    /// Whether the client has seen a later revision.
    pub(super) goes_back: bool,
    /// The moment now, and how many seconds the leader has counted.
    pub(super) now: Moment,
    pub(super) seconds: i64,
    /// Microseconds since 1970, on the clock of this machine.
    pub(super) unix_micros: i64,
    /// The revision now.
    pub(super) revision: u64,
    /// The largest sum of revision and offset that the client has seen; 0 at first.
    pub(super) seen: u64,
}

impl Note {
    /// The note of a new project, which may be one that was forgotten: its numbers begin above those that it may have had.
    pub(super) fn first(state: ClusterState) -> Self {
        let ClusterState { cluster, term, .. } = state;
        Self { cluster, term, since: since_start(state), offset: offset_at(state) }
    }

    /// The next note.
    pub(super) fn after(self, state: ClusterState) -> Self {
        let ClusterState { cluster, term, .. } = state;
        let is_same = cluster == self.cluster && !state.goes_back;
        if is_same && term > self.term && state.members > 1 {
            return Self { term, ..self };
        }
        let since = if is_same { since_start(state) } else { state.now.as_micros() };
        Self { cluster, term, since, offset: self.offset.max(offset_at(state)) }
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

/// Numbers go on above every number that was ever drawn, also by what was lost: above the time, with one second more, since others
/// draw numbers meanwhile, and above all that this client has seen.
fn offset_at(state: ClusterState) -> u64 {
    let micros = state.unix_micros.saturating_sub(EPOCH).saturating_add(SECOND).max(0);
    let by_time = (micros / SECOND * REVISIONS + micros % SECOND * REVISIONS / SECOND).cast_unsigned();
    by_time.max(state.seen + 1).saturating_sub(state.revision)
}

/// When the leader began to count. Before that, the restarted cluster answered no client.
fn since_start(state: ClusterState) -> i64 {
    state.now.as_micros().saturating_sub(state.seconds.max(0).saturating_mul(SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: Note = Note { cluster: 7, term: 3, since: 5, offset: 0 };
    const STATE: ClusterState = ClusterState {
        cluster: 7,
        term: 4,
        members: 3,
        goes_back: false,
        now: Moment::from_micros(100_000_000),
        seconds: 10,
        unix_micros: EPOCH + 1_000 * SECOND,
        revision: 20,
        seen: 0,
    };

    #[test]
    fn an_election_among_several_members_forgets_nothing() {
        assert_eq!(NOTE.after(STATE), Note { term: 4, ..NOTE });
    }

    /// Invariant 3.
    #[test]
    fn everything_else_may_have_forgotten() {
        let started = 90_000_000;
        for (state, since) in [
            (ClusterState { members: 1, ..STATE }, started),
            (ClusterState { term: 3, ..STATE }, started),
            (ClusterState { term: 2, ..STATE }, started),
            (ClusterState { cluster: 8, ..STATE }, 100_000_000),
            (ClusterState { goes_back: true, ..STATE }, 100_000_000),
        ] {
            let note = NOTE.after(state);
            assert_eq!(
                (note.cluster, note.term, note.since),
                (state.cluster, state.term, since),
                "{state:?}"
            );
        }
    }

    /// Invariant 2.
    #[test]
    fn numbers_go_on_above_all_that_were_drawn() {
        let number = |note: Note, state: ClusterState| note.offset + state.revision;
        let restored = NOTE.after(ClusterState { members: 1, ..STATE });
        assert_eq!(number(restored, STATE), 1_001 * 1_024);
        let later = ClusterState { goes_back: true, unix_micros: STATE.unix_micros + SECOND / 2, ..STATE };
        assert_eq!(number(restored.after(later), later), number(restored, STATE) + 512);
        let clock_set_back = restored.after(ClusterState { goes_back: true, unix_micros: 0, ..STATE });
        assert_eq!(clock_set_back.offset, restored.offset);
    }

    /// Invariant 2. The cluster had made many revisions for others before the project was made, and lost all of them.
    #[test]
    fn a_cluster_that_lost_everything_goes_on_above_the_numbers_of_a_busy_one() {
        let busy = ClusterState { revision: 50_000_000, unix_micros: EPOCH + 100_000 * SECOND, ..STATE };
        let empty = ClusterState { revision: 2, unix_micros: busy.unix_micros + 10 * SECOND, ..busy };
        let last_drawn = Note::first(busy).offset + busy.revision + 1_000;
        assert!(Note::first(empty).offset + empty.revision > last_drawn);
    }

    /// Invariant 2. All of it happens at one moment, or the time of day was set back.
    #[test]
    fn numbers_go_on_above_those_that_a_client_has_seen() {
        let first = Note::first(STATE);
        let seen = first.offset + STATE.revision + 30;
        let empty = ClusterState { revision: 2, seen, ..STATE };
        for unix_micros in [STATE.unix_micros, 0] {
            let state = ClusterState { unix_micros, ..empty };
            assert!(Note::first(state).offset + state.revision > seen);
            // Another client, which knew nothing, has made the project anew.
            let unaware = Note::first(ClusterState { seen: 0, ..state });
            assert!(unaware.after(ClusterState { goes_back: true, ..state }).offset + state.revision > seen);
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        assert_eq!(Note::from_bytes(&NOTE.to_bytes()), Some(NOTE));
        assert_eq!(Note::from_bytes(b"7 3 5"), None);
    }
}
