//! Compares two listings of leases and tickets, and says what changed between them.

use std::collections::BTreeMap;

use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::time::Moment;
use lockkeeper_engine::evidence::verdict_word;
use lockkeeper_engine::views::{LeaseView, TicketView};
use lockkeeper_engine::{HolderEntry, Listing, WaiterEntry};

use super::message::Message;

/// The last listing that was compared.
#[derive(Default)]
pub(super) struct LastListing {
    leases: BTreeMap<LeaseId, (LeaseState, LeaseView)>,
    tickets: BTreeMap<LeaseId, (TicketState, TicketView)>,
}

/// The part of a lease whose change is an event.
#[derive(Clone, PartialEq)]
struct LeaseState {
    token: Token,
    heartbeat_at: Moment,
    expires_at: Option<Moment>,
    state: &'static str,
    revoked: bool,
}

/// The part of a ticket whose change is an event.
#[derive(Clone, PartialEq)]
struct TicketState {
    position: usize,
    waits_for: Vec<LeaseId>,
    state: &'static str,
}

impl LastListing {
    /// Replaces the last listing by a new one, and returns the differences.
    pub(super) fn replace(&mut self, listing: &Listing) -> Vec<Message> {
        let mut messages = Vec::new();
        let mut leases = BTreeMap::new();
        for holder in &listing.holders {
            let (id, state) = (holder.lease.id, LeaseState::new(holder));
            let kind = match self.leases.remove(&id) {
                None => Some("lease.acquired"),
                Some((known, _)) if known == state => None,
                Some((known, _)) if known.token == state.token && known.state == state.state => {
                    Some("lease.renewed")
                }
                Some(_) => Some("lease.changed"),
            };
            let view = LeaseView::with_state(holder, listing.now);
            messages.extend(kind.map(|kind| Message::lease(kind, view.clone())));
            leases.insert(id, (state, view));
        }
        let mut tickets = BTreeMap::new();
        for waiter in &listing.waiters {
            let (id, state) = (waiter.ticket.id, TicketState::new(waiter));
            let kind = match self.tickets.remove(&id) {
                None => Some("ticket.waiting"),
                Some((known, _)) if known == state => None,
                Some(_) => Some("ticket.changed"),
            };
            let view = TicketView::listed(waiter, listing.now);
            messages.extend(kind.map(|kind| Message::ticket(kind, view.clone())));
            tickets.insert(id, (state, view));
        }
        // Everything still in the old maps is gone. Ends come first: a grant often follows from an end.
        let ended = std::mem::replace(&mut self.leases, leases).into_values();
        let ended = ended.map(|(_, lease)| Message::lease("lease.ended", lease));
        let left = std::mem::replace(&mut self.tickets, tickets).into_values();
        let left = left.map(|(_, ticket)| Message::ticket("ticket.ended", ticket));
        ended.chain(left).chain(messages).collect()
    }
}

impl LeaseState {
    fn new(holder: &HolderEntry) -> Self {
        Self {
            token: holder.lease.token,
            heartbeat_at: holder.lease.heartbeat_at,
            expires_at: holder.lease.expires_at(),
            state: verdict_word(holder.verdict),
            revoked: holder.lease.revoked,
        }
    }
}

impl TicketState {
    fn new(waiter: &WaiterEntry) -> Self {
        let leases =
            waiter.blockers.iter().flat_map(|blocker| blocker.leases.iter().map(|found| found.record.id));
        Self { position: waiter.position, waits_for: leases.collect(), state: verdict_word(waiter.verdict) }
    }
}
