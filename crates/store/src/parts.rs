//! Parts: what a commit compares. A part is one key, or all keys of paths together, since patterns overlap across keys.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::{Key, KeyRange};

use crate::StoreError;

/// The part of all paths.
const PATHS: &str = "p";

/// The part that a key belongs to.
fn part_of(key: &Key) -> &str {
    if key.as_str().starts_with(PATHS) { PATHS } else { key.as_str() }
}

/// The parts that a key range belongs to.
pub(crate) fn parts_of(range: &KeyRange) -> BTreeSet<String> {
    range.exact.iter().chain(&range.below).map(|key| part_of(key).to_owned()).collect()
}

/// The parts in which these changes change a record.
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

/// What a decision has read, with the versions that it had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    /// Parts; version 0 where there was nothing.
    pub(crate) parts: BTreeMap<String, i64>,
    /// Records that were read by id; version 0 where there was none.
    pub(crate) ids: BTreeMap<LeaseId, i64>,
    /// The highest version of all parts, if everything was read.
    pub(crate) all: Option<i64>,
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

    /// The latest moment in it that a decision wrote as its own.
    pub(crate) fn latest_moment(&self) -> i64 {
        match self {
            Self::Lease(lease) => lease.acquired_at.max(lease.heartbeat_at).as_micros(),
            Self::Ticket(ticket) => ticket.enqueued_at.max(ticket.seen_at).as_micros(),
        }
    }
}

/// Adds a record that was read to those that are known. False if another version of it is known.
pub(crate) fn add(found: Found, records: &mut InMemoryRecords) -> Result<bool, StoreError> {
    let id = found.id();
    let change = match (found, records.lease(id), records.ticket(id)) {
        (Found::Lease(lease), None, None) => Change::AddLease(lease),
        (Found::Ticket(ticket), None, None) => Change::AddTicket(ticket),
        (Found::Lease(lease), known, _) if known.is_some() => return Ok(known == Some(&lease)),
        (Found::Ticket(ticket), _, known) if known.is_some() => return Ok(known == Some(&ticket)),
        (Found::Lease(_) | Found::Ticket(_), _, _) => return Ok(false),
    };
    records.apply(change).map_err(|misfit| StoreError::Mismatch(misfit.to_string()))?;
    Ok(true)
}

/// Records of one moment.
pub(crate) fn collected(found: impl IntoIterator<Item = Found>) -> Result<InMemoryRecords, StoreError> {
    let mut records = InMemoryRecords::default();
    for record in found {
        add(record, &mut records)?;
    }
    Ok(records)
}
