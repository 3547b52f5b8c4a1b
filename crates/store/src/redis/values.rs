//! Records as the server has them: a head, by which a change is checked, and the bytes of the record.
//!
//! A value is `VERSION 0 HEAD BYTES`. The head is `RANK 0 LENGTH 0 KEYS`: no rank for a lease, and the keys of the record, with a
//! zero byte between them. Keys have no zero bytes.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::record::{Lease, Priority, Rank, Ticket};
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::Key;
use lockkeeper_core::time::{Moment, Ttl};

use crate::StoreError;
use crate::encoding::{claim_from_bytes, claim_to_bytes, lease_ids_from_bytes, lease_ids_to_bytes};
use crate::optimistic::parts::Found;

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
        match change {
            Change::AddLease(lease) => Self::new(lease.id, None, Some(Side::of_lease(lease))),
            Change::UpdateLease(lease) => {
                Self::new(lease.id, Some(Side::of_lease(lease)), Some(Side::of_lease(lease)))
            }
            Change::RemoveLease(lease) => Self::new(lease.id, Some(Side::of_lease(lease)), None),
            Change::AddTicket(ticket) => Self::new(ticket.id, None, Some(Side::of_ticket(ticket))),
            Change::UpdateTicket(ticket) => {
                Self::new(ticket.id, Some(Side::of_ticket(ticket)), Some(Side::of_ticket(ticket)))
            }
            Change::RemoveTicket(ticket) => Self::new(ticket.id, Some(Side::of_ticket(ticket)), None),
            Change::Grant(ticket, lease) => {
                Self::new(lease.id, Some(Side::of_ticket(ticket)), Some(Side::of_lease(lease)))
            }
        }
    }

    fn new(id: LeaseId, before: Option<Side>, after: Option<Side>) -> Self {
        let keys = |side: &Option<Side>| side.as_ref().map_or_else(Vec::new, |side| side.keys.clone());
        let (old, new) = (keys(&before), keys(&after));
        let member = |key: &String| [key.as_bytes(), b"\0", id.0.to_string().as_bytes()].concat();
        let only_in = |some: &[String], others: &[String]| -> Vec<Vec<u8>> {
            some.iter().filter(|key| !others.contains(key)).map(member).collect()
        };
        Self {
            id,
            added: only_in(&new, &old),
            removed: only_in(&old, &new),
            head: before.map_or_else(Vec::new, |side| side.head()),
            body: after.map_or_else(Vec::new, |side| [side.head(), side.bytes].concat()),
        }
    }
}

/// A record before or after a change.
struct Side {
    rank: String,
    keys: Vec<String>,
    bytes: Vec<u8>,
}

impl Side {
    fn of_lease(lease: &Lease) -> Self {
        let Lease { id, token, claim, acquired_at, heartbeat_at, pickup_by, revoked } = lease;
        let mut bytes = Vec::with_capacity(200);
        put(&mut bytes, id.0);
        put(&mut bytes, token.0);
        put_signed(&mut bytes, acquired_at.as_micros());
        put_signed(&mut bytes, heartbeat_at.as_micros());
        put_option(&mut bytes, pickup_by.map(|moment| moment.as_micros().cast_unsigned()));
        bytes.push(u8::from(*revoked));
        bytes.extend(claim_to_bytes(claim));
        Self { rank: String::new(), keys: sorted(&lease.keys()), bytes }
    }

    fn of_ticket(ticket: &Ticket) -> Self {
        let Ticket { id, claim, priority, rank, enqueued_at, seen_at, stays, waker, under, upgrades } =
            ticket;
        let mut bytes = Vec::with_capacity(240);
        put(&mut bytes, id.0);
        put_signed(&mut bytes, rank.at);
        put_signed(&mut bytes, priority.get().into());
        put_signed(&mut bytes, enqueued_at.as_micros());
        put_signed(&mut bytes, seen_at.as_micros());
        put(&mut bytes, u64::try_from(stays.get().as_micros()).unwrap_or(u64::MAX));
        put_option(&mut bytes, waker.map(|waker| waker.0));
        put_option(&mut bytes, upgrades.map(|id| id.0));
        let under = lease_ids_to_bytes(under);
        put(&mut bytes, under.len() as u64);
        bytes.extend(under);
        bytes.extend(claim_to_bytes(claim));
        Self { rank: rank.at.to_string(), keys: sorted(&ticket.keys()), bytes }
    }

    fn head(&self) -> Vec<u8> {
        let keys = self.keys.join("\0");
        format!("{}\0{}\0{keys}", self.rank, keys.len()).into_bytes()
    }
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
    let (version, rank, length) = (text()?.parse().ok()?, text()?.to_owned(), text()?.parse().ok()?);
    let (_, bytes) = fields.next()?.split_at_checked(length)?;
    let mut reader = Reader(bytes);
    let found = if rank.is_empty() { Found::Lease(reader.lease()?) } else { Found::Ticket(reader.ticket()?) };
    Some((version, found))
}

/// The bytes that were not read yet.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn lease(&mut self) -> Option<Lease> {
        Some(Lease {
            id: LeaseId(self.number()?),
            token: Token(self.number()?),
            acquired_at: self.moment()?,
            heartbeat_at: self.moment()?,
            pickup_by: self.option()?.map(|micros| Moment::from_micros(micros.cast_signed())),
            revoked: match self.byte()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            claim: Arc::new(claim_from_bytes(self.0)?),
        })
    }

    fn ticket(&mut self) -> Option<Ticket> {
        let id = LeaseId(self.number()?);
        let rank = Rank { at: self.number()?.cast_signed(), id };
        let priority = i32::try_from(self.number()?.cast_signed()).ok()?;
        let (enqueued_at, seen_at) = (self.moment()?, self.moment()?);
        let stays = Ttl::new(Duration::from_micros(self.number()?)).ok()?;
        let (waker, upgrades) = (self.option()?.map(WakerId), self.option()?.map(LeaseId));
        let length = usize::try_from(self.number()?).ok()?;
        let (under, claim) = self.0.split_at_checked(length)?;
        Some(Ticket {
            id,
            claim: Arc::new(claim_from_bytes(claim)?),
            priority: Priority::new(priority).ok()?,
            rank,
            enqueued_at,
            seen_at,
            stays,
            waker,
            under: lease_ids_from_bytes(under)?,
            upgrades,
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    fn moment(&mut self) -> Option<Moment> {
        Some(Moment::from_micros(self.number()?.cast_signed()))
    }

    fn option(&mut self) -> Option<Option<u64>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.number()?)),
            _ => None,
        }
    }
}

fn put(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put(bytes, number.cast_unsigned());
}

fn put_option(bytes: &mut Vec<u8>, number: Option<u64>) {
    bytes.push(u8::from(number.is_some()));
    if let Some(number) = number {
        put(bytes, number);
    }
}
