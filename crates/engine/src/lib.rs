//! Use cases: one function for each thing that a command, the library or the server can ask for.
//!
//! A use case of leases runs one decision: it reads the records of one transaction, asks the rules in `lockkeeper-core`, and
//! commits their changes.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

mod acquiring;
mod agents;
pub mod conflicts;
#[cfg(feature = "stages")]
pub mod doctor;
pub mod evidence;
pub mod history;
mod holding;
mod leases;
mod listing;
pub mod location;
pub mod messages;
pub mod open;
pub mod predict;
mod probe;
pub mod queue;
pub mod report;
mod resident;
pub mod runs;
#[cfg(feature = "stages")]
pub mod stages;
pub mod views;
mod waiting;
pub mod work;

use lockkeeper_core::overlay::Overlay;
use lockkeeper_core::records::Reaped;

pub use acquiring::{Acquired, AtEnd};
pub use holding::Supervised;
pub use leases::{Broken, Upgrade};
pub use listing::{ConflictingLease, HolderEntry, Listing, WaiterEntry};
pub use probe::MachineProbe;
pub use resident::Resident;
pub use waiting::{Progress, WaitOptions};

use lockkeeper_store::{Commit, LeaseStore, StoreError};

/// A store of leases, and the probe that tells which processes live.
pub struct Engine {
    store: Box<dyn LeaseStore>,
    probe: MachineProbe,
}

impl Engine {
    /// Puts the two together.
    pub fn new(store: Box<dyn LeaseStore>, probe: MachineProbe) -> Self {
        Self { store, probe }
    }

    /// The store.
    pub fn store(&self) -> &dyn LeaseStore {
        &*self.store
    }

    /// The liveness probe.
    pub fn probe(&self) -> &MachineProbe {
        &self.probe
    }

    /// Runs a rule and commits its changes. Runs it again if a record that it read has changed meanwhile.
    fn decide<T>(
        &self,
        mut rule: impl FnMut(&mut Overlay<'_, StoreError>) -> Result<T, StoreError>,
    ) -> Result<(T, Vec<Reaped>), StoreError> {
        loop {
            let mut transaction = self.store.begin()?;
            let mut overlay = Overlay::new(&mut *transaction, &self.probe);
            let outcome = rule(&mut overlay)?;
            let (changes, effects, reaped) = overlay.finish();
            match transaction.commit(changes, &effects)? {
                Commit::Committed => return Ok((outcome, reaped)),
                Commit::Changed => {}
            }
        }
    }

    /// Runs a rule over a snapshot. Its changes are not committed.
    fn look<T>(
        &self,
        rule: impl FnOnce(&mut Overlay<'_, StoreError>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut snapshot = self.store.snapshot()?;
        rule(&mut Overlay::new(&mut *snapshot, &self.probe))
    }
}
