//! Use cases: one function for each thing that a command, the library or the server can ask for.
//!
//! A use case of leases runs one decision: it reads the records of one transaction, asks the rules in `lockkeeper-core`, and
//! commits their changes.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

#![cfg_attr(
    not(feature = "stages"),
    expect(
        dead_code,
        reason = "only the doctor and the executor of stages use some functions of the worker"
    )
)]

mod acquiring;
mod agents;
mod by_name;
pub mod config;
pub mod conflicts;
#[cfg(feature = "stages")]
pub mod doctor;
pub mod evidence;
pub mod executors;
#[cfg(feature = "stages")]
pub mod foreign_locks;
pub mod history;
mod holding;
mod leases;
mod listing;
pub mod location;
pub mod messages;
pub mod migrate;
pub mod open;
#[cfg(feature = "stages")]
pub mod overview;
mod owner_names;
pub mod predict;
mod probe;
pub mod queue;
pub mod report;
mod request_locks;
mod resident;
pub mod runs;
#[cfg(feature = "http")]
pub mod served;
pub mod session_guardian;
mod sessions;
pub mod shared_store;
mod stage_names;
#[cfg(feature = "stages")]
pub mod stages;
mod store_bench;
pub mod under;
pub mod views;
mod waiting;
mod waker_pool;
pub mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::overlay::Overlay;
use lockkeeper_core::records::Reaped;

pub use acquiring::{Acquired, AtEnd};
pub use by_name::LeaseByName;
pub use holding::{LossListener, Supervised};
pub use leases::{Broken, Ended, Upgrade};
pub use listing::{ConflictingLease, HolderEntry, Listing, WaiterEntry};
pub use owner_names::{OwnerNames, with_short_ids};
pub use probe::MachineProbe;
pub use request_locks::LockFileHolder;
pub use resident::Resident;
pub use store_bench::StoreBench;
pub use waiting::{Progress, WaitOptions};

pub use lockkeeper_store::StoreError;
use lockkeeper_store::{Commit, LeaseStore};

use sessions::LeaseSessions;
use waker_pool::WakerPool;

/// A store of leases, and the probe that shows which processes live.
pub struct Engine {
    store: Arc<dyn LeaseStore>,
    probe: Arc<MachineProbe>,
    wakers: WakerPool,
    sessions: LeaseSessions,
    /// Identifies the store, if several machines share it.
    shared_id: Option<String>,
    /// How long a waiter keeps trying while the store cannot be reached.
    outage: Duration,
}

impl Engine {
    /// The use cases over this store, with this probe.
    pub fn new(store: Arc<dyn LeaseStore>, probe: MachineProbe) -> Self {
        let probe = Arc::new(probe);
        let sessions = LeaseSessions::new(Arc::clone(&store), Arc::clone(&probe));
        Self { store, probe, wakers: WakerPool::default(), sessions, shared_id: None, outage: Duration::ZERO }
    }

    /// Whether several machines share the store.
    pub fn is_shared(&self) -> bool {
        self.shared_id.is_some()
    }

    /// Identifies the store: its folder, or the server and the project.
    pub fn store_id(&self) -> PathBuf {
        self.shared_id.as_ref().map_or_else(|| self.probe.folder().to_owned(), PathBuf::from)
    }

    /// Keeps the waker of a wait for the next one. For processes that wait again and again.
    #[must_use]
    pub fn keep_wakers(mut self) -> Self {
        self.wakers = WakerPool::keeping();
        self
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn LeaseStore {
        &*self.store
    }

    /// The liveness probe.
    pub fn probe(&self) -> &MachineProbe {
        &self.probe
    }

    /// Runs a rule and commits its changes. Runs it again if a record that it read has changed meanwhile.
    fn decide<T>(
        &self,
        rule: impl FnMut(&mut Overlay<'_, StoreError>) -> Result<T, StoreError>,
    ) -> Result<(T, Vec<Reaped>), StoreError> {
        decide(&*self.store, &self.probe, rule)
    }

    /// Runs a rule over a snapshot. Its changes are not committed.
    fn look<T>(
        &self,
        rule: impl FnOnce(&mut Overlay<'_, StoreError>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut snapshot = self.store.snapshot()?;
        rule(&mut Overlay::new(&mut *snapshot, &*self.probe))
    }
}

fn decide<T>(
    store: &dyn LeaseStore,
    probe: &MachineProbe,
    mut rule: impl FnMut(&mut Overlay<'_, StoreError>) -> Result<T, StoreError>,
) -> Result<(T, Vec<Reaped>), StoreError> {
    loop {
        let mut transaction = store.begin()?;
        let mut overlay = Overlay::new(&mut *transaction, probe);
        let outcome = rule(&mut overlay)?;
        let (changes, effects, reaped) = overlay.finish();
        match transaction.commit(changes, &effects)? {
            Commit::Committed => return Ok((outcome, reaped)),
            Commit::Changed => {}
        }
    }
}
