//! Optimistic concurrency control: what stores on a server have in common.
//!
//! A decision reads without a lock and remembers the versions of what it read. One call of the server compares them. If they
//! are unchanged, it makes the changes. Otherwise the decision runs again. A store implements [`OptimisticStore`];
//! [`Decision`](decision::Decision) does the rest.

pub(crate) mod clock;
pub(crate) mod decision;
#[cfg(feature = "postgres")]
pub(crate) mod known;
pub(crate) mod listener;
pub(crate) mod parts;
pub(crate) mod snapshot;

use std::collections::BTreeSet;
use std::ops::Range;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::records::{Change, Effect};
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::Moment;
use lockkeeper_platform::random;

use self::clock::StoreClock;
#[cfg(feature = "postgres")]
use self::known::Bundle;
use self::parts::{Footprint, Found};
use crate::{Commit, StoreError};

/// How often a call is tried if its connection breaks.
#[cfg(any(feature = "http", feature = "postgres", feature = "redis"))]
pub(crate) const TRIES: usize = 3;

/// What a decision needs of a server.
pub(crate) trait OptimisticStore {
    /// The store's clock, as this process knows it.
    fn clock(&self) -> &StoreClock;

    /// Reads versions and then records, in one round trip. Sets the clock forward. `is_first`: it is the first read of a
    /// decision. A decision that first reads a range acquires a lease, so it needs numbers.
    fn read(&self, wanted: Wanted<'_>, is_first: bool) -> Result<Answer, StoreError>;

    /// Takes what this process knows of a range or a record without a read, if it knows it.
    #[cfg(feature = "postgres")]
    fn recall(&self, _wanted: Wanted<'_>) -> Option<Bundle> {
        None
    }

    /// Draws numbers. Sets the clock forward.
    fn numbers(&self) -> Result<Range<u64>, StoreError>;

    /// If the footprint is unchanged, makes the changes and carries out the effects.
    fn commit(&self, decided: Decided<'_>) -> Result<Commit, StoreError>;
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
    /// Numbers that were drawn after the records were read: a new lease needs a number that is larger than those of all records
    /// that the decision has read.
    pub(crate) numbers: Option<Range<u64>>,
    /// If none were drawn: the decision may use earlier ones if they begin here or later.
    pub(crate) good_from: u64,
    /// Since when the server has lost nothing. None: it never loses anything.
    pub(crate) remembers_since: Option<Moment>,
    /// The version of the whole store at that moment, if it has one.
    pub(crate) version: Option<i64>,
    pub(crate) versions: Vec<i64>,
    pub(crate) records: Vec<Found>,
}

/// The result of a decision.
#[derive(Debug)]
pub(crate) struct Decided<'d> {
    pub(crate) now: Moment,
    /// `remembers_since` of the answers. None if nothing was read, or if the server never loses anything.
    pub(crate) remembers_since: Option<Moment>,
    pub(crate) footprint: Footprint,
    /// The keys whose records were all read.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only PostgreSQL remembers them"))]
    pub(crate) keys: BTreeSet<Key>,
    /// The records that were read.
    #[cfg_attr(
        not(any(feature = "etcd", feature = "postgres")),
        expect(dead_code, reason = "only etcd writes by what was there, and only PostgreSQL remembers it")
    )]
    pub(crate) records: InMemoryRecords,
    /// Whether it began with what this process knew, without a read.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only PostgreSQL remembers it"))]
    pub(crate) is_recalled: bool,
    pub(crate) changes: Vec<Change>,
    pub(crate) effects: &'d [Effect],
}

/// Records that were read, by their keys.
pub(crate) fn collected(found: impl IntoIterator<Item = Found>) -> Result<InMemoryRecords, StoreError> {
    let mut records = InMemoryRecords::default();
    for record in found {
        // A server may return one record under several keys, all in the same version.
        add(record, &mut records)?;
    }
    Ok(records)
}

/// Adds a record that was read. False if the same record was read before with other contents.
pub(crate) fn add(record: Found, records: &mut InMemoryRecords) -> Result<bool, StoreError> {
    let id = record.id();
    match (&record, records.lease(id), records.ticket(id)) {
        (_, None, None) => {}
        (Found::Lease(lease), Some(known), _) => return Ok(lease == known),
        (Found::Ticket(ticket), _, Some(known)) => return Ok(ticket == known),
        (Found::Lease(_), None, Some(_)) | (Found::Ticket(_), Some(_), None) => return Ok(false),
    }
    records.apply(record.into()).map_err(|misfit| StoreError::Mismatch(misfit.to_string()))?;
    Ok(true)
}

/// A random number for a call or a waker at this address.
pub(crate) fn random_number(action: &'static str, address: &str) -> Result<u64, StoreError> {
    random::number().map_err(|source| StoreError::Io { action, address: address.to_owned(), source })
}

/// The error of a commit whose outcome is unknown.
pub(crate) fn in_doubt(explained: StoreError) -> StoreError {
    match explained {
        StoreError::Unreachable { address, source } => StoreError::InDoubt { address, source },
        other => other,
    }
}
