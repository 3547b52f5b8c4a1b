//! A decision in the making: the records as the store has them, and what the decision has changed so far.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::id::{LeaseId, Owner, Token, WakerId};
use crate::liveness::{LockState, Observation, Proof, Verdict};
use crate::record::{Lease, Rank, Ticket};
use crate::resource::{Key, KeyRange, Target};
use crate::time::Moment;

/// What a decision can see: the records of one store at one moment, and the holders behind them.
pub trait View {
    /// What can go wrong when looking.
    type Error;

    /// The moment, the same throughout the decision.
    fn now(&self) -> Moment;

    /// The next number of the store, larger than any before, given once and never again.
    fn draw(&mut self) -> Result<u64, Self::Error>;

    /// One lease.
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, Self::Error>;

    /// Shows every lease that is filed within `range`, each once, in no particular order.
    fn leases(&mut self, range: &KeyRange, visit: &mut dyn FnMut(Lease)) -> Result<(), Self::Error>;

    /// One ticket.
    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, Self::Error>;

    /// Shows the tickets that are filed within `range`, each once, in the order of `scan`, until told to stop.
    fn tickets(
        &mut self,
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// The ids of all leases and of all tickets.
    fn all(&mut self) -> Result<(Vec<LeaseId>, Vec<LeaseId>), Self::Error>;

    /// What the machine shows of a proof of life.
    fn observation(&mut self, proof: &Proof) -> Observation;
}

/// Which way along the line of tickets, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// From the first one behind this place to the last.
    Forward(Option<Rank>),
    /// From the last one before this place to the first.
    Backward(Option<Rank>),
}

impl Scan {
    fn includes(self, rank: Rank) -> bool {
        match self {
            Self::Forward(after) => after.is_none_or(|place| rank > place),
            Self::Backward(before) => before.is_none_or(|place| rank < place),
        }
    }

    /// Those of these tickets that are on this scan through a range, in its order.
    pub fn through<'t>(self, tickets: impl Iterator<Item = &'t Ticket>, range: &KeyRange) -> Vec<&'t Ticket> {
        let within = |ticket: &&Ticket| ticket.keys().iter().any(|key| range.includes(key));
        let mut met: Vec<&Ticket> =
            tickets.filter(|ticket| self.includes(ticket.rank)).filter(within).collect();
        met.sort_by_key(|ticket| ticket.rank);
        if matches!(self, Self::Backward(_)) {
            met.reverse();
        }
        met
    }

    fn meets_first(self, one: Rank, other: Rank) -> bool {
        match self {
            Self::Forward(_) => one < other,
            Self::Backward(_) => one > other,
        }
    }
}

/// One change of one record. An id is that of a lease or of a ticket, never of both.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Change {
    /// A lease that was not there.
    AddLease(Lease),
    /// A lease that was there, under the same keys.
    UpdateLease(Lease),
    /// A lease that was there.
    RemoveLease(Lease),
    /// A ticket that was not there.
    AddTicket(Ticket),
    /// A ticket that was there, under the same keys and rank.
    UpdateTicket(Ticket),
    /// A ticket that was there.
    RemoveTicket(Ticket),
    /// A ticket that was there, and the lease with its id and its claim that takes its place.
    Grant(Ticket, Lease),
}

/// What is to be done once the changes are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Wake whoever sleeps on this doorbell.
    Wake(WakerId),
    /// Put away the doorbell of a waiter that died.
    RemoveWaker(WakerId),
}

/// A holder or waiter whose record was put away because of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Which claim it was.
    pub id: LeaseId,
    /// Whose it was.
    pub owner: Owner,
    /// Whether it held, rather than waited.
    pub held: bool,
    /// Why it is gone.
    pub verdict: Verdict,
}

