//! One function per use case: read clock and store in one transaction, ask the rules, commit, then act.

pub mod doctor;
pub mod evidence;
mod leases;
mod listing;
pub mod predict;
mod probe;
pub mod queue;
pub mod runs;
mod seen;
pub mod stages;
mod stretch;
mod waiting;
pub mod work;

use lockkeeper_core::id::WakerId;
use lockkeeper_core::overlay::{Change, Effect, Overlay, Reaped};

pub use leases::{Broken, Upgrade};
pub use listing::{HolderEntry, InTheWay, Listing, WaiterEntry};
pub use probe::MachineProbe;
pub use waiting::{Patience, Progress, Waited};

use crate::store::{Granted, Store, StoreError};
use seen::Seen;

/// A store, and the machine's word on who lives.
pub struct Engine {
    store: Box<dyn Store>,
    probe: MachineProbe,
}

impl Engine {
    /// Puts the two together.
    pub fn new(store: Box<dyn Store>, probe: MachineProbe) -> Self {
        Self { store, probe }
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The machine's word.
    pub fn probe(&self) -> &MachineProbe {
        &self.probe
    }

    /// Runs a rule in one transaction, commits what it changed, then wakes whom it concerns.
    fn decide<T>(
        &self,
        mut rule: impl FnMut(&mut Overlay<'_, Seen<'_>>) -> Result<T, StoreError>,
    ) -> Result<(T, Vec<Reaped>), StoreError> {
        let mut decided = None;
        self.store.transact(&mut |records| {
            let mut view = Seen::new(records, &self.probe);
            let mut overlay = Overlay::new(&mut view);
            let outcome = rule(&mut overlay)?;
            let (changes, effects, reaped) = overlay.finish();
            let granted = self.announce(&changes);
            for change in changes {
                records.apply(change)?;
            }
            decided = Some((outcome, effects, reaped, granted));
            Ok(())
        })?;
        let (outcome, effects, reaped, granted) = decided.ok_or_else(undecided)?;
        self.act(effects, &granted);
        Ok((outcome, reaped))
    }

    /// Wakes those who are about to be granted something, unless that is of no use; returns what they are granted.
    fn announce(&self, changes: &[Change]) -> Vec<(WakerId, Granted)> {
        let granted = granted(changes);
        granted.iter().for_each(|(waker, _)| self.store.alert(*waker));
        granted
    }

    /// Does what a decision asked for, once it is committed.
    fn act(&self, effects: Vec<Effect>, granted: &[(WakerId, Granted)]) {
        for effect in effects {
            match effect {
                Effect::Wake(waker) => match granted.iter().find(|(to, _)| *to == waker) {
                    Some((_, granted)) => self.store.wake_with_grant(waker, *granted),
                    None => self.store.wake(waker),
                },
                Effect::RemoveWaker(waker) => self.store.remove_waker(waker),
            }
        }
    }

    /// Runs a rule over the records of one moment; what it would change is left alone.
    fn look<T>(
        &self,
        mut rule: impl FnMut(&mut Overlay<'_, Seen<'_>>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut seen = None;
        self.store.snapshot(&mut |records| {
            let mut view = Seen::new(records, &self.probe);
            seen = Some(rule(&mut Overlay::new(&mut view))?);
            Ok(())
        })?;
        seen.ok_or_else(undecided)
    }
}

/// The leases that became of tickets on which somebody sleeps.
fn granted(changes: &[Change]) -> Vec<(WakerId, Granted)> {
    let told = changes.iter().filter_map(|change| {
        let Change::Grant(ticket, lease) = change else { return None };
        ticket.waker.map(|waker| (waker, Granted::of(lease)))
    });
    told.collect()
}

fn undecided() -> StoreError {
    StoreError::Mismatch("the store did not run the decision".to_owned())
}
