//! Overlay transaction: the records of a store, with the uncommitted changes of one decision on top.
//!
//! The rules in [`lease`](crate::lease) and [`waiting`](crate::waiting) read and write through an [`Overlay`]. They see
//! their own changes; the store sees nothing until [`Overlay::finish`] returns the list of changes and the caller commits it.

use std::collections::{BTreeMap, HashMap};

use crate::id::{LeaseId, Owner, Token, WakerId};
use crate::liveness::{LivenessProbe, LockState, Observation, ProcessState, Proof, Verdict, silent_until};
use crate::record::{Lease, Ticket};
use crate::records::{Change, Effect, Reaped, Records, Scan};
use crate::resource::{Key, KeyRange, Target};
use crate::time::{Moment, Ttl};

/// The records of a store with the changes of one decision on top. `E` is how a read can fail.
pub struct Overlay<'r, E> {
    records: &'r mut (dyn Records<E> + 'r),
    probe: &'r dyn LivenessProbe,
    now: Moment,
    /// What the probe saw of each proof. The probe is asked once: a process that dies after that counts as alive until the end of
    /// the decision, for all claims that it vouches for.
    observations: HashMap<Proof, Observation>,
    leases: BTreeMap<LeaseId, Edit<Lease>>,
    tickets: BTreeMap<LeaseId, Edit<Ticket>>,
    /// Targets that became free and were not yet offered to the next waiter.
    freed: Vec<Target>,
    /// The tickets of owners that hold more or less than before, and of their sub-agents. They have to be checked again.
    moved: Vec<KeyRange>,
    effects: Vec<Effect>,
    reaped: Vec<Reaped>,
}

/// A record that the decision changed: the version of the store, and the version of the decision.
struct Edit<T> {
    before: Option<T>,
    after: Option<T>,
}

