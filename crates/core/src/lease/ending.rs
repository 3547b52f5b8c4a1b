//! The end of a lease: release, revoke, evict, reap.

use std::time::Duration;

use super::permission::{Caller, permit};
use super::{NotCurrent, under_token};
use crate::id::{LeaseId, Token};
use crate::overlay::Overlay;
use crate::record::{Lease, Ticket};
use crate::waiting::settle;

/// Ends a lease.
pub fn release<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    token: Option<Token>,
) -> Result<Result<Lease, NotCurrent>, E> {
    let lease = match under_token(overlay, id, token)? {
        Ok(lease) => lease,
        not_current => return Ok(not_current),
    };
    overlay.remove_lease(lease.clone());
    settle(overlay, None)?;
    Ok(Ok(lease))
}

/// Revokes a lease.
///
/// A resident holder is woken and stops its work first. Every other holder loses the lease at once. Returns the lease, and
/// whether it is still held.
pub fn revoke<E>(overlay: &mut Overlay<'_, E>, id: LeaseId) -> Result<Option<(Lease, bool)>, E> {
    let Some(lease) = overlay.lease(id)? else { return Ok(None) };
    let verdict = overlay.judge_lease(&lease);
    let stays = lease.waker().is_some() && !verdict.is_free();
    if stays {
        overlay.wake(lease.waker());
        overlay.put_lease(Some(lease.clone()), Lease { revoked: true, ..lease.clone() });
    } else {
        overlay.remove_lease(lease.clone());
        settle(overlay, None)?;
    }
    Ok(Some((lease, stays)))
}

/// Ends a lease for a caller that is not its holder process: like [`revoke`], if the caller may do it.
pub fn end<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    caller: &Caller,
) -> Result<Result<(Lease, bool), NotCurrent>, E> {
    match permit(overlay, id, caller)? {
        Ok(()) => Ok(revoke(overlay, id)?.ok_or(NotCurrent::Unknown(id))),
        Err(refusal) => Ok(Err(refusal)),
    }
}

/// Takes a ticket out of the line, if the caller may do it. Wakes the process that waits with it.
pub fn withdraw<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    caller: &Caller,
) -> Result<Result<Ticket, NotCurrent>, E> {
    let Some(ticket) = overlay.ticket(id)? else { return Ok(Err(NotCurrent::NotInLine(id))) };
    if !caller.may_withdraw(&ticket) {
        let owner = ticket.claim.owner.clone();
        return Ok(Err(NotCurrent::NotTheWaiter { id, owner }));
    }
    Ok(remove_ticket(overlay, id)?.ok_or(NotCurrent::NotInLine(id)))
}

/// Takes a ticket out of the line without regard to its owner. Only a person decides that. Returns none if there is no such ticket.
pub fn remove_ticket<E>(overlay: &mut Overlay<'_, E>, id: LeaseId) -> Result<Option<Ticket>, E> {
    let Some(ticket) = overlay.ticket(id)? else { return Ok(None) };
    overlay.wake(ticket.waker);
    overlay.remove_ticket(ticket.clone());
    settle(overlay, None)?;
    Ok(Some(ticket))
}

/// Removes a lease without regard to its holder. Only a person decides that.
pub fn evict<E>(overlay: &mut Overlay<'_, E>, id: LeaseId) -> Result<bool, E> {
    let Some(lease) = overlay.lease(id)? else { return Ok(false) };
    overlay.wake(lease.waker());
    overlay.remove_lease(lease);
    settle(overlay, None)?;
    Ok(true)
}

/// The holder of a revoked lease confirms that it stops its work, and releases the lease afterwards. Returns false if the lease
/// is not held any more.
///
/// Nobody else renews a revoked lease, so its new heartbeat is the confirmation.
pub fn acknowledge<E>(overlay: &mut Overlay<'_, E>, id: LeaseId, token: Token) -> Result<bool, E> {
    let Some(lease) = overlay.lease(id)?.filter(|lease| lease.revoked && lease.token == token) else {
        return Ok(false);
    };
    let later = lease.heartbeat_at.after(Duration::from_micros(1));
    let stopping = Lease { heartbeat_at: overlay.now().max(later), ..lease.clone() };
    overlay.put_lease(Some(lease), stopping);
    settle(overlay, None)?;
    Ok(true)
}

/// Whether the holder of this lease has confirmed that it stops its work since the lease was revoked.
pub fn is_acknowledged(revoked: &Lease, found: &Lease) -> bool {
    found.token == revoked.token && found.heartbeat_at > revoked.heartbeat_at
}

/// Removes a revoked lease whose holder has not confirmed that it stops its work. Returns whether it did.
pub fn evict_unless_acknowledged<E>(overlay: &mut Overlay<'_, E>, revoked: &Lease) -> Result<bool, E> {
    match overlay.lease(revoked.id)? {
        Some(found) if is_acknowledged(revoked, &found) => Ok(false),
        _ => evict(overlay, revoked.id),
    }
}

/// Reaps every lease and ticket whose process is gone or whose time is up.
pub fn clean_up<E>(overlay: &mut Overlay<'_, E>) -> Result<(), E> {
    let (leases, tickets) = overlay.all()?;
    for lease in leases {
        let verdict = overlay.judge_lease(&lease);
        if verdict.is_free() {
            overlay.reap_lease(lease, verdict);
        }
    }
    for ticket in tickets {
        let verdict = overlay.judge_ticket(&ticket);
        if verdict.is_free() {
            overlay.reap_ticket(ticket, verdict);
        }
    }
    settle(overlay, None)
}
