//! The store's clock, as the threads of a worker read it. A store that fails is asked again.

use lockkeeper_core::run::Stamp;
use lockkeeper_core::time::Moment;

use super::completer::persist;
use super::events::Events;
use crate::runs::Runs;
use lockkeeper_platform::clock;

/// The time on the store's clock.
pub(super) fn store_now(runs: &Runs, events: &Events) -> Stamp {
    persist(events, "read the clock of the store", || runs.now())
}

/// A moment of the store's clock as a moment of the clock of this machine, for supervision that must not wait for the store.
pub(super) fn local_deadline(runs: &Runs, events: &Events, at: Option<Moment>) -> Option<Moment> {
    at.map(|at| clock::now().after(at.since(store_now(runs, events).moment)))
}
