//! A store in memory, for one process: the strict double that tests hold the others against.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_core::id::{LeaseId, WakerId};
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::overlay::{Change, Scan};
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;

use super::{Decision, Records, Store, StoreError, Waker};
use crate::platform::{clock, pipe, random};

/// Leases and tickets that end with the process.
#[derive(Default)]
pub struct MemoryStore {
    /// One decision at a time; those who look do not wait for it.
    deciding: Mutex<()>,
    board: Mutex<InMemoryRecords>,
    last_number: AtomicU64,
    wakers: Arc<Mutex<BTreeMap<WakerId, OwnedFd>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn copy(&self) -> Memory<'_> {
        Memory { board: locked(&self.board).clone(), last_number: &self.last_number, now: clock::now() }
    }
}

impl Store for MemoryStore {
    fn transact(&self, decide: Decision<'_>) -> Result<(), StoreError> {
        let _alone = locked(&self.deciding);
        let mut overlay = self.copy();
        decide(&mut overlay)?;
        let decided = overlay.board;
        *locked(&self.board) = decided;
        Ok(())
    }

    fn snapshot(&self, look: Decision<'_>) -> Result<(), StoreError> {
        look(&mut self.copy())
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        let id = random::number().map(|number| WakerId(number >> 2)).map_err(no_pipe)?;
        self.waker_with_id(id)
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        let (reader, writer) = pipe::nonblocking().map_err(no_pipe)?;
        locked(&self.wakers).insert(id, writer);
        Ok(Box::new(PipeBell { id, reader, wakers: Arc::clone(&self.wakers) }))
    }

    fn wake(&self, waker: WakerId) {
        if let Some(writer) = locked(&self.wakers).get(&waker) {
            // A full pipe has been woken already.
            let _ = rustix::io::write(writer, b"!");
        }
    }

    fn remove_waker(&self, waker: WakerId) {
        locked(&self.wakers).remove(&waker);
    }
}

struct PipeBell {
    id: WakerId,
    reader: OwnedFd,
    wakers: Arc<Mutex<BTreeMap<WakerId, OwnedFd>>>,
}

impl Waker for PipeBell {
    fn id(&self) -> WakerId {
        self.id
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(&self.reader)
    }

    fn quiet(&self) {
        let mut wakes = [0; 64];
        while matches!(rustix::io::read(&self.reader, &mut wakes), Ok(read) if read > 0) {}
    }
}

impl Drop for PipeBell {
    fn drop(&mut self) {
        locked(&self.wakers).remove(&self.id);
    }
}

/// A copy of the board that replaces it when the decision went well.
struct Memory<'s> {
    board: InMemoryRecords,
    last_number: &'s AtomicU64,
    now: Moment,
}

impl Records for Memory<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn draw(&mut self) -> Result<u64, StoreError> {
        Ok(self.last_number.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.board.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange, visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError> {
        self.board.leases_within(range).into_iter().cloned().for_each(visit);
        Ok(())
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.board.ticket(id).cloned())
    }

    fn tickets(
        &mut self,
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.board.visit_tickets(range, scan, &mut |ticket| visit(ticket.clone()));
        Ok(())
    }

    fn everything(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        let mut tickets: Vec<Ticket> = self.board.tickets().cloned().collect();
        tickets.sort_by_key(|ticket| ticket.rank);
        Ok((self.board.leases().cloned().collect(), tickets))
    }

    fn apply(&mut self, change: Change) -> Result<(), StoreError> {
        self.board.apply(change).map_err(|misfit| StoreError::Mismatch(misfit.to_string()))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is replaced whole, so a panic elsewhere leaves it sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn no_pipe(source: io::Error) -> StoreError {
    StoreError::Io { action: "make a waker in", path: PathBuf::from("memory"), source }
}
