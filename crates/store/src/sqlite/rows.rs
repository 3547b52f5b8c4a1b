//! Rows: the SQL statements, and the conversion between records and rows. Impossible values are refused.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::record::{Claim, Lease, Priority, Rank, Ticket};
use lockkeeper_core::time::{Moment, Ttl};
use rusqlite::Row;

use crate::StoreError;
use crate::encoding;

/// The columns of a lease.
macro_rules! select_leases {
    ($rest:literal) => {
        concat!("SELECT r.id, token, claim, since, seen_at, pickup_by, revoked FROM ", $rest)
    };
}

/// The columns of a ticket.
macro_rules! select_tickets {
    ($rest:literal) => {
        concat!(
            "SELECT r.id, r.rank, claim, priority, since, seen_at, stays, bell, under, upgrades FROM ",
            $rest
        )
    };
}

/// One lease.
pub(super) const LEASE: &str = select_leases!("record r WHERE r.id = ?1 AND rank IS NULL");
/// Every lease, oldest first.
pub(super) const ALL_LEASES: &str = select_leases!("record r WHERE rank IS NULL ORDER BY r.id DESC");
/// The leases with one key.
pub(super) const LEASES_AT: &str =
    select_leases!("filed k JOIN record r ON r.id = -k.id WHERE k.waits = 0 AND k.key = ?1");
/// The leases with a key in a range.
pub(super) const LEASES_BELOW: &str =
    select_leases!("filed k JOIN record r ON r.id = -k.id WHERE k.waits = 0 AND k.key >= ?1 AND k.key < ?2");
/// One ticket.
pub(super) const TICKET: &str = select_tickets!("record r WHERE r.id = ?1 AND rank IS NOT NULL");
/// Every ticket, in the order in which they are served.
pub(super) const ALL_TICKETS: &str =
    select_tickets!("record r WHERE rank IS NOT NULL ORDER BY r.rank, r.id DESC");
/// Whether there is any ticket.
pub(super) const ANY_TICKET: &str = "SELECT 1 FROM filed WHERE waits = 1 LIMIT 1";
/// The tickets of one key, after a rank, first to last.
pub(super) const LINE_FORWARD: &str = select_tickets!(
    "filed k JOIN record r ON r.id = -k.id
     WHERE k.waits = 1 AND k.key = ?1 AND (k.rank, k.id) > (?2, ?3) ORDER BY k.rank, k.id LIMIT ?4"
);
/// The tickets of one key, before a rank, last to first.
pub(super) const LINE_BACKWARD: &str = select_tickets!(
    "filed k JOIN record r ON r.id = -k.id
     WHERE k.waits = 1 AND k.key = ?1 AND (k.rank, k.id) < (?2, ?3) ORDER BY k.rank DESC, k.id DESC LIMIT ?4"
);
/// The tickets under a range of keys, in no order.
pub(super) const TICKETS_BELOW: &str =
    select_tickets!("filed k JOIN record r ON r.id = -k.id WHERE k.waits = 1 AND k.key >= ?1 AND k.key < ?2");

/// Inserts a lease.
pub(super) const INSERT_LEASE: &str =
    "INSERT INTO record (id, token, claim, since, seen_at, pickup_by, revoked)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
/// Updates a lease.
pub(super) const UPDATE_LEASE: &str = "UPDATE record SET (token, claim, since, seen_at, pickup_by, revoked)
     = (?2, ?3, ?4, ?5, ?6, ?7) WHERE id = ?1 AND rank IS NULL";
/// Inserts a ticket.
pub(super) const INSERT_TICKET: &str =
    "INSERT INTO record (id, rank, claim, priority, since, seen_at, stays, bell, under, upgrades)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
/// Updates a ticket.
pub(super) const UPDATE_TICKET: &str =
    "UPDATE record SET (rank, claim, priority, since, seen_at, stays, bell, under, upgrades)
     = (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) WHERE id = ?1 AND rank IS NOT NULL";
/// Turns a ticket into a lease.
pub(super) const GRANT: &str =
    "UPDATE record SET (rank, token, since, seen_at, pickup_by, revoked, priority, stays, bell, under, upgrades)
     = (NULL, ?3, ?4, ?5, ?6, ?7, NULL, NULL, NULL, NULL, NULL) WHERE id = ?1 AND rank = ?2";
/// Deletes a lease or a ticket.
pub(super) const REMOVE: &str = "DELETE FROM record WHERE id = ?1";

/// Inserts a key of a record.
pub(super) const FILE: &str = "INSERT INTO filed VALUES (?1, ?4, ?2, ?3)";
/// Inserts two keys of a record. Most have two: name and owner.
pub(super) const FILE_TWICE: &str = "INSERT INTO filed VALUES (?1, ?4, ?2, ?3), (?1, ?5, ?2, ?3)";
/// Whether a record has a key.
pub(super) const IS_FILED: &str =
    "SELECT 1 FROM filed WHERE waits = ?1 AND key = ?4 AND rank = ?2 AND id = ?3";
/// Deletes a key of a record.
pub(super) const UNFILE: &str = "DELETE FROM filed WHERE waits = ?1 AND key = ?4 AND rank = ?2 AND id = ?3";

/// What leases were before each change after a version, with the version of that change.
#[cfg(feature = "http")]
pub(super) const LEASES_BEFORE: &str =
    "SELECT r.id, token, claim, since, seen_at, pickup_by, revoked, version FROM change_log r
     WHERE version > ?1 AND claim IS NOT NULL AND rank IS NULL";
/// What tickets were before each change after a version, with the version of that change.
#[cfg(feature = "http")]
pub(super) const TICKETS_BEFORE: &str =
    "SELECT r.id, r.rank, claim, priority, since, seen_at, stays, bell, under, upgrades, version FROM change_log r
     WHERE version > ?1 AND rank IS NOT NULL";
