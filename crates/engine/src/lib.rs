//! One function per use case: read clock and store in one transaction, ask the rules, commit, then act.

mod clerk;
pub mod conflicts;
#[cfg(feature = "stages")]
pub mod doctor;
pub mod evidence;
pub mod history;
mod leases;
mod listing;
pub mod location;
pub mod messages;
pub mod open;
pub mod predict;
pub mod queue;
pub mod report;
pub mod runs;
mod seen;
mod senses;
#[cfg(feature = "stages")]
pub mod stages;
mod stretch;
pub mod views;
mod waiting;
pub mod work;

use lockkeeper_core::draft::{Burial, Change, Draft, Effect};
use lockkeeper_core::id::BellId;

pub use leases::{Broken, Upgrade};
pub use listing::{HolderEntry, InTheWay, Listing, WaiterEntry};
pub use senses::Senses;
pub use waiting::{Patience, Progress, Waited};

use lockkeeper_store::{Granted, Store, StoreError};
use seen::Seen;

/// A store, and the machine's word on who lives.
pub struct Engine {
    store: Box<dyn Store>,
    senses: Senses,
}

impl Engine {
    /// Puts the two together.
    pub fn new(store: Box<dyn Store>, senses: Senses) -> Self {
        Self { store, senses }
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The machine's word.
    pub fn senses(&self) -> &Senses {
        &self.senses
    }

    /// Runs a rule in one transaction, commits what it changed, then wakes whom it concerns.
    fn decide<T>(
        &self,
        mut rule: impl FnMut(&mut Draft<'_, Seen<'_>>) -> Result<T, StoreError>,
    ) -> Result<(T, Vec<Burial>), StoreError> {
        let mut decided = None;
        self.store.transact(&mut |records| {
            let mut view = Seen::new(records, &self.senses);
            let mut draft = Draft::new(&mut view);
            let outcome = rule(&mut draft)?;
            let (changes, effects, burials) = draft.finish();
            let granted = self.announce(&changes);
            for change in changes {
                records.apply(change)?;
            }
            decided = Some((outcome, effects, burials, granted));
            Ok(())
        })?;
        let (outcome, effects, burials, granted) = decided.ok_or_else(undecided)?;
        self.act(effects, &granted);
        Ok((outcome, burials))
    }

    /// Wakes those who are about to be granted something, unless that is of no use; returns what they are granted.
    fn announce(&self, changes: &[Change]) -> Vec<(BellId, Granted)> {
        let granted = granted(changes);
        granted.iter().for_each(|(bell, _)| self.store.alert(*bell));
        granted
    }

    /// Does what a decision asked for, once it is committed.
    fn act(&self, effects: Vec<Effect>, granted: &[(BellId, Granted)]) {
        for effect in effects {
            match effect {
                Effect::Ring(bell) => match granted.iter().find(|(to, _)| *to == bell) {
                    Some((_, granted)) => self.store.hand_over(bell, *granted),
                    None => self.store.ring(bell),
                },
                Effect::Dismantle(bell) => self.store.dismantle(bell),
            }
        }
    }

    /// Runs a rule over the records of one moment; what it would change is left alone.
    fn look<T>(
        &self,
        mut rule: impl FnMut(&mut Draft<'_, Seen<'_>>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut seen = None;
        self.store.snapshot(&mut |records| {
            let mut view = Seen::new(records, &self.senses);
            seen = Some(rule(&mut Draft::new(&mut view))?);
            Ok(())
        })?;
        seen.ok_or_else(undecided)
    }
}

/// The leases that became of tickets on which somebody sleeps.
fn granted(changes: &[Change]) -> Vec<(BellId, Granted)> {
    let told = changes.iter().filter_map(|change| {
        let Change::Grant(ticket, lease) = change else { return None };
        ticket.bell.map(|bell| (bell, Granted::of(lease)))
    });
    told.collect()
}

fn undecided() -> StoreError {
    StoreError::Mismatch("the store did not run the decision".to_owned())
}
