//! A store in memory, for one process: the strict double that tests hold the others against.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_core::board::Board;
use lockkeeper_core::draft::{Change, Walk};
use lockkeeper_core::id::{BellId, LeaseId};
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::resource::Reach;
use lockkeeper_core::time::Moment;

use super::{Bell, Decision, Records, Store, StoreError};
use lockkeeper_platform::{clock, pipe, random};

/// Leases and tickets that end with the process.
#[derive(Default)]
pub struct MemoryStore {
    /// One decision at a time; those who look do not wait for it.
    deciding: Mutex<()>,
    board: Mutex<Board>,
    last_number: AtomicU64,
    bells: Arc<Mutex<BTreeMap<BellId, OwnedFd>>>,
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
        let mut draft = self.copy();
        decide(&mut draft)?;
        let decided = draft.board;
        *locked(&self.board) = decided;
        Ok(())
    }

    fn snapshot(&self, look: Decision<'_>) -> Result<(), StoreError> {
        look(&mut self.copy())
    }

    fn bell(&self) -> Result<Box<dyn Bell>, StoreError> {
        let id = random::number().map(|number| BellId(number >> 2)).map_err(no_pipe)?;
        self.bell_with_id(id)
    }

    fn bell_with_id(&self, id: BellId) -> Result<Box<dyn Bell>, StoreError> {
        let (reader, writer) = pipe::nonblocking().map_err(no_pipe)?;
        locked(&self.bells).insert(id, writer);
        Ok(Box::new(PipeBell { id, reader, bells: Arc::clone(&self.bells) }))
    }

    fn ring(&self, bell: BellId) {
        if let Some(writer) = locked(&self.bells).get(&bell) {
            // A full pipe has been rung already.
            let _ = rustix::io::write(writer, b"!");
        }
    }

    fn dismantle(&self, bell: BellId) {
        locked(&self.bells).remove(&bell);
    }
}

struct PipeBell {
    id: BellId,
    reader: OwnedFd,
    bells: Arc<Mutex<BTreeMap<BellId, OwnedFd>>>,
}

impl Bell for PipeBell {
    fn id(&self) -> BellId {
        self.id
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        AsFd::as_fd(&self.reader)
    }

    fn quiet(&self) {
        let mut rings = [0; 64];
        while matches!(rustix::io::read(&self.reader, &mut rings), Ok(read) if read > 0) {}
    }
}

impl Drop for PipeBell {
    fn drop(&mut self) {
        locked(&self.bells).remove(&self.id);
    }
}

/// A copy of the board that replaces it when the decision went well.
struct Memory<'s> {
    board: Board,
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

    fn leases(&mut self, reach: &Reach, visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError> {
        self.board.leases_within(reach).into_iter().cloned().for_each(visit);
        Ok(())
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.board.ticket(id).cloned())
    }

    fn tickets(
        &mut self,
        reach: &Reach,
        walk: Walk,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.board.visit_tickets(reach, walk, &mut |ticket| visit(ticket.clone()));
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
    StoreError::Io { action: "make a bell in", path: PathBuf::from("memory"), source }
}