impl<'r, E> Overlay<'r, E> {
    /// Starts a decision over these records.
    pub fn new(records: &'r mut (dyn Records<E> + 'r), probe: &'r dyn LivenessProbe) -> Self {
        let now = records.now();
        Self::at(records, probe, now)
    }

    fn at(records: &'r mut (dyn Records<E> + 'r), probe: &'r dyn LivenessProbe, now: Moment) -> Self {
        Self {
            records,
            probe,
            now,
            observations: HashMap::new(),
            leases: BTreeMap::new(),
            tickets: BTreeMap::new(),
            freed: Vec::new(),
            moved: Vec::new(),
            effects: Vec::new(),
            reaped: Vec::new(),
        }
    }

    /// The records before this decision, as if every process lived and no time was up. That is what the waiters saw when
    /// they last looked.
    pub fn before(&mut self) -> Overlay<'_, E> {
        Overlay::at(&mut *self.records, &AllAlive, Moment::from_micros(i64::MIN))
    }

    /// Ends the decision: what to commit, what to do afterwards, and whose records were removed.
    pub fn finish(self) -> (Vec<Change>, Vec<Effect>, Vec<Reaped>) {
        let mut tickets = self.tickets;
        let leases = self.leases.into_iter().filter_map(|(id, edit)| match (edit.before, edit.after) {
            (None, None) => None,
            (None, Some(new)) => Some(match granted_ticket(&mut tickets, id) {
                Some(ticket) => Change::Grant(ticket, new),
                None => Change::AddLease(new),
            }),
            (Some(old), None) => Some(Change::RemoveLease(old)),
            (Some(old), Some(new)) => (old != new).then_some(Change::UpdateLease(new)),
        });
        let mut changes: Vec<Change> = leases.collect();
        changes.extend(tickets.into_values().filter_map(|edit| match (edit.before, edit.after) {
            (None, None) => None,
            (None, Some(new)) => Some(Change::AddTicket(new)),
            (Some(old), None) => Some(Change::RemoveTicket(old)),
            (Some(old), Some(new)) => (old != new).then_some(Change::UpdateTicket(new)),
        }));
        (changes, self.effects, self.reaped)
    }

    /// The moment of the decision, on the store's clock.
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Since when the store has lost nothing. None: it never loses anything.
    pub fn remembers_since(&self) -> Option<Moment> {
        self.records.remembers_since()
    }

    /// Until when nothing is granted to a claimant with this session, because the store may have lost leases: their holders
    /// write them again. None if it has lost nothing.
    pub fn silent_until(&self, session: Option<Ttl>) -> Option<Moment> {
        let by_session = self.records.remembers_since().zip(session);
        let by_session = by_session.and_then(|(since, session)| silent_until(since, session, self.now));
        by_session.max(self.records.silent_until().filter(|end| self.now <= *end))
    }

    /// Says which keys this decision will also read.
    pub fn expect(&mut self, keys: Vec<Key>) {
        self.records.expect(keys);
    }

    /// The next number of the store.
    pub fn next_number(&mut self) -> Result<u64, E> {
        self.records.next_number()
    }

    /// A token that is larger than every token before.
    pub fn next_token(&mut self) -> Result<Token, E> {
        self.records.next_number().map(Token)
    }

    /// One lease.
    pub fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, E> {
        match self.leases.get(&id) {
            Some(edit) => Ok(edit.after.clone()),
            None => self.records.lease(id),
        }
    }

    /// Every lease that has a key in the range.
    pub fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, E> {
        let mut found = self.records.leases(range)?;
        found.retain(|lease| !self.leases.contains_key(&lease.id));
        let within = |lease: &&Lease| lease.keys().iter().any(|key| range.includes(key));
        let edited = self.leases.values().filter_map(|edit| edit.after.as_ref()).filter(within);
        found.extend(edited.cloned());
        Ok(found)
    }

    /// One ticket.
    pub fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, E> {
        match self.tickets.get(&id) {
            Some(edit) => Ok(edit.after.clone()),
            None => self.records.ticket(id),
        }
    }

    /// Every ticket that has a key in the range, in the order in which they are served.
    pub fn tickets(&mut self, range: &KeyRange) -> Result<Vec<Ticket>, E> {
        self.scan(range, Scan::Forward(None), usize::MAX)
    }

    /// The first ticket of a scan.
    pub fn next_ticket(&mut self, range: &KeyRange, scan: Scan) -> Result<Option<Ticket>, E> {
        Ok(self.scan(range, scan, 1)?.pop())
    }

    fn scan(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, E> {
        if self.tickets.is_empty() {
            return self.records.tickets(range, scan, limit);
        }
        // A ticket that the decision changed may be among the first `limit`. So more tickets are read.
        let mut found = self.records.tickets(range, scan, limit.saturating_add(self.tickets.len()))?;
        found.retain(|ticket| !self.tickets.contains_key(&ticket.id));
        let within = |ticket: &&Ticket| ticket.keys().iter().any(|key| range.includes(key));
        let edited = self.tickets.values().filter_map(|edit| edit.after.as_ref()).filter(within);
        found.extend(edited.cloned());
        Ok(scan.order(found, limit))
    }

    /// All leases and tickets of the store, without the changes of the decision.
    pub fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), E> {
        self.records.all()
    }

    /// The leases of one owner.
    pub fn leases_of(&mut self, owner: &Owner) -> Result<Vec<Lease>, E> {
        self.leases(&KeyRange::of(Key::of_owner(owner)))
    }

    /// Judges whether a lease is still held.
    pub fn judge_lease(&mut self, lease: &Lease) -> Verdict {
        let observation = self.observe(&lease.claim.proof);
        lease.verdict(observation, self.now, self.records.remembers_since())
    }

    /// Judges whether somebody still waits on a ticket.
    pub fn judge_ticket(&mut self, ticket: &Ticket) -> Verdict {
        // The waker of a process on another machine is a file of the server that it talks to.
        let is_here = ticket.claim.proof.origin.session.is_none();
        let abandoned = ticket.waiter().is_some_and(|waker| is_here && self.is_waker_abandoned(waker));
        let observation = if abandoned {
            Observation::Process(ProcessState::Gone)
        } else {
            self.observe(&ticket.claim.proof)
        };
        ticket.verdict(observation, self.now, self.records.remembers_since())
    }

    /// Whether the process that slept on a waker is gone. False if that is not known.
    pub fn is_waker_abandoned(&self, waker: WakerId) -> bool {
        self.probe.is_waker_abandoned(waker)
    }

    fn observe(&mut self, proof: &Proof) -> Observation {
        if let Some(seen) = self.observations.get(proof) {
            return *seen;
        }
        let seen = self.probe.observe(proof);
        self.observations.insert(proof.clone(), seen);
        seen
    }

    /// Adds or replaces a lease. If it replaces one with other resources, its targets are marked as freed.
    pub fn put_lease(&mut self, before: Option<Lease>, after: Lease) {
        let before_resources = before.as_ref().map(|before| &before.claim.resources);
        if before_resources != Some(&after.claim.resources) {
            self.moved.push(after.claim.dependents());
            // A weaker lease lets others in. So does a stronger one on a name that is not counted any more.
            if before.is_some() {
                self.freed.extend(after.claim.targets().cloned());
            }
        }
        let edit = self.leases.entry(after.id).or_insert(Edit { before, after: None });
        edit.after = Some(after);
    }

    /// Removes a lease and marks its targets as freed.
    pub fn remove_lease(&mut self, lease: Lease) {
        self.freed.extend(lease.claim.targets().cloned());
        self.moved.push(lease.claim.dependents());
        let id = lease.id;
        self.leases.entry(id).or_insert(Edit { before: Some(lease), after: None }).after = None;
    }

    /// Adds or replaces a ticket.
    pub fn put_ticket(&mut self, before: Option<Ticket>, after: Ticket) {
        let edit = self.tickets.entry(after.id).or_insert(Edit { before, after: None });
        edit.after = Some(after);
    }

    /// Removes a ticket, and marks its targets as freed: the tickets behind it may be granted now.
    pub fn remove_ticket(&mut self, ticket: Ticket) {
        self.freed.extend(ticket.claim.targets().cloned());
        self.take_ticket(ticket);
    }

    /// Removes a ticket that was granted.
    pub fn take_ticket(&mut self, ticket: Ticket) {
        let id = ticket.id;
        self.tickets.entry(id).or_insert(Edit { before: Some(ticket), after: None }).after = None;
    }

    /// Removes a lease whose holder is gone or whose time is up.
    pub fn reap_lease(&mut self, lease: Lease, verdict: Verdict) {
        let owner = lease.claim.owner.clone();
        self.reaped.push(Reaped { id: lease.id, owner, held: true, verdict });
        self.effects.extend(lease.waker().map(match verdict {
            Verdict::Dead(_) => Effect::RemoveWaker,
            // An expired holder may still run. It has to learn that the lease is lost.
            Verdict::Alive | Verdict::Unknown | Verdict::Expired | Verdict::Overdue => Effect::Wake,
        }));
        self.remove_lease(lease);
    }

    /// Removes a ticket whose waiter is gone or whose time is up.
    pub fn reap_ticket(&mut self, ticket: Ticket, verdict: Verdict) {
        let owner = ticket.claim.owner.clone();
        self.reaped.push(Reaped { id: ticket.id, owner, held: false, verdict });
        self.effects.extend(ticket.waker.map(Effect::RemoveWaker));
        self.remove_ticket(ticket);
    }

    /// Has the store wake a process after the commit.
    pub fn wake(&mut self, waker: Option<WakerId>) {
        if let Some(wake) = waker.map(Effect::Wake)
            && !self.effects.contains(&wake)
        {
            self.effects.push(wake);
        }
    }

    /// Marks targets as freed although nothing was removed.
    pub fn offer<'t>(&mut self, targets: impl Iterator<Item = &'t Target>) {
        self.freed.extend(targets.cloned());
    }

    /// Takes one freed target that was not yet offered to the next waiter.
    pub fn next_freed(&mut self) -> Option<Target> {
        self.freed.pop()
    }

    /// Whether a freed target was not yet offered to the next waiter.
    pub fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Takes the tickets of one owner that holds more or less than before. They were not yet checked.
    pub fn next_moved(&mut self) -> Option<KeyRange> {
        self.moved.pop()
    }

    /// Every lease that the decision changed: the version of the store, and the version of the decision.
    pub fn changed_leases(&self) -> Vec<(Option<Lease>, Option<Lease>)> {
        self.leases.values().map(|edit| (edit.before.clone(), edit.after.clone())).collect()
    }

    /// Every ticket that the decision changed: the version of the store, and the version of the decision.
    pub fn changed_tickets(&self) -> Vec<(Option<Ticket>, Option<Ticket>)> {
        self.tickets.values().map(|edit| (edit.before.clone(), edit.after.clone())).collect()
    }
}

/// The ticket of the store that the lease with the same id replaces.
fn granted_ticket(tickets: &mut BTreeMap<LeaseId, Edit<Ticket>>, id: LeaseId) -> Option<Ticket> {
    tickets.get(&id).is_some_and(|edit| edit.after.is_none()).then(|| tickets.remove(&id))??.before
}

/// A probe that sees every process alive.
struct AllAlive;

impl LivenessProbe for AllAlive {
    fn observe(&self, _proof: &Proof) -> Observation {
        Observation::Lock(LockState::Held)
    }
}
