//! In-memory records: all leases and tickets of a store in maps, strict about every change. For tests and the memory store.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::id::LeaseId;
use crate::record::{Lease, Rank, Ticket};
use crate::records::{Change, Scan};
use crate::resource::{Key, KeyRange};

/// Leases and tickets, with an index by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InMemoryRecords {
    leases: BTreeMap<LeaseId, Lease>,
    tickets: BTreeMap<LeaseId, Ticket>,
    lease_keys: BTreeSet<(Key, LeaseId)>,
    ticket_keys: BTreeSet<(Key, Rank)>,
}

impl InMemoryRecords {
    /// All leases, oldest first, and all tickets, in the order in which they are served.
    pub fn all(&self) -> (Vec<Lease>, Vec<Ticket>) {
        let tickets = Scan::Forward(None).order(self.tickets.values().cloned(), usize::MAX);
        (self.leases.values().cloned().collect(), tickets)
    }

    /// All leases, oldest first.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// All tickets, oldest first.
    pub fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        self.tickets.values()
    }

    /// One lease.
    pub fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    /// One ticket.
    pub fn ticket(&self, id: LeaseId) -> Option<&Ticket> {
        self.tickets.get(&id)
    }

    /// Every lease that has a key in the range, each once.
    pub fn leases_in(&self, range: &KeyRange) -> Vec<Lease> {
        let ids: BTreeSet<LeaseId> = within(&self.lease_keys, range, LeaseId(0)).map(|(_, id)| *id).collect();
        ids.iter().map(|id| self.leases[id].clone()).collect()
    }

    /// The first `limit` tickets of a scan that have a key in the range.
    pub fn tickets_in(&self, range: &KeyRange, scan: Scan, limit: usize) -> Vec<Ticket> {
        let lowest = Rank { at: i64::MIN, id: LeaseId(0) };
        let ranks = within(&self.ticket_keys, range, lowest).map(|(_, rank)| *rank);
        scan.order(ranks.map(|rank| self.tickets[&rank.id].clone()), limit)
    }

    /// Applies one change. After a change that does not fit, these records must not be used any more.
    pub fn apply(&mut self, change: Change) -> Result<(), Misfit> {
        match change {
            Change::AddLease(lease) => {
                let id = lease.id;
                if self.tickets.contains_key(&id) {
                    return Err(Misfit::Present(id));
                }
                self.lease_keys.extend(lease.keys().into_iter().map(|key| (key, id)));
                self.leases.insert(id, lease).map_or(Ok(()), |_| Err(Misfit::Present(id)))
            }
            Change::UpdateLease(lease) => {
                let slot = self.leases.get_mut(&lease.id).ok_or(Misfit::Absent(lease.id))?;
                if slot.keys() != lease.keys() {
                    return Err(Misfit::Different(lease.id));
                }
                *slot = lease;
                Ok(())
            }
            Change::RemoveLease(lease) => {
                let removed = self.leases.remove(&lease.id).ok_or(Misfit::Absent(lease.id))?;
                for key in lease.keys() {
                    self.lease_keys.remove(&(key, lease.id));
                }
                if removed == lease { Ok(()) } else { Err(Misfit::Different(lease.id)) }
            }
            Change::AddTicket(ticket) => {
                let id = ticket.id;
                if self.leases.contains_key(&id) {
                    return Err(Misfit::Present(id));
                }
                self.ticket_keys.extend(ticket.keys().into_iter().map(|key| (key, ticket.rank)));
                self.tickets.insert(id, ticket).map_or(Ok(()), |_| Err(Misfit::Present(id)))
            }
            Change::UpdateTicket(ticket) => {
                let slot = self.tickets.get_mut(&ticket.id).ok_or(Misfit::Absent(ticket.id))?;
                if (slot.keys(), slot.rank) != (ticket.keys(), ticket.rank) {
                    return Err(Misfit::Different(ticket.id));
                }
                *slot = ticket;
                Ok(())
            }
            Change::RemoveTicket(ticket) => {
                let removed = self.tickets.remove(&ticket.id).ok_or(Misfit::Absent(ticket.id))?;
                for key in ticket.keys() {
                    self.ticket_keys.remove(&(key, ticket.rank));
                }
                if removed == ticket { Ok(()) } else { Err(Misfit::Different(ticket.id)) }
            }
            Change::Grant(ticket, lease) => {
                if (ticket.id, &ticket.claim) != (lease.id, &lease.claim) {
                    return Err(Misfit::Different(lease.id));
                }
                self.apply(Change::RemoveTicket(ticket))?;
                self.apply(Change::AddLease(lease))
            }
        }
    }
}

/// A change that does not fit the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Misfit {
    /// The record to be added is there already.
    #[error("record {} is there already", .0.0)]
    Present(LeaseId),
    /// The record to be changed or removed is not there.
    #[error("record {} is not there", .0.0)]
    Absent(LeaseId),
    /// The record to be changed or removed differs from the one that is there.
    #[error("record {} is not the one that was read", .0.0)]
    Different(LeaseId),
}

/// The entries under the keys of a range. An entry under two of the keys comes twice.
fn within<'b, T: Ord + Copy>(
    filed: &'b BTreeSet<(Key, T)>,
    range: &KeyRange,
    lowest: T,
) -> impl Iterator<Item = &'b (Key, T)> {
    let exact = range.exact.clone().into_iter().flat_map(move |key| {
        let wanted = key.clone();
        filed.range((key, lowest)..).take_while(move |(found, _)| *found == wanted)
    });
    let below = range.below.clone().into_iter().flat_map(move |folder| {
        let range = KeyRange { exact: Vec::new(), below: Some(folder.clone()) };
        // Keys such as `p/a-b` sort between `p/a` and `p/a/`. They are not below `p/a`, but do not end the range.
        let (_, end) = range.range_below().expect("there is a folder");
        filed
            .range((folder, lowest)..)
            .take_while(move |(key, _)| key.as_str() < end.as_str())
            .filter(move |(key, _)| range.includes(key))
    });
    exact.chain(below)
}
