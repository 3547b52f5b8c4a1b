//! HTTP store: leases and tickets in the state folder of another machine, which `lockkeeper serve` serves. Requests and runs are
//! beside them: [`crate::HttpRunStore`].
//!
//! A decision reads without a lock and remembers the version of the folder at each read. One call compares: if nothing that was
//! read has changed since, the server makes the changes under the write lock of the folder. So local processes and those of other
//! machines exclude each other by the same records.
//!
//! | what | how |
//! |---|---|
//! | version | the folder logs what its records were before each change; the version is the length of the log |
//! | number | those of the folder; a read of a key range brings a block of 8 |
//! | clock | the boot clock of the server plus a distance that is fixed while the database lives, so it goes on after a reboot |
//! | wake-up | a response that does not end, one for each waker; the server has a FIFO in the folder for it |
//! | in doubt | each commit has a number, which the server keeps with the changes |
//! | incarnation | one for each database of the folder: after a reboot it is made anew, and has forgotten the leases of other machines |

mod address;
mod connection;
pub(crate) mod messages;
mod records;
mod wakers;

use std::sync::atomic::AtomicI64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::records::Records;

pub use self::address::HttpAddress;
use self::connection::Connection;
use self::records::HttpMoment;
pub use self::wakers::ALIVE;
use super::optimistic::clock::StoreClock;
use super::optimistic::decision::Decision;
use super::optimistic::random_number;
use super::optimistic::snapshot::Snapshot;
use super::{Examination, LeaseStore, StoreError, Transaction, Waker};

/// How many numbers a read brings.
pub(crate) const BLOCK: u64 = 8;

/// Leases and tickets of one project in a folder that another machine serves.
pub struct HttpStore {
    to: HttpAddress,
    address: String,
    project: String,
    limit: Duration,
    idle: Mutex<Vec<Connection>>,
    clock: StoreClock,
    /// The incarnation that answered last, and since when it remembers.
    seen: Mutex<(String, i64)>,
    /// The latest version that this process has seen of it.
    newest: AtomicI64,
}

impl HttpStore {
    /// Opens the leases of a project.
    pub fn open(address: HttpAddress, project: &str, connect_timeout: Duration) -> Result<Self, StoreError> {
        let store = Self {
            address: address.to_string(),
            to: address,
            project: project.to_owned(),
            limit: connect_timeout,
            idle: Mutex::default(),
            clock: StoreClock::new(0),
            seen: Mutex::default(),
            newest: AtomicI64::new(0),
        };
        store.look()?;
        Ok(store)
    }

    /// Where the store is, for people.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The changes of requests and runs, each one as a wake-up.
    pub(crate) fn changes(&self) -> Result<Box<dyn Waker>, StoreError> {
        wakers::listen_to_changes(&self.to, self.limit)
    }
}

impl LeaseStore for HttpStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(Decision::new(self)))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(Snapshot(HttpMoment::begin(self)?)))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        // As in the other stores, an id is a signed integer.
        let number = random_number("make a waker for", &self.address)?;
        self.waker_with_id(WakerId(number >> 1))
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        wakers::listen(&self.to, self.limit, id)
    }

    fn raise_numbers(&self, above: u64) -> Result<bool, StoreError> {
        self.raise(above)
    }

    fn examine(&self, _thorough: bool) -> Result<Examination, StoreError> {
        self.look()?;
        Ok(Examination { backend: "lockkeeper serve".to_owned(), ..Examination::default() })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is replaced as a whole, so a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
