//! Parts: the units whose versions a commit compares. A part is one key, or all keys of paths together, because a pattern overlaps
//! paths with other keys.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::{Key, KeyRange};

/// The part of all paths.
pub(super) const PATHS: &str = "p";

/// The part that a key belongs to.
pub(crate) fn part_of(key: &Key) -> &str {
    if key.as_str().starts_with(PATHS) { PATHS } else { key.as_str() }
}

/// The parts that a key range belongs to.
pub(crate) fn parts_of(range: &KeyRange) -> BTreeSet<String> {
    range.exact.iter().chain(&range.below).map(|key| part_of(key).to_owned()).collect()
}

/// The parts in which these changes change a record.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
pub(crate) fn parts_written(changes: &[Change]) -> BTreeSet<String> {
    let keys = changes.iter().flat_map(|change| match change {
        Change::AddLease(lease) | Change::UpdateLease(lease) | Change::RemoveLease(lease) => lease.keys(),
        Change::AddTicket(ticket)
        | Change::UpdateTicket(ticket)
        | Change::RemoveTicket(ticket)
        | Change::Grant(ticket, _) => ticket.keys(),
    });
    keys.map(|key| part_of(&key).to_owned()).collect()
}

/// The record that a change is about.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
pub(crate) fn id_of(change: &Change) -> LeaseId {
    match change {
        Change::AddLease(lease)
        | Change::UpdateLease(lease)
        | Change::RemoveLease(lease)
        | Change::Grant(_, lease) => lease.id,
        Change::AddTicket(ticket) | Change::UpdateTicket(ticket) | Change::RemoveTicket(ticket) => ticket.id,
    }
}

/// What a decision has read, with the versions at that time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    /// Parts; version 0 if there is none.
    pub(crate) parts: BTreeMap<String, i64>,
    /// Records that were read by id; version 0 if there is none.
    pub(crate) ids: BTreeMap<LeaseId, i64>,
    /// The highest version of all parts, if everything was read.
    pub(crate) all: Option<i64>,
    /// The version of the whole store at the first read, if it has one.
    pub(crate) first: Option<i64>,
}

/// A record as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Lease(Lease),
    Ticket(Ticket),
}

impl Found {
    pub(crate) fn id(&self) -> LeaseId {
        match self {
            Self::Lease(lease) => lease.id,
            Self::Ticket(ticket) => ticket.id,
        }
    }

    /// The keys by which it is found.
    #[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
    pub(crate) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Lease(lease) => lease.keys(),
            Self::Ticket(ticket) => ticket.keys(),
        }
    }

    /// The latest moment in it that was `now` for a decision.
    pub(crate) fn latest_moment(&self) -> i64 {
        match self {
            Self::Lease(lease) => lease.acquired_at.max(lease.heartbeat_at).as_micros(),
            Self::Ticket(ticket) => ticket.enqueued_at.max(ticket.seen_at).as_micros(),
        }
    }
}

impl From<Found> for Change {
    /// Adds the record.
    fn from(found: Found) -> Self {
        match found {
            Found::Lease(lease) => Self::AddLease(lease),
            Found::Ticket(ticket) => Self::AddTicket(ticket),
        }
    }
}
