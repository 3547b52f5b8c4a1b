//! Encodes claims as bytes, as short as possible, because a store reads and writes several with every decision.
//!
//! A number is a variable-length
//! integer: seven bits a byte, the lowest first, with the high bit set on all bytes but the last. A text is its length and its
//! bytes. Flags in the first byte say which optional values follow.

use std::num::NonZeroU32;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId};
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
use lockkeeper_core::id::{Token, WakerId};
use lockkeeper_core::liveness::{Contract, Origin, ProcessRef, Proof, Voucher};
use lockkeeper_core::record::{Agent, Claim};
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
use lockkeeper_core::record::{Lease, Priority, Rank, Ticket};
use lockkeeper_core::resource::{Mode, Resource, Target};
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
use lockkeeper_core::time::Moment;
use lockkeeper_core::time::Ttl;

#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
use crate::optimistic::parts::Found;

/// The lowest two bits of the first byte are the voucher, the next two the contract.
const CONTRACT: u32 = 2;
/// A value in place of the contract: a byte with the contract and the session follow.
const HAS_SESSION: u8 = 3;
const HAS_TTL: u8 = 1 << 4;
const HAS_REASON: u8 = 1 << 5;
const HAS_TICKET: u8 = 1 << 6;
/// A program that is older than agents refuses a claim with this flag, so it never grants what an agent holds.
const IS_OF_AGENT: u8 = 1 << 7;

/// Flags of the first byte of a record.
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
const IS_TICKET: u8 = 1;
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
const HAS_PICKUP: u8 = 1 << 1;
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
const IS_REVOKED: u8 = 1 << 2;
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
const HAS_WAKER: u8 = 1 << 3;
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
const UPGRADES: u8 = 1 << 4;

/// A claim as bytes.
pub fn claim_to_bytes(claim: &Claim) -> Vec<u8> {
    let (voucher, holder) = match claim.proof.voucher {
        Voucher::KernelLock { holder, .. } => (0, Some(holder)),
        Voucher::Process(_) => (1, None),
        Voucher::Time => (2, None),
        Voucher::TimeFor(_) => (3, None),
    };
    let contract = match claim.contract {
        Contract::Strict => 0,
        Contract::Lease => 1,
        Contract::Kill => 2,
    };
    let session = claim.proof.origin.session;
    let flag = |flag: u8, is_there: bool| if is_there { flag } else { 0 };
    let mut bytes = Vec::with_capacity(160);
    bytes.push(
        voucher
            | if session.is_some() { HAS_SESSION } else { contract } << CONTRACT
            | flag(HAS_TTL, claim.ttl.is_some())
            | flag(HAS_REASON, claim.reason.is_some())
            | flag(HAS_TICKET, claim.ticket.is_some())
            | flag(IS_OF_AGENT, claim.agent.is_some()),
    );
    if let Some(session) = session {
        bytes.push(contract);
        put_span(&mut bytes, session);
    }
    put_text(&mut bytes, claim.owner.as_str());
    put_number(&mut bytes, claim.resources.len() as u64);
    for resource in &claim.resources {
        put_resource(&mut bytes, resource);
    }
    let origin = &claim.proof.origin;
    put_text(&mut bytes, &origin.host);
    put_text(&mut bytes, &origin.boot);
    put_number(&mut bytes, origin.pid_namespace);
    if let Some(holder) = holder {
        put_number(&mut bytes, holder.0);
    }
    if let Some(process) = claim.proof.made_for() {
        put_number(&mut bytes, process.pid.into());
        put_number(&mut bytes, process.started);
    }
    if let Some(ttl) = claim.ttl {
        put_span(&mut bytes, ttl);
    }
    if let Some(reason) = &claim.reason {
        put_text(&mut bytes, reason);
    }
    if let Some(ticket) = &claim.ticket {
        put_text(&mut bytes, ticket.as_str());
    }
    if let Some(agent) = &claim.agent {
        put_text(&mut bytes, agent.work_tree.as_deref().unwrap_or_default());
    }
    bytes
}

