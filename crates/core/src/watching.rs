//! Whom a waiter keeps an eye on, and who has to look again after a decision.
//!
//! A release wakes whoever it is handed to. A death or the end of a time wakes nobody by itself, so every
//! waiter watches those in its way. It need not look further than the nearest ticket ahead that stands for
//! everything before it: as long as that one waits or holds, the waiter cannot go, and it is the same process
//! then. So in a plain line each watches the one before it, and nobody's death wakes a crowd.
//!
//! A watch is as old as the waiter's last look. Whenever a decision puts somebody before a waiter whom it
//! did not see then, or lets somebody's time end sooner, the waiter is woken to look again.

use std::collections::BTreeSet;

use crate::id::{LeaseId, Owner};
use crate::overlay::{Overlay, Scan, View};
use crate::record::{Claim, Lease, Rank, Ticket};
use crate::resource::{Key, KeyRange, Target};
use crate::time::Moment;
use crate::waiting::{Asker, Blocker, blockers, excludes};

/// A record that a waiter keeps an eye on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A holder.
    Lease(Lease),
    /// A waiter further ahead.
    Ticket(Ticket),
}

impl Watched {
    /// Which claim it is.
    pub fn id(&self) -> LeaseId {
        match self {
            Self::Lease(lease) => lease.id,
            Self::Ticket(ticket) => ticket.id,
        }
    }

    /// The claim itself.
    pub fn claim(&self) -> &Claim {
        match self {
            Self::Lease(lease) => &lease.claim,
            Self::Ticket(ticket) => &ticket.claim,
        }
    }

    /// When time alone may end it.
    pub fn ends_at(&self) -> Option<Moment> {
        match self {
            Self::Lease(lease) => lease.expires_at(),
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

/// Those whose death, or whose end in time, a waiter has to notice by itself.
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
        // What is before the last one has no say in this, not even in whether the others are counted.
        let near = blocker.tickets[..=last].iter().map(|found| &found.record);
        let near = near.filter(|ticket| excludes(&blocker.resource, &ticket.claim));
        near.for_each(|ticket| add(Watched::Ticket(ticket.clone())));
    }
    watched
}

/// Wakes every waiter, except the one who is here, that has somebody to watch whom it did not see before.
pub fn wake_for_news<V: View>(overlay: &mut Overlay<'_, V>, here: Option<LeaseId>) -> Result<(), V::Error> {
    let mut news = News { in_turn: granted_in_turn(overlay)?, ..News::default() };
    for (before, after) in overlay.changed_leases() {
        news.note_lease(before, after);
    }
    for (before, after) in overlay.changed_tickets() {
        news.note_ticket(before, after);
    }
    news.told.extend(here);
    for (target, from) in std::mem::take(&mut news.places) {
        news.spread(overlay, &target, from)?;
    }
    while let Some(owner) = news.owners.pop_first() {
        let range = KeyRange::of(Key::of_owner(&owner));
        let mut place = None;
        while let Some(ticket) = overlay.next_ticket(&range, Scan::Forward(place))? {
            place = Some(ticket.rank);
            news.tell(overlay, &ticket)?;
        }
    }
    Ok(())
}

/// Tickets for one whole name that were first in its line and hold it now.
///
/// Whoever stood behind one watched it, or watched somebody who did, and goes on watching the same process.
fn granted_in_turn<V: View>(overlay: &mut Overlay<'_, V>) -> Result<BTreeSet<LeaseId>, V::Error> {
    let mut in_turn = BTreeSet::new();
    for (before, after) in overlay.changed_tickets() {
        let (Some(ticket), None) = (before, after) else { continue };
        let [resource] = ticket.claim.resources.as_slice() else { continue };
        let whole_name = matches!(resource.target, Target::Name(_))
            && ticket.stands_for_all_before(&resource.target)
            && ticket.upgrades.is_none();
        let holds = overlay.lease(ticket.id)?.is_some_and(|lease| lease.expires_at().is_none());
        let range = resource.target.key_range();
        // Its owner may hold more of the name, which those behind had no reason to watch so far.
        if !whole_name || !holds || overlay.leases(&range)?.len() > 1 {
            continue;
        }
        let mut view = overlay.as_seen_before();
        let mut before = Overlay::new(&mut view);
        let first = before.next_ticket(&range, Scan::Backward(Some(ticket.rank)))?.is_none();
        // The next one has to stand for all behind it, as this one did until now.
        let next = before.next_ticket(&range, Scan::Forward(Some(ticket.rank)))?;
        let stands =
            |next: &Ticket| next.claim.resources.len() == 1 && next.stands_for_all_before(&resource.target);
        if first && next.as_ref().is_none_or(stands) {
            in_turn.insert(ticket.id);
        }
    }
    Ok(in_turn)
}

/// What a decision means for those who wait.
#[derive(Default)]
struct News {
    /// Claims that come as no surprise to those behind them.
    in_turn: BTreeSet<LeaseId>,
    /// From which place in which line on somebody may have come or gone before others, or will go sooner.
    places: BTreeSet<(Target, Option<Rank>)>,
    /// Owners who hold more or less: whether a ticket ahead waits for them decides what their own see.
    owners: BTreeSet<Owner>,
    /// Tickets that stood for nobody before this decision.
    fresh: BTreeSet<LeaseId>,
    /// Tickets that were looked at, or need not be.
    told: BTreeSet<LeaseId>,
}

impl News {
    fn note_lease(&mut self, before: Option<Lease>, after: Option<Lease>) {
        let same = |before: &Lease, after: &Lease| before.claim.resources == after.claim.resources;
        match (before, after) {
            (None, None) => {}
            (Some(gone), None) => {
                self.owners.insert(gone.claim.owner.clone());
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
                self.owners.insert(new.claim.owner.clone());
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
                self.told.insert(new.id);
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

    /// Tells those behind a place in the line for one target.
    fn spread<V: View>(
        &mut self,
        overlay: &mut Overlay<'_, V>,
        target: &Target,
        from: Option<Rank>,
    ) -> Result<(), V::Error> {
        let range = target.key_range();
        let mut place = from;
        while let Some(ticket) = overlay.next_ticket(&range, Scan::Forward(place))? {
            place = Some(ticket.rank);
            let ends_here = matches!(target, Target::Name(_))
                && ticket.stands_for_all_before(target)
                && !self.fresh.contains(&ticket.id);
            if ends_here {
                // It stands for all before it, except to its own owner and to those for whom it waits itself.
                self.owners.insert(ticket.claim.owner.clone());
                self.owners.extend(holders_before(overlay, &ticket)?);
            }
            self.tell(overlay, &ticket)?;
            if ends_here {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Wakes one waiter if there is news for it.
    fn tell<V: View>(&mut self, overlay: &mut Overlay<'_, V>, ticket: &Ticket) -> Result<(), V::Error> {
        if ticket.waker.is_none() || !self.told.insert(ticket.id) {
            return Ok(());
        }
        let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
        let then = watch_list(&blockers(&mut Overlay::new(&mut overlay.as_seen_before()), asker)?);
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

/// The owners of the leases that a ticket waits for, or did before the decision.
fn holders_before<V: View>(overlay: &mut Overlay<'_, V>, ticket: &Ticket) -> Result<Vec<Owner>, V::Error> {
    let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
    let mut jams_of_both = blockers(&mut Overlay::new(&mut overlay.as_seen_before()), asker)?;
    jams_of_both.extend(blockers(overlay, asker)?);
    let leases = jams_of_both.into_iter().flat_map(|blocker| blocker.leases);
    Ok(leases.map(|found| found.record.claim.owner.clone()).collect())
}