/// A view with the decision's own changes laid over it.
pub struct Overlay<'v, V: View> {
    view: &'v mut V,
    /// What was seen of each claim's proof: who dies during the decision dies after it.
    observations: BTreeMap<LeaseId, Observation>,
    leases: BTreeMap<LeaseId, Edit<Lease>>,
    tickets: BTreeMap<LeaseId, Edit<Ticket>>,
    freed: Vec<Target>,
    /// Owners who hold more or less than before, and whose own tickets may stand elsewhere for it.
    moved: Vec<Owner>,
    effects: Vec<Effect>,
    reaped: Vec<Reaped>,
}

/// What a decision made of one record: what the store has, and what it is to have.
struct Edit<T> {
    before: Option<T>,
    after: Option<T>,
}

/// The ticket that the store has, and that is gone in favour of the lease with its id.
fn granted_ticket(tickets: &mut BTreeMap<LeaseId, Edit<Ticket>>, id: LeaseId) -> Option<Ticket> {
    tickets.get(&id).is_some_and(|overlay| overlay.after.is_none()).then(|| tickets.remove(&id))??.before
}

impl<'v, V: View> Overlay<'v, V> {
    /// Starts with the records as they are.
    pub fn new(view: &'v mut V) -> Self {
        Self {
            view,
            observations: BTreeMap::new(),
            leases: BTreeMap::new(),
            tickets: BTreeMap::new(),
            freed: Vec::new(),
            moved: Vec::new(),
            effects: Vec::new(),
            reaped: Vec::new(),
        }
    }

    /// Ends the decision: what to write, what to do afterwards, and whom it reaped.
    pub fn finish(self) -> (Vec<Change>, Vec<Effect>, Vec<Reaped>) {
        let mut tickets = self.tickets;
        let leases =
            self.leases.into_iter().filter_map(|(id, overlay)| match (overlay.before, overlay.after) {
                (None, None) => None,
                (None, Some(new)) => Some(match granted_ticket(&mut tickets, id) {
                    Some(ticket) => Change::Grant(ticket, new),
                    None => Change::AddLease(new),
                }),
                (Some(old), None) => Some(Change::RemoveLease(old)),
                (Some(old), Some(new)) => (old != new).then_some(Change::UpdateLease(new)),
            });
        let mut changes: Vec<Change> = leases.collect();
        changes.extend(tickets.into_values().filter_map(|overlay| match (overlay.before, overlay.after) {
            (None, None) => None,
            (None, Some(new)) => Some(Change::AddTicket(new)),
            (Some(old), None) => Some(Change::RemoveTicket(old)),
            (Some(old), Some(new)) => (old != new).then_some(Change::UpdateTicket(new)),
        }));
        (changes, self.effects, self.reaped)
    }

    /// The moment of the decision.
    pub fn now(&self) -> Moment {
        self.view.now()
    }

    /// A number that was never given before.
    pub fn draw(&mut self) -> Result<u64, V::Error> {
        self.view.draw()
    }

    /// A token that is larger than every one before.
    pub fn next_token(&mut self) -> Result<Token, V::Error> {
        self.view.draw().map(Token)
    }

    /// One lease, as the decision has left it.
    pub fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, V::Error> {
        match self.leases.get(&id) {
            Some(overlay) => Ok(overlay.after.clone()),
            None => self.view.lease(id),
        }
    }

    /// Every lease within range, as the decision has left it.
    pub fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, V::Error> {
        let mut found = Vec::new();
        let overlays = &self.leases;
        self.view.leases(range, &mut |lease| {
            if !overlays.contains_key(&lease.id) {
                found.push(lease);
            }
        })?;
        let within = |lease: &&Lease| lease.keys().iter().any(|key| range.includes(key));
        let changed = overlays.values().filter_map(|overlay| overlay.after.as_ref()).filter(within);
        found.extend(changed.cloned());
        Ok(found)
    }

    /// One ticket, as the decision has left it.
    pub fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, V::Error> {
        match self.tickets.get(&id) {
            Some(overlay) => Ok(overlay.after.clone()),
            None => self.view.ticket(id),
        }
    }