/// Reads what [`claim_to_bytes`] wrote. Refuses everything else.
pub fn claim_from_bytes(bytes: &[u8]) -> Option<Claim> {
    let (&first, rest) = bytes.split_first()?;
    let mut reader = Reader(rest);
    let (contract, session) = match first >> CONTRACT & 3 {
        HAS_SESSION => (reader.byte()?, Some(reader.span()?)),
        contract => (contract, None),
    };
    let contract = match contract {
        0 => Contract::Strict,
        1 => Contract::Lease,
        2 => Contract::Kill,
        _ => return None,
    };
    let owner = reader.text()?.parse().ok()?;
    let count = reader.number()?;
    // Each resource takes more than a byte, so a wrong count cannot ask for more memory than there are bytes.
    let count = usize::try_from(count).ok().filter(|count| (1..rest.len()).contains(count))?;
    let resources: Option<Vec<Resource>> = (0..count).map(|_| reader.resource()).collect();
    let origin = Origin {
        host: reader.text()?.to_owned(),
        boot: reader.text()?.to_owned(),
        pid_namespace: reader.number()?,
        session,
    };
    let voucher = match first & 3 {
        0 => Voucher::KernelLock { holder: HolderId(reader.number()?), process: reader.process()? },
        1 => Voucher::Process(reader.process()?),
        2 => Voucher::Time,
        _ => Voucher::TimeFor(reader.process()?),
    };
    let ttl = match first & HAS_TTL {
        0 => None,
        _ => Some(reader.span()?),
    };
    let reason = match first & HAS_REASON {
        0 => None,
        _ => Some(reader.text()?.to_owned()),
    };
    let ticket = match first & HAS_TICKET {
        0 => None,
        _ => Some(reader.text()?.parse().ok()?),
    };
    let agent = match first & IS_OF_AGENT {
        0 => None,
        _ => Some(Agent { work_tree: Some(reader.text()?).filter(|tree| !tree.is_empty()).map(Into::into) }),
    };
    let is_whole = reader.0.is_empty();
    let proof = Proof { origin, voucher };
    is_whole.then_some(Claim { owner, resources: resources?, proof, contract, ttl, reason, ticket, agent })
}

/// Ids of leases, one after the other.
pub fn lease_ids_to_bytes(ids: &[LeaseId]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ids.iter().for_each(|id| put_number(&mut bytes, id.0));
    bytes
}

/// Reads what [`lease_ids_to_bytes`] wrote.
pub fn lease_ids_from_bytes(bytes: &[u8]) -> Option<Vec<LeaseId>> {
    let mut reader = Reader(bytes);
    let mut ids = Vec::new();
    while !reader.0.is_empty() {
        ids.push(LeaseId(reader.number()?));
    }
    Some(ids)
}

/// A lease or ticket as bytes, for stores that keep it as one value.
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
pub(crate) fn record_to_bytes(found: &Found) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(200);
    let flag = |bit: u8, is_there: bool| if is_there { bit } else { 0 };
    match found {
        Found::Lease(lease) => {
            bytes.push(flag(HAS_PICKUP, lease.pickup_by.is_some()) | flag(IS_REVOKED, lease.revoked));
            let moments = [Some(lease.acquired_at), Some(lease.heartbeat_at), lease.pickup_by];
            put_number(&mut bytes, lease.id.0);
            put_number(&mut bytes, lease.token.0);
            moments.into_iter().flatten().for_each(|moment| put_signed(&mut bytes, moment.as_micros()));
            bytes.extend(claim_to_bytes(&lease.claim));
        }
        Found::Ticket(ticket) => {
            let (waker, upgrades) = (ticket.waker.map(|id| id.0), ticket.upgrades.map(|id| id.0));
            bytes.push(IS_TICKET | flag(HAS_WAKER, waker.is_some()) | flag(UPGRADES, upgrades.is_some()));
            put_number(&mut bytes, ticket.id.0);
            let signed = [
                ticket.rank.at,
                ticket.priority.get().into(),
                ticket.enqueued_at.as_micros(),
                ticket.seen_at.as_micros(),
            ];
            signed.into_iter().for_each(|number| put_signed(&mut bytes, number));
            put_span(&mut bytes, ticket.stays);
            [waker, upgrades].into_iter().flatten().for_each(|id| put_number(&mut bytes, id));
            put_number(&mut bytes, ticket.under.len() as u64);
            bytes.extend(lease_ids_to_bytes(&ticket.under));
            bytes.extend(claim_to_bytes(&ticket.claim));
        }
    }
    bytes
}

