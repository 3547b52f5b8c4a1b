//! Reassertion: holders and waiters write their records again, after the store has lost something that it had acknowledged.
//!
//! A server that was restored from a backup, or promoted from a standby that lagged, may have lost leases, tickets and renewals.
//! For the span of one session it grants nothing. Within that span each live holder renews its session anyway: if the lease is
//! missing or is that of an earlier moment, the holder writes it again, with its token. A waiter gets its old place in line. A
//! holder that does not write its lease within the span has stopped by itself, because it could not renew its session.

use super::{NotCurrent, Outcome, WaitTerms, check_ticket};
use crate::id::LeaseId;
use crate::liveness::Verdict;
use crate::overlay::Overlay;
use crate::record::{Lease, Ticket};
use crate::time::{Moment, Ttl};
use crate::waiting::{excludes, has_room_beside, settle};

/// Whether the store has an older state of this lease than its holder knows. Returns since when the store has lost nothing.
pub(super) fn is_forgotten<E>(
    overlay: &mut Overlay<'_, E>,
    known: &Lease,
    written: &[Moment],
) -> Result<Option<Moment>, E> {
    let found = overlay.lease(known.id)?;
    // `remembers_since` is known once something was read.
    let Some(since) = silent_since(overlay, known.claim.session()) else { return Ok(None) };
    let is_earlier = found.is_none_or(|found| {
        let is_older = written.iter().all(|written| found.heartbeat_at < *written);
        found.token < known.token || (found.token == known.token && is_older)
    });
    Ok(is_earlier.then_some(since))
}

/// Writes the lease of a live holder again, unless a lease excludes it whose holder has sent a heartbeat since `since`.
pub(super) fn reassert<E>(
    overlay: &mut Overlay<'_, E>,
    known: &Lease,
    since: Moment,
) -> Result<Result<Lease, NotCurrent>, E> {
    // If the numbers of the store were behind this token, a later holder could get a smaller one.
    let is_behind = overlay.next_number()? <= known.token.0;
    if is_behind || !has_room_beside(overlay, &known.claim, since)? {
        return Ok(Err(NotCurrent::Unknown(known.id)));
    }
    remove_ended_before(overlay, known, since)?;
    let heartbeat_at = overlay.now().max(since);
    let again = Lease { heartbeat_at, pickup_by: None, revoked: false, ..known.clone() };
    if let Some(ticket) = overlay.ticket(known.id)? {
        overlay.take_ticket(ticket);
    }
    let found = overlay.lease(known.id)?;
    overlay.put_lease(found, again.clone());
    settle(overlay, None)?;
    Ok(Ok(again))
}

/// Removes leases that must have ended before this one began, although the store has lost their ends: they exclude it, and their
/// tokens are smaller.
fn remove_ended_before<E>(overlay: &mut Overlay<'_, E>, known: &Lease, since: Moment) -> Result<(), E> {
    for resource in &known.claim.resources {
        for lease in overlay.leases(&resource.target.key_range())? {
            let cannot_be_together =
                excludes(resource, &lease.claim) && !lease.claim.gives_way_to(&known.claim);
            if cannot_be_together && lease.token < known.token && lease.heartbeat_at < since {
                overlay.reap_lease(lease, Verdict::Expired);
            }
        }
    }
    Ok(())
}

/// Checks the ticket of a waiting process. If the store has lost it, writes it again with its old place in line.
pub fn wait_again<E>(
    overlay: &mut Overlay<'_, E>,
    known: &Ticket,
    terms: Option<WaitTerms>,
) -> Result<Outcome, E> {
    let is_there = overlay.ticket(known.id)?.is_some() || overlay.lease(known.id)?.is_some();
    if !is_there && silent_since(overlay, known.claim.proof.origin.session).is_some() {
        overlay.put_ticket(None, Ticket { seen_at: overlay.now(), ..known.clone() });
    }
    check_ticket(overlay, known.id, terms)
}

/// Whether the store has lost a lease that its holder wants to release: then no other owner has got it since.
pub fn release_forgotten<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    session: Option<Ttl>,
) -> Result<bool, E> {
    Ok(overlay.lease(id)?.is_none() && silent_since(overlay, session).is_some())
}

fn silent_since<E>(overlay: &Overlay<'_, E>, session: Option<Ttl>) -> Option<Moment> {
    overlay.silent_until(session).and_then(|_| overlay.remembers_since())
}
