//! etcd store: leases and tickets of many machines in an etcd cluster, 3.4 or later.
//!
//! A decision reads without a lock and remembers the revisions of what it read. One transaction of etcd compares them. If they are
//! unchanged, it makes the changes. Otherwise the decision runs again. The module `keys` has the layout.
//!
//! | what | how |
//! |---|---|
//! | number | the revision of a transaction that writes the key `number`. Each revision gives 256 numbers |
//! | memory | the id of the cluster and the term of its leader, compared at each read: see the module `memory` |
//! | clock | the seconds that the leader has counted on a lease of etcd: see the module `clock` |
//! | wake-up | a change of the waker's key, in the transaction that commits. The process watches the key |

mod address;
mod channel;
mod clock;
mod commit;
mod keys;
mod memory;
mod messages;
mod records;
mod server;
mod wakers;

use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::Records;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::clock as local_clock;
use lockkeeper_platform::wall_clock::WallTime;

pub use self::address::EtcdAddress;
use self::channel::framed;
use self::clock::{Asked, FIRST_BASE};
use self::keys::Keys;
use self::memory::{ClusterState, Note};
use self::messages::{
    KeyValue, LeaseGrantRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, MemberListResponse,
    Nothing, Op, RangeRequest, ResponseHeader, StatusResponse, TxnRequest, TxnResponse,
};
use self::records::EtcdMoment;
use self::server::{Failure, Link, Server, TXN};
use super::optimistic::clock::StoreClock;
use super::optimistic::decision::Decision;
use super::optimistic::random_number;
use super::optimistic::snapshot::Snapshot;
use super::{Examination, LeaseStore, StoreError, Transaction, Waker};

/// The version of the layout.
const VERSION: i64 = 1;
/// How many numbers a revision gives, as a power of two.
const BLOCK: u32 = 8;

/// The clock of a store that another client has made anew, or found restored, is behind if this client knows a moment that is later by
/// more than this.
const TOLERANCE: Duration = Duration::from_secs(2);

/// How often a read is repeated because a client has just noticed that the cluster was restarted or restored.
const NOTICES: usize = 5;

/// Leases and tickets of one project in an etcd cluster.
pub struct EtcdStore {
    server: Server,
    keys: Keys,
    clock: StoreClock,
    asked: Asked,
    /// The latest revision that this process knows.
    newest: AtomicI64,
    /// The offset of the latest note that this process knows; 0 at first.
    offset: AtomicU64,
    /// The largest sum of revision and offset that this process knows: numbers are made of it.
    seen: AtomicU64,
}

/// What was read in one transaction.
struct Read {
    revision: i64,
    /// One answer for each range.
    answers: Vec<Vec<KeyValue>>,
    /// Numbers that were drawn in the same transaction.
    numbers: Option<Range<u64>>,
    note: Note,
}

/// What every read also returns: the clock and the note of the cluster.
struct Head {
    response: ResponseHeader,
    base: KeyValue,
    last: KeyValue,
    memory: KeyValue,
    /// How many seconds the leader has counted, if it was asked.
    seconds: Option<i64>,
    /// Whether this client has seen a later revision: the cluster was restored to an earlier state.
    goes_back: bool,
}

impl EtcdStore {
    /// Opens the leases of a project, and makes its first keys where they are missing.
    pub fn open(address: EtcdAddress, project: &str, connect_timeout: Duration) -> Result<Self, StoreError> {
        let server = Server::new(address, connect_timeout)?;
        let store = Self {
            server,
            keys: Keys::new(project),
            clock: StoreClock::new(0),
            asked: Asked::default(),
            newest: AtomicI64::new(0),
            offset: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        };
        let about = || vec![Op::Range(keys::get(store.keys.about())).into()];
        let found = store.server.txn(&TxnRequest { success: about(), ..TxnRequest::default() })?;
        let header = found.header.clone().unwrap_or_default();
        let mut version = found.into_ranges().concat();
        if version.is_empty() {
            store.make(&header)?;
            version = store.read_ranges(vec![keys::get(store.keys.about())], false)?.answers.concat();
        }
        let version = version.first().map(|kv| String::from_utf8_lossy(&kv.value));
        let version = version.and_then(|text| text.parse().ok()).ok_or_else(|| damaged("version"))?;
        if version > VERSION {
            let address = store.server.address().to_owned();
            return Err(StoreError::TooNew { address, found: version, known: VERSION });
        }
        // Sets the clock.
        store.read_ranges(Vec::new(), false)?;
        Ok(store)
    }

