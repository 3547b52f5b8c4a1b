//! Watch lists: which records a waiter watches, and which waiters have to look again after a decision.
//!
//! A release wakes the waiter that it grants the lease to. The death of a process or the end of a TTL wakes nobody. So every
//! waiter watches the processes and the times of the records that block it. It stops at the nearest ticket ahead that stands
//! for all before it: while that ticket waits or holds, the waiter is not granted, and the same process stands behind both. So
//! in a simple line each waiter watches the one before it, and a death wakes one waiter, not all.
//!
//! A watch list is as old as the last look of its waiter. If a decision puts a record before a waiter that is not on its list,
//! or makes the time of a record on the list end sooner, the decision wakes the waiter to look again.

use std::collections::BTreeSet;

use crate::id::LeaseId;
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Rank, Ticket};
use crate::records::Scan;
use crate::resource::{KeyRange, Target};
use crate::time::Moment;
use crate::waiting::{Asker, Blocker, blockers, excludes};

/// A record that a waiter watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A lease that blocks.
    Lease(Lease),
    /// A ticket that is served earlier.
    Ticket(Ticket),
}

impl Watched {
    /// Its id.
    pub fn id(&self) -> LeaseId {
        match self {
            Self::Lease(lease) => lease.id,
            Self::Ticket(ticket) => ticket.id,
        }
    }

    /// Its claim.
    pub fn claim(&self) -> &Claim {
        match self {
            Self::Lease(lease) => &lease.claim,
            Self::Ticket(ticket) => &ticket.claim,
        }
    }

    /// When it ends by time alone.
    pub fn ends_at(&self) -> Option<Moment> {
        match self {
            Self::Lease(lease) => [lease.expires_at(), lease.session_ends_at()].into_iter().flatten().min(),
            Self::Ticket(ticket) => ticket.lapses_at(),
        }
    }

