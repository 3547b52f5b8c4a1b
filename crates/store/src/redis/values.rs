//! Records as values of Redis: a head, with which the script checks a change, and the bytes of the record.
//!
//! A value is `VERSION 0 HEAD BYTES`. The head is `RANK 0 LENGTH 0 KEYS`: no rank for a lease, and the keys of the record, with a
//! zero byte between them. Keys have no zero bytes.

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::Key;

use crate::StoreError;
use crate::encoding::{record_from_bytes, record_to_bytes};
use crate::optimistic::parts::{Found, id_of};

/// One change as the script takes it.
pub(super) struct ChangeArgs {
    pub(super) id: LeaseId,
    /// The head before; empty if there is no record yet.
    pub(super) head: Vec<u8>,
    /// The head and the bytes afterwards; empty if there is no record any more.
    pub(super) body: Vec<u8>,
    pub(super) added: Vec<Vec<u8>>,
    pub(super) removed: Vec<Vec<u8>>,
}

impl ChangeArgs {
    pub(super) fn of(change: &Change) -> Self {
        let lease = |lease: &Lease| Some(Found::Lease(lease.clone()));
        let ticket = |ticket: &Ticket| Some(Found::Ticket(ticket.clone()));
        let (before, after) = match change {
            Change::AddLease(new) => (None, lease(new)),
            Change::UpdateLease(new) => (lease(new), lease(new)),
            Change::RemoveLease(old) => (lease(old), None),
            Change::AddTicket(new) => (None, ticket(new)),
            Change::UpdateTicket(new) => (ticket(new), ticket(new)),
            Change::RemoveTicket(old) => (ticket(old), None),
            Change::Grant(old, new) => (ticket(old), lease(new)),
        };
        let id = id_of(change);
        let keys =
            |record: &Option<Found>| record.as_ref().map_or_else(Vec::new, |found| sorted(&found.keys()));
        let (old, new) = (keys(&before), keys(&after));
        let member = |key: &String| [key.as_bytes(), b"\0", id.0.to_string().as_bytes()].concat();
        let only_in = |some: &[String], others: &[String]| -> Vec<Vec<u8>> {
            some.iter().filter(|key| !others.contains(key)).map(member).collect()
        };
        Self {
            id,
            added: only_in(&new, &old),
            removed: only_in(&old, &new),
            head: before.as_ref().map_or_else(Vec::new, head),
            body: after.map_or_else(Vec::new, |record| [head(&record), record_to_bytes(&record)].concat()),
        }
    }
}

/// The head of a record, with which the script checks a change.
fn head(record: &Found) -> Vec<u8> {
    let rank = match record {
        Found::Lease(_) => String::new(),
        Found::Ticket(ticket) => ticket.rank.at.to_string(),
    };
    let keys = sorted(&record.keys()).join("\0");
    format!("{rank}\0{}\0{keys}", keys.len()).into_bytes()
}

/// Each key once, in an order that is always the same.
fn sorted(keys: &[Key]) -> Vec<String> {
    let mut keys: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Reads a value: its version and the record. Refuses what is not one.
pub(super) fn record_from(value: &[u8]) -> Result<(i64, Found), StoreError> {
    parse(value).ok_or_else(|| StoreError::Mismatch("a record cannot be read".to_owned()))
}

fn parse(value: &[u8]) -> Option<(i64, Found)> {
    let mut fields = value.splitn(4, |byte| *byte == 0);
    let mut text = || fields.next().and_then(|field| std::str::from_utf8(field).ok());
    let (version, _rank, length) = (text()?.parse().ok()?, text()?, text()?.parse().ok()?);
    let (_, bytes) = fields.next()?.split_at_checked(length)?;
    Some((version, record_from_bytes(bytes)?))
}