/// Reads what [`record_to_bytes`] wrote. Refuses everything else.
#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
pub(crate) fn record_from_bytes(bytes: &[u8]) -> Option<Found> {
    let (&first, rest) = bytes.split_first()?;
    let mut reader = Reader(rest);
    let id = LeaseId(reader.number()?);
    if first & IS_TICKET == 0 {
        let token = Token(reader.number()?);
        let (acquired_at, heartbeat_at) = (reader.moment()?, reader.moment()?);
        let pickup_by = if first & HAS_PICKUP == 0 { None } else { Some(reader.moment()?) };
        let is_known = first & !(HAS_PICKUP | IS_REVOKED) == 0;
        let claim = claim_from_bytes(reader.0).filter(|_| is_known)?.into();
        let revoked = first & IS_REVOKED != 0;
        return Some(Found::Lease(Lease { id, token, claim, acquired_at, heartbeat_at, pickup_by, revoked }));
    }
    let rank = Rank { at: reader.signed()?, id };
    let priority = Priority::new(i32::try_from(reader.signed()?).ok()?).ok()?;
    let (enqueued_at, seen_at) = (reader.moment()?, reader.moment()?);
    let stays = reader.span()?;
    let waker = if first & HAS_WAKER == 0 { None } else { Some(WakerId(reader.number()?)) };
    let upgrades = if first & UPGRADES == 0 { None } else { Some(LeaseId(reader.number()?)) };
    let count = reader.number()?;
    let under: Option<Vec<LeaseId>> = (0..count).map(|_| reader.number().map(LeaseId)).collect();
    let is_known = first & !(IS_TICKET | HAS_WAKER | UPGRADES) == 0;
    let claim = claim_from_bytes(reader.0).filter(|_| is_known)?.into();
    let under = under?;
    let ticket = Ticket { id, claim, rank, priority, enqueued_at, seen_at, stays, waker, under, upgrades };
    Some(Found::Ticket(ticket))
}

#[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put_number(bytes, number.cast_unsigned());
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_span(bytes: &mut Vec<u8>, span: Ttl) {
    put_number(bytes, u64::try_from(span.get().as_micros()).unwrap_or(u64::MAX));
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// The lowest bit is 0 for a name and 1 for a path. The bits above are 0 for exclusive, 1 for shared, and slots + 1 for slots.
fn put_resource(bytes: &mut Vec<u8>, resource: &Resource) {
    let mode = match resource.mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
        Mode::Slots(slots) => u64::from(slots.get()) + 1,
    };
    let is_path = match resource.target {
        Target::Name(_) => 0,
        Target::Path(_) => 1,
    };
    put_number(bytes, mode << 1 | is_path);
    put_text(bytes, resource.target.as_str());
}

/// The bytes that were not read yet.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    #[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
    fn signed(&mut self) -> Option<i64> {
        self.number().map(u64::cast_signed)
    }

    #[cfg(any(feature = "etcd", feature = "http", feature = "redis"))]
    fn moment(&mut self) -> Option<Moment> {
        self.signed().map(Moment::from_micros)
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn span(&mut self) -> Option<Ttl> {
        Ttl::new(Duration::from_micros(self.number()?)).ok()
    }

    fn text(&mut self) -> Option<&'b str> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn process(&mut self) -> Option<ProcessRef> {
        Some(ProcessRef { pid: u32::try_from(self.number()?).ok()?, started: self.number()? })
    }

    fn resource(&mut self) -> Option<Resource> {
        let kind = self.number()?;
        let mode = match kind >> 1 {
            0 => Mode::Exclusive,
            1 => Mode::Shared,
            more => Mode::Slots(NonZeroU32::new(u32::try_from(more - 1).ok()?)?),
        };
        let text = self.text()?;
        let target = match kind & 1 {
            0 => Target::Name(text.parse().ok()?),
            _ => Target::Path(text.parse().ok()?),
        };
        Some(Resource { target, mode })
    }
}

#[cfg(test)]
mod tests;