    fn ends_before(&self, other: &Self) -> bool {
        match (self.ends_at(), other.ends_at()) {
            (Some(this), Some(other)) => this < other,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// The records that a waiter has to watch itself: nobody wakes it when their process dies or their time is up.
pub fn watch_list(blockers: &[Blocker]) -> Vec<Watched> {
    let mut watched: Vec<Watched> = Vec::new();
    let mut add = |one: Watched| {
        if !watched.iter().any(|known| known.id() == one.id()) {
            watched.push(one);
        }
    };
    for blocker in blockers {
        let stands_for_all = |ticket: &Ticket| ticket.stands_for_all_before(&blocker.resource.target);
        let Some(last) = blocker.tickets.iter().position(|found| stands_for_all(&found.record)) else {
            blocker.tickets.iter().for_each(|found| add(Watched::Ticket(found.record.clone())));
            blocker.leases.iter().for_each(|found| add(Watched::Lease(found.record.clone())));
            continue;
        };
        // The waiter does not watch what is ahead of this ticket: the ticket stands for it.
        let near = blocker.tickets[..=last].iter().map(|found| &found.record);
        let near = near.filter(|ticket| excludes(&blocker.resource, &ticket.claim));
        near.for_each(|ticket| add(Watched::Ticket(ticket.clone())));
    }
    watched
}

/// Wakes every waiter whose watch list has a new record, or an earlier end, after this decision; but not the caller.
pub fn wake_affected<E>(overlay: &mut Overlay<'_, E>, caller: Option<LeaseId>) -> Result<(), E> {
    let mut affected = Affected { in_turn: granted_in_turn(overlay)?, ..Affected::default() };
    for (before, after) in overlay.changed_leases() {
        affected.note_lease(before, after);
    }
    for (before, after) in overlay.changed_tickets() {
        affected.note_ticket(before, after);
    }
    affected.checked.extend(caller);
    for (target, from) in std::mem::take(&mut affected.places) {
        affected.spread(overlay, &target, from)?;
    }
    while let Some(range) = affected.dependents.pop_first() {
        let mut place = None;
        while let Some(ticket) = overlay.next_ticket(&range, Scan::Forward(place))? {
            place = Some(ticket.rank);
            affected.check(overlay, &ticket)?;
        }
    }
    Ok(())
}

/// Tickets for one target that were first in its line and hold it now.
///
/// The waiter behind such a ticket watched its process already, so the grant changes no watch list.
fn granted_in_turn<E>(overlay: &mut Overlay<'_, E>) -> Result<BTreeSet<LeaseId>, E> {
    let mut in_turn = BTreeSet::new();
    for (before, after) in overlay.changed_tickets() {
        let (Some(ticket), None) = (before, after) else { continue };
        let [resource] = ticket.claim.resources.as_slice() else { continue };
        let holds = overlay.lease(ticket.id)?.is_some_and(|lease| lease.expires_at().is_none());
        let range = resource.target.key_range();
        // Its owner may hold the target twice. Those behind did not watch the second lease.
        if !holds || overlay.leases(&range)?.len() > 1 {
            continue;
        }
        let mut before = overlay.before();
        let first = before.next_ticket(&range, Scan::Backward(Some(ticket.rank)))?.is_none();
        // The next ticket has to stand for all before it. Those behind it watch it alone, as before.
        let next = before.next_ticket(&range, Scan::Forward(Some(ticket.rank)))?;
        let stands =
            |next: &Ticket| next.claim.resources.len() == 1 && next.stands_for_all_before(&resource.target);
        if first && next.as_ref().is_none_or(stands) {
            in_turn.insert(ticket.id);
        }
    }
    Ok(in_turn)
}

/// The places in lines that a decision affects.
#[derive(Default)]
struct Affected {
    /// Granted claims that the waiters behind them watched already.
    in_turn: BTreeSet<LeaseId>,
    /// From this rank on, waiters for this target may have a new record before them, or one that ends sooner.
    places: BTreeSet<(Target, Option<Rank>)>,
    /// The tickets of owners that hold more or less than before, and of their sub-agents: that changes which tickets block them.
    dependents: BTreeSet<KeyRange>,
    /// Tickets that did not stand for those before them until this decision.
    fresh: BTreeSet<LeaseId>,
    /// Tickets that were checked, or need no check.
    checked: BTreeSet<LeaseId>,
}

impl Affected {
    fn note_lease(&mut self, before: Option<Lease>, after: Option<Lease>) {
        let same = |before: &Lease, after: &Lease| before.claim.resources == after.claim.resources;
        match (before, after) {
            (None, None) => {}
            (Some(gone), None) => {
                self.dependents.insert(gone.claim.dependents());
            }
            (Some(before), Some(after)) if same(&before, &after) => {
                if Watched::Lease(after.clone()).ends_before(&Watched::Lease(before)) {
                    self.mark(&after.claim, None);
                }
            }
            (_, Some(new)) => {
                if !self.in_turn.contains(&new.id) {
                    self.mark(&new.claim, None);
                }
                self.dependents.insert(new.claim.dependents());
            }
        }
    }

    fn note_ticket(&mut self, before: Option<Ticket>, after: Option<Ticket>) {
        match (before, after) {
            (None, None) => {}
            (Some(gone), None) if self.in_turn.contains(&gone.id) => {}
            (Some(gone), None) => self.mark(&gone.claim, Some(gone.rank)),
            (None, Some(new)) => {
                self.mark(&new.claim, Some(new.rank));
                self.fresh.insert(new.id);
                self.checked.insert(new.id);
            }
            (Some(before), Some(after)) => {
                if before.waker.is_none() {
                    self.fresh.insert(after.id);
                }
                let left = before.waker.is_some() && after.waker.is_none();
                let (claim, rank) = (after.claim.clone(), after.rank);
                if left || Watched::Ticket(after).ends_before(&Watched::Ticket(before)) {
                    self.mark(&claim, Some(rank));
                }
            }
        }
    }

    fn mark(&mut self, claim: &Claim, from: Option<Rank>) {
        self.places.extend(claim.targets().map(|target| (target.clone(), from)));
    }

    /// Checks the waiters behind a rank in the line for one target.
    fn spread<E>(
        &mut self,
        overlay: &mut Overlay<'_, E>,
        target: &Target,
        from: Option<Rank>,
    ) -> Result<(), E> {
        let range = target.key_range();
        let mut place = from;
        while let Some(ticket) = overlay.next_ticket(&range, Scan::Forward(place))? {
            place = Some(ticket.rank);
            let ends_here = matches!(target, Target::Name(_))
                && ticket.claim.agent.is_none()
                && ticket.stands_for_all_before(target)
                && !self.fresh.contains(&ticket.id);
            if ends_here {
                // The tickets behind it need no check, except those that it does not block: those of its own owner, and of the
                // owners that it waits for.
                self.dependents.insert(ticket.claim.dependents());
                self.dependents.extend(holders_before(overlay, &ticket)?);
            }
            self.check(overlay, &ticket)?;
            if ends_here {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Wakes a waiter if its watch list has a new record or an earlier end.
    fn check<E>(&mut self, overlay: &mut Overlay<'_, E>, ticket: &Ticket) -> Result<(), E> {
        if ticket.waker.is_none() || !self.checked.insert(ticket.id) {
            return Ok(());
        }
        let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
        let then = watch_list(&blockers(&mut overlay.before(), asker)?);
        let now = watch_list(&blockers(overlay, asker)?);
        let is_news = |one: &Watched| {
            let known = then.iter().find(|known| known.id() == one.id());
            known.is_none_or(|known| one.ends_before(known))
        };
        if now.iter().any(is_news) {
            overlay.wake(ticket.waker);
        }
        Ok(())
    }
}

/// The tickets of the owners whose leases a ticket waits for, or waited for before the decision, and of their sub-agents.
fn holders_before<E>(overlay: &mut Overlay<'_, E>, ticket: &Ticket) -> Result<Vec<KeyRange>, E> {
    let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
    let mut blockers_of_both = blockers(&mut overlay.before(), asker)?;
    blockers_of_both.extend(blockers(overlay, asker)?);
    let leases = blockers_of_both.into_iter().flat_map(|blocker| blocker.leases);
    Ok(leases.map(|found| found.record.claim.dependents()).collect())
}