/// The records that were added after a version, with the version of that change.
#[cfg(feature = "http")]
pub(super) const ADDED_AFTER: &str =
    "SELECT id, version FROM change_log WHERE version > ?1 AND claim IS NULL AND id IS NOT NULL";

/// The index entry of a record: whether it waits, its rank, and its id.
pub(super) type Place = (bool, i64, i64);

/// The index entry of a lease.
pub(super) fn place_of_lease(lease: &Lease) -> Place {
    (false, 0, integer(lease.id.0))
}

/// The index entry of a ticket.
pub(super) fn place_of_ticket(ticket: &Ticket) -> Place {
    (true, ticket.rank.at, integer(ticket.id.0))
}

/// The id of a row.
pub(super) fn row_id(id: LeaseId) -> i64 {
    -integer(id.0)
}

/// The values of a lease's columns.
pub(super) fn lease_values(lease: &Lease) -> impl rusqlite::Params {
    (
        row_id(lease.id),
        integer(lease.token.0),
        encoding::claim_to_bytes(&lease.claim),
        lease.acquired_at.as_micros(),
        lease.heartbeat_at.as_micros(),
        lease.pickup_by.map(Moment::as_micros),
        lease.revoked,
    )
}

/// The values of what changes when a ticket becomes a lease.
pub(super) fn grant_values(ticket: &Ticket, lease: &Lease) -> impl rusqlite::Params {
    (
        row_id(ticket.id),
        ticket.rank.at,
        integer(lease.token.0),
        lease.acquired_at.as_micros(),
        lease.heartbeat_at.as_micros(),
        lease.pickup_by.map(Moment::as_micros),
        lease.revoked,
    )
}

/// The values of a ticket's columns.
pub(super) fn ticket_values(ticket: &Ticket) -> impl rusqlite::Params {
    (
        row_id(ticket.id),
        ticket.rank.at,
        encoding::claim_to_bytes(&ticket.claim),
        ticket.priority.get(),
        ticket.enqueued_at.as_micros(),
        ticket.seen_at.as_micros(),
        micros(ticket.stays),
        ticket.waker.map(|waker| integer(waker.0)),
        encoding::lease_ids_to_bytes(&ticket.under),
        ticket.upgrades.map(|id| integer(id.0)),
    )
}

/// Reads a row of `select_leases`.
pub(super) fn lease_from(row: &Row<'_>) -> Result<Lease, StoreError> {
    Ok(Lease {
        id: id_from(row)?,
        token: Token(number(row, 1)?),
        claim: claim_from(row, 2)?,
        acquired_at: Moment::from_micros(get(row, 3)?),
        heartbeat_at: Moment::from_micros(get(row, 4)?),
        pickup_by: get::<Option<i64>>(row, 5)?.map(Moment::from_micros),
        revoked: get(row, 6)?,
    })
}

/// Reads a row of `select_tickets`.
pub(super) fn ticket_from(row: &Row<'_>) -> Result<Ticket, StoreError> {
    let id = id_from(row)?;
    let under = encoding::lease_ids_from_bytes(get_bytes(row, 8)?);
    Ok(Ticket {
        id,
        rank: Rank { at: get(row, 1)?, id },
        claim: claim_from(row, 2)?,
        priority: Priority::new(get(row, 3)?).map_err(|_| impossible("priority"))?,
        enqueued_at: Moment::from_micros(get(row, 4)?),
        seen_at: Moment::from_micros(get(row, 5)?),
        stays: ttl_from(get(row, 6)?)?,
        waker: get::<Option<i64>>(row, 7)?.map(|waker| WakerId(waker.cast_unsigned())),
        under: under.ok_or_else(|| impossible("list of leases"))?,
        upgrades: get::<Option<i64>>(row, 9)?.map(|id| LeaseId(id.cast_unsigned())),
    })
}

pub(super) fn id_from(row: &Row<'_>) -> Result<LeaseId, StoreError> {
    let id = get::<i64>(row, 0)?.checked_neg();
    id.map(|id| LeaseId(id.cast_unsigned())).ok_or_else(|| impossible("id"))
}

fn claim_from(row: &Row<'_>, index: usize) -> Result<Arc<Claim>, StoreError> {
    let claim = encoding::claim_from_bytes(get_bytes(row, index)?);
    claim.map(Arc::new).ok_or_else(|| impossible("claim"))
}

/// SQLite integers are signed. Numbers start at one and never get that large.
fn integer(number: u64) -> i64 {
    number.cast_signed()
}

fn micros(ttl: Ttl) -> i64 {
    i64::try_from(ttl.get().as_micros()).unwrap_or(i64::MAX)
}

fn ttl_from(micros: i64) -> Result<Ttl, StoreError> {
    let span = u64::try_from(micros).map(Duration::from_micros);
    span.ok().and_then(|span| Ttl::new(span).ok()).ok_or_else(|| impossible("ttl"))
}

fn number(row: &Row<'_>, index: usize) -> Result<u64, StoreError> {
    get::<i64>(row, index).map(i64::cast_unsigned)
}

pub(super) fn get<T: rusqlite::types::FromSql>(row: &Row<'_>, index: usize) -> Result<T, StoreError> {
    row.get(index).map_err(|error| StoreError::Mismatch(error.to_string()))
}

fn get_bytes<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r [u8], StoreError> {
    let bytes = row.get_ref(index).ok().and_then(|value| value.as_blob().ok());
    bytes.ok_or_else(|| StoreError::Mismatch(format!("column {index} has no bytes")))
}

fn impossible(column: &str) -> StoreError {
    StoreError::Mismatch(format!("a row has an impossible {column}"))
}
