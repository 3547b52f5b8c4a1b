//! etcd store: leases and tickets of many machines in an etcd cluster, 3.4 or later.
//!
//! A decision reads without a lock and remembers the revisions of what it read. One transaction of etcd compares them and makes the
//! changes, or tells that something has changed, and the decision runs again. The module `keys` has the layout.
//!
//! | what | how |
//! |---|---|
//! | number | the revision of a transaction that touches a key, which has room for 256 numbers |
//! | clock | what the leader has counted down of a lease: see the module `clock` |
//! | wake-up | a change of the waker's key, in the transaction that commits. The process watches the key |

mod address;
mod channel;
mod clock;
mod commit;
mod keys;
mod messages;
mod records;
mod server;
mod wakers;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::Records;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::{clock as local_clock, random};

pub use self::address::EtcdAddress;
use self::channel::framed;
use self::clock::Clock;
use self::keys::Keys;
use self::messages::{
    KeyValue, LeaseGrantRequest, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, Nothing, Op, RangeRequest,
    StatusResponse, TxnRequest, TxnResponse,
};
use self::records::{EtcdRecords, EtcdSnapshot};
use self::server::{Failure, Link, Server, TXN};
use super::{Examination, LeaseStore, StoreError, Transaction, Waker};

/// The version of the layout.
const VERSION: i64 = 1;
/// How many numbers a revision has room for, as a power of two.
const BLOCK: u32 = 8;

/// Leases and tickets of one project in an etcd cluster.
pub struct EtcdStore {
    server: Server,
    keys: Keys,
    clock: Mutex<Clock>,
}

/// What was read in one transaction.
struct Read {
    revision: i64,
    /// One answer for each range.
    answers: Vec<Vec<KeyValue>>,
    /// Numbers that were drawn in the same transaction.
    numbers: Option<Range<u64>>,
}

impl EtcdStore {
    /// Opens the leases of a project, and makes its first keys where they are missing.
    pub fn open(address: EtcdAddress, project: &str, connect_timeout: Duration) -> Result<Self, StoreError> {
        let server = Server::new(address, connect_timeout)?;
        let clock = Mutex::new(Clock::new(local_clock::now()));
        let store = Self { server, keys: Keys::new(project), clock };
        let about = vec![keys::get(store.keys.about())];
        let mut found = store.read(about.clone(), false)?;
        if found.answers.iter().flatten().next().is_none() {
            let made = TxnRequest {
                compare: vec![keys::is_absent(store.keys.about())],
                success: [
                    (store.keys.about(), VERSION.to_string().into_bytes()),
                    (store.keys.clock_base(), clock::to_bytes(Duration::from_secs(1).as_micros() as i64)),
                    (store.keys.clock_last(), clock::to_bytes(0)),
                ]
                .map(|(key, value)| keys::put(key, value).into())
                .to_vec(),
                failure: Vec::new(),
            };
            store.server.txn(&made)?;
            // The clock of the project counts from now on.
            *store.clock() = Clock::new(local_clock::now());
            found = store.read(about, false)?;
        }
        let version = found.answers.iter().flatten().next().map(|kv| String::from_utf8_lossy(&kv.value));
        let version = version.and_then(|text| text.parse().ok()).ok_or_else(|| damaged("version"))?;
        if version > VERSION {
            let address = store.server.address().to_owned();
            return Err(StoreError::TooNew { address, found: version, known: VERSION });
        }
        Ok(store)
    }

