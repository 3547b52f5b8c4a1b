//! Redis store: leases and tickets of many machines on a Redis or Valkey server.
//!
//! A decision reads without a lock and remembers the versions of what it read. One script compares them. If they are
//! unchanged, it makes the changes. Otherwise the decision runs again.
//!
//! All keys of a project begin with `lockkeeper:{PROJECT}:`, so they are in one slot of a cluster:
//!
//! | key | what it has |
//! |---|---|
//! | `about` | the incarnation, the clock, the last number and version |
//! | `records` | leases and tickets by their ids |
//! | `keys` | the keys by which records are found: `KEY 0 ID`, in the order of bytes |
//! | `parts` | the version of each part that has a record; a part is a key, or all keys of paths together |
//! | `gone` | the versions of parts without a record, by a hash of their names, so that the hash table does not grow for ever |
//! | `log` | what records were before they changed, for snapshots: the last 30 s and a little more |
//! | `calls` | decisions of the last minute: committed, or given up by a client whose connection broke |
//!
//! | what | how |
//! |---|---|
//! | number | the larger of the last one and the microseconds of the store's clock, plus one. Each read draws a block of 8 |
//! | clock | the server's clock, which never goes back. Between two answers the time since the last one is added |
//! | wake-up | `PUBLISH` on the channel of the waker, in the script that commits |
//! | incarnation | a server that was restarted, replaced by a replica or emptied may have lost leases. The store then begins a new incarnation, and notes since when it has lost nothing |

mod address;
mod connection;
mod examine;
mod records;
mod resp;
mod server;
mod values;
mod wakers;

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::Records;

pub use self::address::RedisAddress;
use self::records::RedisMoment;
use self::server::Server;
use self::wakers::Wakers;
use super::optimistic::clock::StoreClock;
use super::optimistic::decision::Decision;
use super::optimistic::random_number;
use super::optimistic::snapshot::Snapshot;
use super::{Examination, LeaseStore, StoreError, Transaction, Waker};

/// How many numbers a read draws. Few, so that the last number never gets ahead of the clock: a server that has lost it continues
/// from its clock, above all earlier numbers.
const BLOCK: u64 = 8;

/// Leases and tickets of one project on a Redis server.
pub struct RedisStore {
    server: Server,
    clock: StoreClock,
    wakers: Wakers,
    /// The latest version that this process has seen.
    newest: AtomicI64,
}

impl RedisStore {
    /// Opens the leases of a project.
    pub fn open(address: RedisAddress, project: &str, connect_timeout: Duration) -> Result<Self, StoreError> {
        let server = Server::new(address, project, connect_timeout);
        let clock = StoreClock::new(server.open()?);
        let wakers = Wakers::new(server.to().clone(), &server::prefix(project), server.limit());
        Ok(Self { server, clock, wakers, newest: AtomicI64::new(0) })
    }

    /// The id of the incarnation. It changes with a restart, a failover or a loss of all data.
    pub fn incarnation(&self) -> String {
        self.server.incarnation().unwrap_or_default()
    }
}

impl LeaseStore for RedisStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(Decision::new(self)))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(Snapshot(RedisMoment::begin(self)?)))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        // As in the other stores, an id is a signed integer.
        let number = random_number("make a waker for", self.server.address())?;
        self.waker_with_id(WakerId(number >> 1))
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        self.wakers.listen(id)
    }

    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        examine::examine(self, thorough)
    }
}
