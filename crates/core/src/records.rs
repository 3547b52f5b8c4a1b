//! Records: what a store shows to a decision, and what a decision gives back to the store.
//!
//! A decision reads [`Records`] through an [`Overlay`](crate::overlay::Overlay). It ends with a list of [`Change`]s, which
//! the store commits together or not at all, and a list of [`Effect`]s, which the store carries out after the commit.

use std::collections::BTreeMap;

use crate::id::{LeaseId, Owner, WakerId};
use crate::liveness::Verdict;
use crate::record::{Lease, Rank, Ticket};
use crate::resource::{Key, KeyRange};
use crate::time::Moment;

/// The records of one store at one moment. `E` is how a read can fail.
pub trait Records<E> {
    /// The moment on the store's clock. It is the same for the whole decision.
    fn now(&self) -> Moment;

    /// Since when the store has forgotten nothing, as far as it knows. None: it never forgets.
    fn remembers_since(&self) -> Option<Moment> {
        None
    }

    /// Until when nothing is granted, also to who has no session: holders on other machines may come back. None: it grants.
    fn silent_until(&self) -> Option<Moment> {
        None
    }

    /// Says that the decision will also read these keys. A store on a server reads them together with the next range.
    fn expect(&mut self, _keys: Vec<Key>) {}

    /// The next number of the store: larger than every number before, and never given again.
    fn next_number(&mut self) -> Result<u64, E>;

    /// One lease.
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, E>;

    /// Every lease that has a key in the range. Each comes once, in no particular order.
    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, E>;

    /// One ticket.
    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, E>;

    /// The first `limit` tickets of the scan that have a key in the range. Each comes once, in the order of the scan.
    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, E>;

    /// All leases, oldest first, and all tickets, in the order in which they are served.
    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), E>;
}

/// The direction of a scan along the waiting line, and the rank at which it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// From the first ticket after this rank to the last one.
    Forward(Option<Rank>),
    /// From the last ticket before this rank to the first one.
    Backward(Option<Rank>),
}

impl Scan {
    /// Whether a ticket of this rank is part of the scan.
    fn includes(self, rank: Rank) -> bool {
        match self {
            Self::Forward(after) => after.is_none_or(|start| rank > start),
            Self::Backward(before) => before.is_none_or(|start| rank < start),
        }
    }

    /// Puts tickets into the order of the scan, each once, and leaves out those that are not part of it.
    pub fn order(self, tickets: impl IntoIterator<Item = Ticket>, limit: usize) -> Vec<Ticket> {
        let part = tickets.into_iter().filter(|ticket| self.includes(ticket.rank));
        let by_rank: BTreeMap<Rank, Ticket> = part.map(|ticket| (ticket.rank, ticket)).collect();
        match self {
            Self::Forward(_) => by_rank.into_values().take(limit).collect(),
            Self::Backward(_) => by_rank.into_values().rev().take(limit).collect(),
        }
    }
}

/// One change of one record. An id belongs to a lease or to a ticket, never to both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Change {
    /// Adds a lease. No record has its id.
    AddLease(Lease),
    /// Replaces the lease with this id. Its keys stay the same.
    UpdateLease(Lease),
    /// Removes a lease that is there.
    RemoveLease(Lease),
    /// Adds a ticket. No record has its id.
    AddTicket(Ticket),
    /// Replaces the ticket with this id. Its keys and its rank stay the same.
    UpdateTicket(Ticket),
    /// Removes a ticket that is there.
    RemoveTicket(Ticket),
    /// Replaces a ticket that is there by the lease with the same id and the same claim.
    Grant(Ticket, Lease),
}

/// What the store does after it has committed the changes of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Wakes the process that sleeps on this waker.
    Wake(WakerId),
    /// Removes the waker of a process that died.
    RemoveWaker(WakerId),
}

/// A lease or ticket that a decision removed, because its process is gone or its time is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// The id of the lease or ticket.
    pub id: LeaseId,
    /// Its owner.
    pub owner: Owner,
    /// True for a lease, false for a ticket.
    pub held: bool,
    /// Why it was removed.
    pub verdict: Verdict,
}