    /// Reads ranges in one transaction of etcd, and draws numbers in it.
    fn read(&self, ranges: Vec<RangeRequest>, draws: bool) -> Result<Read, StoreError> {
        let clock_keys = [self.keys.clock_base(), self.keys.clock_last()].map(keys::get);
        let mut ops: Vec<Op> = clock_keys.into_iter().chain(ranges).map(Op::Range).collect();
        if draws {
            ops.push(keys::put(self.keys.number(), Vec::new()));
        }
        let request = TxnRequest { success: commit::in_parts(ops, 0, self)?, ..TxnRequest::default() };
        let asks = self.clock().asks(local_clock::now());
        let answered = self.server.wait(async {
            let (read, seconds) = futures_util::join!(self.server.link.call(TXN, framed(&request)), async {
                if asks { count(&self.server.link).await.transpose() } else { None }
            });
            Ok((read?, seconds.transpose()?))
        });
        let (read, seconds): (TxnResponse, _) =
            answered.map_err(|failure: Failure| failure.explain(self.server.address()))?;
        let revision = read.revision();
        let mut answers = read.into_ranges().into_iter();
        let [base, last] =
            [answers.next(), answers.next()].map(|kvs| kvs.and_then(|kvs| kvs.into_iter().next()));
        if let (Some(base), Some(last)) = (base, last) {
            self.note(&base, &last, seconds)?;
        }
        let first = revision.cast_unsigned() << BLOCK;
        let numbers = draws.then(|| first..first + (1 << BLOCK));
        Ok(Read { revision, answers: answers.collect(), numbers })
    }

    /// Sets the clock by what was read.
    fn note(&self, base: &KeyValue, last: &KeyValue, seconds: Option<i64>) -> Result<(), StoreError> {
        let of = |kv: &KeyValue| clock::from_bytes(&kv.value).ok_or_else(|| damaged("moment"));
        let (base_moment, last) = (of(base)?, of(last)?);
        self.raise_clock(Moment::from_micros(last));
        let Some(seconds) = seconds else { return Ok(()) };
        self.raise_clock(clock::counted(base_moment, seconds));
        if let Some(new) = clock::new_base(base_moment, seconds, last) {
            // If another client comes first, its base is as good.
            self.server.txn(&TxnRequest {
                compare: vec![keys::is_at(base.key.clone(), base.mod_revision)],
                success: vec![keys::put(base.key.clone(), clock::to_bytes(new)).into()],
                failure: Vec::new(),
            })?;
        }
        Ok(())
    }

    /// The moment on the store's clock, or a little before it.
    fn estimated_now(&self) -> Moment {
        self.clock().now(local_clock::now())
    }

    fn raise_clock(&self, moment: Moment) {
        self.clock().raise(moment, local_clock::now());
    }

    /// Whether a moment that a record has is later than the clock was thought to be. Then the clock is put forward.
    fn is_later(&self, moment: Moment) -> bool {
        let is_plausible = self.clock().is_plausible(moment, local_clock::now());
        if is_plausible {
            self.raise_clock(moment);
        }
        is_plausible
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that nobody else has.
    fn random(&self, action: &'static str) -> Result<u64, StoreError> {
        let address = || self.server.address().to_owned();
        random::number().map_err(|source| StoreError::Io { action, address: address(), source })
    }
}

/// How many seconds the leader has counted; none if nobody counted yet.
async fn count(link: &Link) -> Result<Option<i64>, Failure> {
    let request = LeaseTimeToLiveRequest { id: clock::LEASE };
    let lease: LeaseTimeToLiveResponse =
        link.call("etcdserverpb.Lease/LeaseTimeToLive", framed(&request)).await?;
    if lease.ttl >= 0 && lease.granted_ttl > 0 {
        return Ok(Some((lease.granted_ttl - lease.ttl).max(0)));
    }
    let request = LeaseGrantRequest { ttl: clock::LEASE_SECONDS, id: clock::LEASE };
    match link.call::<Nothing>("etcdserverpb.Lease/LeaseGrant", framed(&request)).await {
        // Somebody else was first.
        Ok(_) | Err(Failure::Refused(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

impl LeaseStore for EtcdStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(EtcdRecords::new(self)))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(EtcdSnapshot::begin(self)?))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        let id = self.random("make a waker for")?;
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
        Ok(Examination { engine: format!("etcd {}", status.version), schema: Some(VERSION), flaws })
    }
}

fn damaged(what: &str) -> StoreError {
    StoreError::Mismatch(format!("a key of the store has an impossible {what}"))
}
