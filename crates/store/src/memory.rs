//! Memory store: an optimistic store inside one process. Tests compare the other backends with it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_core::id::{LeaseId, WakerId};
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Change, Effect, Records, Scan};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;

use super::{Commit, Granted, LeaseStore, StoreError, Transaction, Waker};
use lockkeeper_platform::{clock, pipe, random};

/// Leases and tickets that end with the process.
///
/// A transaction works on a copy of all records. Its commit returns `Changed` if another commit came first.
#[derive(Default)]
pub struct MemoryStore {
    committed: Mutex<Committed>,
    last_number: AtomicU64,
    wakers: Wakers,
}

/// The writing ends of all wakers.
type Wakers = Arc<Mutex<BTreeMap<WakerId, OwnedFd>>>;

/// The records, and how many commits have changed them.
#[derive(Clone, Default)]
struct Committed {
    records: InMemoryRecords,
    version: u64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn copy(&self, is_snapshot: bool) -> Copied<'_> {
        let committed = locked(&self.committed);
        Copied { store: self, is_snapshot, committed: committed.clone(), now: clock::now() }
    }
}

impl LeaseStore for MemoryStore {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        Ok(Box::new(self.copy(false)))
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        Ok(Box::new(self.copy(true)))
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        let id = random::number().map(|number| WakerId(number >> 2)).map_err(no_pipe)?;
        self.waker_with_id(id)
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        let (reader, writer) = pipe::nonblocking().map_err(no_pipe)?;
        locked(&self.wakers).insert(id, writer);
        Ok(Box::new(PipeWaker { id, reader, wakers: Arc::clone(&self.wakers) }))
    }

    fn raise_numbers(&self, above: u64) -> Result<bool, StoreError> {
        self.last_number.fetch_max(above, Ordering::Relaxed);
        Ok(true)
    }
}

/// A copy of the records at one moment.
struct Copied<'s> {
    store: &'s MemoryStore,
    is_snapshot: bool,
    committed: Committed,
    now: Moment,
}

impl Records<StoreError> for Copied<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        if self.is_snapshot {
            return Err(StoreError::Mismatch("a snapshot gives no numbers".to_owned()));
        }
        Ok(self.store.last_number.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.committed.records.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        Ok(self.committed.records.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.committed.records.ticket(id).cloned())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        Ok(self.committed.records.tickets_in(range, scan, limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        Ok(self.committed.records.all())
    }
}

impl Transaction for Copied<'_> {
    fn commit(self: Box<Self>, changes: Vec<Change>, effects: &[Effect]) -> Result<Commit, StoreError> {
        let Self { store, committed: Committed { mut records, version }, .. } = *self;
        let mut committed = locked(&store.committed);
        if committed.version != version {
            return Ok(Commit::Changed);
        }
        let changed = u64::from(!changes.is_empty());
        for change in changes {
            records.apply(change).map_err(|misfit| StoreError::Mismatch(misfit.to_string()))?;
        }
        *committed = Committed { records, version: version + changed };
        drop(committed);
        let mut wakers = locked(&store.wakers);
        for effect in effects {
            match effect {
                Effect::Wake(id) => {
                    // A full pipe wakes its reader, too.
                    let _ = wakers.get(id).map(|writer| rustix::io::write(writer, b"!"));
                }
                Effect::RemoveWaker(id) => {
                    wakers.remove(id);
                }
            }
        }
        Ok(Commit::Committed)
    }
}

struct PipeWaker {
    id: WakerId,
    reader: OwnedFd,
    wakers: Wakers,
}

impl Waker for PipeWaker {
    fn id(&self) -> WakerId {
        self.id
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(&self.reader)
    }

    fn receive(&self) -> Option<Granted> {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.reader, &mut bytes), Ok(read) if read > 0) {}
        None
    }
}

impl Drop for PipeWaker {
    fn drop(&mut self) {
        locked(&self.wakers).remove(&self.id);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The value is replaced as a whole, so it is sound after a panic of another thread.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_pipe(source: io::Error) -> StoreError {
    StoreError::io("make a waker in", Path::new("memory"), source)
}