    /// Shows the tickets within range in the order of `scan`, as the decision has left them.
    pub fn tickets(
        &mut self,
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), V::Error> {
        let overlays = &self.tickets;
        // Those that the decision itself put into the line.
        let added = overlays.values().filter(|overlay| overlay.before.is_none());
        let added = added.filter_map(|overlay| overlay.after.as_ref());
        let mut added = scan.through(added, range).into_iter().peekable();
        let mut flow = ControlFlow::Continue(());
        self.view.tickets(range, scan, &mut |ticket| {
            while let Some(new) = added.next_if(|new| scan.meets_first(new.rank, ticket.rank)) {
                flow = visit(new.clone());
                if flow.is_break() {
                    return flow;
                }
            }
            flow = match overlays.get(&ticket.id) {
                None => visit(ticket),
                Some(Edit { after: Some(changed), .. }) => visit(changed.clone()),
                Some(Edit { after: None, .. }) => ControlFlow::Continue(()),
            };
            flow
        })?;
        while flow.is_continue()
            && let Some(new) = added.next()
        {
            flow = visit(new.clone());
        }
        Ok(())
    }

    /// The first ticket within range on `scan`.
    pub fn next_ticket(&mut self, range: &KeyRange, scan: Scan) -> Result<Option<Ticket>, V::Error> {
        let mut found = None;
        self.tickets(range, scan, &mut |ticket| {
            found = Some(ticket);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// All leases and tickets that the store has.
    pub fn all(&mut self) -> Result<(Vec<LeaseId>, Vec<LeaseId>), V::Error> {
        self.view.all()
    }

    /// The leases of one owner.
    pub fn leases_of(&mut self, owner: &Owner) -> Result<Vec<Lease>, V::Error> {
        self.leases(&KeyRange::of(Key::of_owner(owner)))
    }

    /// What is to be made of a lease.
    pub fn judge_lease(&mut self, lease: &Lease) -> Verdict {
        let observation = self.observation(lease.id, &lease.claim.proof);
        lease.verdict(observation, self.now())
    }

    /// What is to be made of a ticket.
    pub fn judge_ticket(&mut self, ticket: &Ticket) -> Verdict {
        let observation = self.observation(ticket.id, &ticket.claim.proof);
        ticket.verdict(observation, self.now())
    }

    fn observation(&mut self, id: LeaseId, proof: &Proof) -> Observation {
        *self.observations.entry(id).or_insert_with(|| self.view.observation(proof))
    }

    /// Adds a lease, or changes one.
    pub fn put_lease(&mut self, before: Option<Lease>, after: Lease) {
        if before.as_ref().is_none_or(|before| before.claim.resources != after.claim.resources) {
            self.moved.push(after.claim.owner.clone());
        }
        let overlay = self.leases.entry(after.id).or_insert(Edit { before, after: None });
        overlay.after = Some(after);
    }

    /// Takes a lease away and marks what it held as freed.
    pub fn remove_lease(&mut self, lease: Lease) {
        self.freed.extend(lease.claim.targets().cloned());
        self.moved.push(lease.claim.owner.clone());
        let id = lease.id;
        self.leases.entry(id).or_insert(Edit { before: Some(lease), after: None }).after = None;
    }

    /// Adds a ticket, or changes one.
    pub fn put_ticket(&mut self, before: Option<Ticket>, after: Ticket) {
        let overlay = self.tickets.entry(after.id).or_insert(Edit { before, after: None });
        overlay.after = Some(after);
    }

    /// Takes a ticket away, with what stood in line behind it to be looked at again.
    pub fn remove_ticket(&mut self, ticket: Ticket) {
        self.freed.extend(ticket.claim.targets().cloned());
        self.take_ticket(ticket);
    }

    /// Takes a ticket away because it was granted.
    pub fn take_ticket(&mut self, ticket: Ticket) {
        let id = ticket.id;
        self.tickets.entry(id).or_insert(Edit { before: Some(ticket), after: None }).after = None;
    }

    /// Puts a lease away whose holder is not there any more.
    pub fn reap_lease(&mut self, lease: Lease, verdict: Verdict) {
        let owner = lease.claim.owner.clone();
        self.reaped.push(Reaped { id: lease.id, owner, held: true, verdict });
        self.effects.extend(lease.waker().map(match verdict {
            Verdict::Dead(_) => Effect::RemoveWaker,
            // An expired holder may still run: it is to hear of its loss.
            Verdict::Alive | Verdict::Unknown | Verdict::Expired | Verdict::Overdue => Effect::Wake,
        }));
        self.remove_lease(lease);
    }

    /// Puts a ticket away whose waiter is not there any more.
    pub fn reap_ticket(&mut self, ticket: Ticket, verdict: Verdict) {
        let owner = ticket.claim.owner.clone();
        self.reaped.push(Reaped { id: ticket.id, owner, held: false, verdict });
        self.effects.extend(ticket.waker.map(Effect::RemoveWaker));
        self.remove_ticket(ticket);
    }

    /// Has a waiter woken after the commit.
    pub fn wake(&mut self, waker: Option<WakerId>) {
        if let Some(wake) = waker.map(Effect::Wake)
            && !self.effects.contains(&wake)
        {
            self.effects.push(wake);
        }
    }

    /// Has the line for these targets looked at again, although nothing was taken away.
    pub fn offer<'t>(&mut self, targets: impl Iterator<Item = &'t Target>) {
        self.freed.extend(targets.cloned());
    }

    /// Something that was freed and not yet handed on.
    pub fn next_freed(&mut self) -> Option<Target> {
        self.freed.pop()
    }

    /// Whether there is something that was freed and not yet handed on.
    pub fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// An owner who came to hold more or less, and whose tickets were not yet looked at because of it.
    pub fn next_moved(&mut self) -> Option<Owner> {
        self.moved.pop()
    }

    /// Every lease that the decision changed: what the store has, and what it is to have.
    pub fn changed_leases(&self) -> Vec<(Option<Lease>, Option<Lease>)> {
        self.leases.values().map(|overlay| (overlay.before.clone(), overlay.after.clone())).collect()
    }

    /// Every ticket that the decision changed: what the store has, and what it is to have.
    pub fn changed_tickets(&self) -> Vec<(Option<Ticket>, Option<Ticket>)> {
        self.tickets.values().map(|overlay| (overlay.before.clone(), overlay.after.clone())).collect()
    }

    /// The records as the store has them, as if everybody in them lived: what waiters saw when they last looked.
    pub fn as_seen_before(&mut self) -> AsSeenBefore<'_, V> {
        AsSeenBefore(self.view)
    }
}

/// A view without the decision's changes, in which nobody has died or run out of time.
pub struct AsSeenBefore<'v, V: View>(&'v mut V);

impl<V: View> View for AsSeenBefore<'_, V> {
    type Error = V::Error;

    fn now(&self) -> Moment {
        Moment::from_micros(i64::MIN)
    }

    fn draw(&mut self) -> Result<u64, V::Error> {
        self.0.draw()
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, V::Error> {
        self.0.lease(id)
    }

    fn leases(&mut self, range: &KeyRange, visit: &mut dyn FnMut(Lease)) -> Result<(), V::Error> {
        self.0.leases(range, visit)
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, V::Error> {
        self.0.ticket(id)
    }

    fn tickets(
        &mut self,
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), V::Error> {
        self.0.tickets(range, scan, visit)
    }

    fn all(&mut self) -> Result<(Vec<LeaseId>, Vec<LeaseId>), V::Error> {
        self.0.all()
    }

    fn observation(&mut self, _proof: &Proof) -> Observation {
        Observation::Lock(LockState::Held)
    }
}