    /// Makes the first keys of the project, if they are missing. A process that knew the project takes its clock along: the cluster
    /// was started again without its data.
    fn make(&self, header: &ResponseHeader) -> Result<(), StoreError> {
        let seconds = self.count()?;
        let now = clock::counted(FIRST_BASE, seconds).max(self.clock.now());
        let note = Note::first(self.cluster_state(header, now, seconds, false)?);
        self.server.txn(&TxnRequest {
            compare: vec![keys::is_absent(self.keys.about())],
            success: [
                (self.keys.about(), VERSION.to_string().into_bytes()),
                (self.keys.clock_base(), clock::to_bytes(clock::base_at(now, seconds))),
                (self.keys.clock_last(), clock::to_bytes(now.as_micros())),
                (self.keys.memory(), note.to_bytes()),
                (self.keys.since(), note.since.to_string().into_bytes()),
            ]
            .map(|(key, value)| keys::put(key, value).into())
            .to_vec(),
            failure: Vec::new(),
        })?;
        self.newest.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Reads ranges in one transaction of etcd, and draws numbers in it.
    fn read_ranges(&self, ranges: Vec<RangeRequest>, draws: bool) -> Result<Read, StoreError> {
        let clock_keys = [self.keys.clock_base(), self.keys.clock_last(), self.keys.memory()].map(keys::get);
        let mut ops: Vec<Op> = clock_keys.into_iter().chain(ranges).map(Op::Range).collect();
        if draws {
            ops.push(keys::put(self.keys.number(), Vec::new()));
        }
        let request = TxnRequest { success: commit::in_parts(ops, 0, self)?, ..TxnRequest::default() };
        for _ in 0..NOTICES {
            let known = self.newest.load(Ordering::Relaxed);
            let asks = self.asked.is_due(local_clock::now());
            let answered = self.server.wait(async {
                let (read, seconds) =
                    futures_util::join!(self.server.link.call(TXN, framed(&request)), async {
                        if asks { Some(count(&self.server.link).await) } else { None }
                    });
                Ok((read?, seconds.transpose()?))
            });
            let (read, seconds): (TxnResponse, _) =
                answered.map_err(|failure: Failure| failure.explain(self.server.address()))?;
            let response = read.header.clone().unwrap_or_default();
            let revision = response.revision;
            let mut answers = read.into_ranges().into_iter();
            let mut one = || answers.next().and_then(|kvs| kvs.into_iter().next());
            let (base, last, memory) = match (one(), one(), one()) {
                (Some(base), Some(last), Some(memory)) => (base, last, memory),
                (None, None, None) => {
                    self.make(&response)?;
                    continue;
                }
                _ => return Err(damaged("clock")),
            };
            let goes_back = revision < known;
            let head = Head { response, base, last, memory, seconds, goes_back };
            let Some(note) = self.note(&head)? else { continue };
            self.newest.fetch_max(revision, Ordering::Relaxed);
            self.seen.fetch_max(revision.cast_unsigned() + note.offset, Ordering::Relaxed);
            let first = number_at(revision, note);
            let numbers = draws.then(|| first..first + (1 << BLOCK));
            return Ok(Read { revision, answers: answers.collect(), numbers, note });
        }
        Err(damaged("note, which changes all the time"))
    }

    /// Sets the clock by what was read, and returns the note of the cluster. None if the cluster was restarted or restored: then
    /// a new note is written, and the caller has to read everything again.
    fn note(&self, head: &Head) -> Result<Option<Note>, StoreError> {
        let of = |kv: &KeyValue| clock::from_bytes(&kv.value).ok_or_else(|| damaged("moment"));
        let (base, last) = (of(&head.base)?, of(&head.last)?);
        let note = Note::from_bytes(&head.memory.value).ok_or_else(|| damaged("note"))?;
        self.clock.move_to(last);
        let ResponseHeader { cluster_id, raft_term, .. } = head.response;
        let counts_anew = head.seconds.is_some_and(|seconds| clock::new_base(base, seconds, last).is_some());
        let is_same = (note.cluster, note.term) == (cluster_id, raft_term) && !head.goes_back;
        // Another client has found out first that the cluster has lost something. It may not have known how late it was.
        let is_replaced = ![0, note.offset].contains(&self.offset.load(Ordering::Relaxed));
        if is_same && !counts_anew && !is_replaced {
            self.offset.store(note.offset, Ordering::Relaxed);
            if let Some(seconds) = head.seconds {
                self.clock.move_to(clock::counted(base, seconds).as_micros());
            }
            return Ok(Some(note));
        }
        let seconds = self.count()?;
        // A new leader may count anew, also if that does not show yet: the clock goes on from the last commit.
        let mut now = clock::counted(base, seconds).max(Moment::from_micros(last));
        let mut new_base = clock::base_at(now, seconds);
        let is_earlier = self.clock.now() > now.after(TOLERANCE);
        let draws_again =
            head.response.revision.cast_unsigned() + note.offset <= self.seen.load(Ordering::Relaxed);
        let is_behind = is_replaced && (is_earlier || draws_again);
        if is_same && !counts_anew && !is_behind {
            self.offset.store(note.offset, Ordering::Relaxed);
            return Ok(Some(note));
        }
        let goes_back = head.goes_back || is_behind;
        if goes_back && self.clock.now() > now {
            // The restored clock is behind, too. A client that knows a later moment sets it forward.
            now = self.clock.now();
            new_base = clock::base_at(now, seconds);
        }
        let next = note.after(self.cluster_state(&head.response, now, seconds, goes_back)?);
        // If another client writes its note first, the comparison fails, and that note counts.
        self.server.txn(&TxnRequest {
            compare: [&head.base, &head.last, &head.memory]
                .map(|kv| keys::is_at(kv.key.clone(), kv.mod_revision))
                .to_vec(),
            success: [
                (self.keys.clock_base(), clock::to_bytes(new_base)),
                (self.keys.clock_last(), clock::to_bytes(now.as_micros())),
                (self.keys.memory(), next.to_bytes()),
                (self.keys.since(), next.since.to_string().into_bytes()),
            ]
            .map(|(key, value)| keys::put(key, value).into())
            .to_vec(),
            failure: Vec::new(),
        })?;
        if head.goes_back {
            self.newest.store(0, Ordering::Relaxed);
        }
        Ok(None)
    }

    /// What this client sees of the cluster.
    fn cluster_state(
        &self,
        header: &ResponseHeader,
        now: Moment,
        seconds: i64,
        goes_back: bool,
    ) -> Result<ClusterState, StoreError> {
        let asked =
            self.server.wait(self.server.link.call("etcdserverpb.Cluster/MemberList", framed(&Nothing {})));
        let list: MemberListResponse =
            asked.map_err(|failure: Failure| failure.explain(self.server.address()))?;
        Ok(ClusterState {
            cluster: header.cluster_id,
            term: header.raft_term,
            members: list.members.len(),
            goes_back,
            now,
            seconds,
            unix_micros: WallTime::now().as_micros(),
            revision: header.revision.cast_unsigned(),
            seen: self.seen.load(Ordering::Relaxed),
        })
    }

    /// How many seconds the leader has counted.
    fn count(&self) -> Result<i64, StoreError> {
        self.server.wait(count(&self.server.link)).map_err(|failure| failure.explain(self.server.address()))
    }
}

/// The first number of a revision.
fn number_at(revision: i64, note: Note) -> u64 {
    (revision.cast_unsigned() + note.offset) << BLOCK
}

/// How many seconds the leader has counted.
async fn count(link: &Link) -> Result<i64, Failure> {
    let ask = framed(&LeaseTimeToLiveRequest { id: clock::LEASE });
    let grant = framed(&LeaseGrantRequest { ttl: clock::LEASE_SECONDS, id: clock::LEASE });
    loop {
        let lease: LeaseTimeToLiveResponse =
            link.call("etcdserverpb.Lease/LeaseTimeToLive", ask.clone()).await?;
        if lease.ttl >= 0 && lease.granted_ttl > 0 {
            return Ok((lease.granted_ttl - lease.ttl).max(0));
        }
        match link.call::<Nothing>("etcdserverpb.Lease/LeaseGrant", grant.clone()).await {
            Ok(_) => {}
            // Another client has made the lease.
            Err(Failure::Refused(status)) if status.is_taken() => {}
            Err(failure) => return Err(failure),
        }
    }
}

impl LeaseStore for EtcdStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(Decision::new(self)))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(Snapshot(EtcdMoment::begin(self)?)))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        let id = random_number("make a waker for", self.server.address())?;
        self.waker_with_id(WakerId(id >> 1))
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        wakers::listen(&self.server, self.keys.waker(id), id)
    }

    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        let asked =
            self.server.wait(self.server.link.call("etcdserverpb.Maintenance/Status", framed(&Nothing {})));
        let status: StatusResponse = asked.map_err(|failure| failure.explain(self.server.address()))?;
        let flaws = if thorough { self.flaws()? } else { Vec::new() };
        Ok(Examination {
            backend: format!("etcd {}", status.version),
            schema: Some(VERSION),
            flaws,
            risks: Vec::new(),
        })
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::Mismatch(format!("a key of the store has an impossible {what}"))
}
