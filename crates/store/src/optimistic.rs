//! Optimistic concurrency control: what stores on a server have in common.
//!
//! A decision reads without a lock and remembers the versions of what it read. One call of the server compares them and makes
//! the changes, or tells that something has changed, and the decision runs again. A store implements [`OptimisticStore`];
//! [`Decision`](decision::Decision) does the rest.

pub(crate) mod clock;
pub(crate) mod decision;
pub(crate) mod parts;
pub(crate) mod snapshot;
pub(crate) mod wake_up;

use std::ops::Range;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::records::{Change, Effect};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::random;

use self::clock::StoreClock;
use self::parts::{Footprint, Found};
use crate::{Commit, StoreError};

/// How often a call is tried whose connection breaks.
pub(crate) const TRIES: usize = 3;

/// A server as a decision uses it.
pub(crate) trait OptimisticStore {
    /// The store's clock, as far as it is known here.
    fn clock(&self) -> &StoreClock;

    /// Reads versions and then records, in one round trip. Puts the clock forward.
    fn read(&self, wanted: Wanted<'_>) -> Result<Answer, StoreError>;

    /// Draws numbers. Puts the clock forward.
    fn numbers(&self) -> Result<Range<u64>, StoreError>;

    /// Makes the changes if the footprint is unchanged, and carries out the effects then.
    fn commit(&self, decided: &Decided<'_>) -> Result<Commit, StoreError>;
}

/// What a decision reads with one call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'w> {
    /// The records of a range, and the versions of these parts.
    In(&'w KeyRange, &'w [String]),
    /// One record, and its version; 0 if there is none.
    One(LeaseId),
    /// All records, and the highest version.
    All,
}

/// What the server returned. The versions are not newer than the records.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) numbers: Range<u64>,
    pub(crate) versions: Vec<i64>,
    pub(crate) records: Vec<Found>,
}

/// What a decision came to.
#[derive(Debug)]
pub(crate) struct Decided<'d> {
    pub(crate) now: Moment,
    pub(crate) footprint: &'d Footprint,
    pub(crate) changes: &'d [Change],
    pub(crate) effects: &'d [Effect],
}

/// Records that were read, by their keys.
pub(crate) fn collected(found: impl IntoIterator<Item = Found>) -> Result<InMemoryRecords, StoreError> {
    let mut records = InMemoryRecords::default();
    for record in found {
        records.apply(record.into()).map_err(|misfit| StoreError::Mismatch(misfit.to_string()))?;
    }
    Ok(records)
}

/// A random number for a call or a waker at this address.
pub(crate) fn random_number(action: &'static str, address: &str) -> Result<u64, StoreError> {
    random::number().map_err(|source| StoreError::Io { action, address: address.to_owned(), source })
}

/// The failure of a commit after which nobody knows whether it was made.
pub(crate) fn in_doubt(explained: StoreError) -> StoreError {
    match explained {
        StoreError::Unreachable { address, source } => StoreError::InDoubt { address, source },
        other => other,
    }
}
