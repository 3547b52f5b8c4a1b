//! Permission to end a lease: the one rule for release, upgrade, downgrade, and renewals that shorten a lease.
//!
//! A caller may do it if one of these is true:
//!
//! 1. It names the current token.
//! 2. It names the owner of the lease.
//! 3. It names no owner, and the process that the lease was made for is the caller or one of its ancestors.
//!
//! Everybody else has to break the lease (`revoke`), which a person confirms. The same holds for a ticket, which has no token.

use super::NotCurrent;
use crate::id::{LeaseId, Owner, Token};
use crate::liveness::{Origin, ProcessRef};
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Ticket};
use crate::time::Ttl;

/// What is known of the caller that wants to end or change a lease.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The token that it names.
    pub token: Option<Token>,
    /// The owner that it names.
    pub owner: Option<Owner>,
    /// The process of the caller and its ancestors, and where they run. None if the caller is not a process of this machine.
    pub processes: Option<(Origin, Vec<ProcessRef>)>,
}

/// A caller that names a token and nothing else.
impl From<Option<Token>> for Caller {
    fn from(token: Option<Token>) -> Self {
        Self { token, ..Self::default() }
    }
}

impl Caller {
    /// Whether this caller may end the lease.
    pub fn may_end(&self, lease: &Lease) -> bool {
        if let Some(token) = self.token {
            return token == lease.token;
        }
        self.is_owner_of(&lease.claim)
    }

    /// Whether this caller may take the ticket out of the line.
    pub fn may_withdraw(&self, ticket: &Ticket) -> bool {
        (self.token.is_none() || self.owner.is_some()) && self.is_owner_of(&ticket.claim)
    }

    fn is_owner_of(&self, claim: &Claim) -> bool {
        match &self.owner {
            Some(owner) => *owner == claim.owner,
            None => self.is_in_family_of(claim),
        }
    }

    /// Whether the process of the claim is the caller or one of its ancestors.
    pub fn is_in_family_of(&self, claim: &Claim) -> bool {
        let proof = &claim.proof;
        let Some((origin, processes)) = &self.processes else { return false };
        let same_pids =
            origin.boot == proof.origin.boot && origin.pid_namespace == proof.origin.pid_namespace;
        same_pids && proof.made_for().is_some_and(|process| processes.contains(&process))
    }
}

/// Refuses a caller that may not end the lease. A lease that is not there is not refused here.
pub fn permit<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    caller: &Caller,
) -> Result<Result<(), NotCurrent>, E> {
    let Some(lease) = overlay.lease(id)? else { return Ok(Err(NotCurrent::Unknown(id))) };
    Ok(match caller.token {
        Some(given) if given != lease.token => Err(NotCurrent::Token { id, given, current: lease.token }),
        Some(_) | None if caller.may_end(&lease) => Ok(()),
        Some(_) | None => Err(NotCurrent::NotTheOwner { id, owner: lease.claim.owner.clone() }),
    })
}

/// Refuses a renewal by a caller that may not end the lease, if the lease would end earlier than it does now.
pub fn permit_renewal<E>(
    overlay: &mut Overlay<'_, E>,
    id: LeaseId,
    caller: &Caller,
    ttl: Option<Ttl>,
) -> Result<Result<(), NotCurrent>, E> {
    let Some((lease, ttl)) = overlay.lease(id)?.zip(ttl) else { return Ok(Ok(())) };
    let new_end = overlay.now().after(ttl.get());
    if lease.expires_at().is_some_and(|end| end <= new_end) {
        Ok(Ok(()))
    } else {
        permit(overlay, id, caller)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::HolderId;
    use crate::liveness::{Contract, Proof, Voucher};
    use crate::record::{Claim, Priority, Rank};
    use crate::time::Moment;

    const HOLDER: ProcessRef = ProcessRef { pid: 40, started: 7 };

    fn origin(pid_namespace: u64) -> Origin {
        Origin { host: "host".to_owned(), boot: "boot".to_owned(), pid_namespace, session: None }
    }

    fn lease(voucher: Voucher) -> Lease {
        let claim = Claim {
            owner: "worker:1".parse().unwrap(),
            resources: Vec::new(),
            proof: Proof { origin: origin(1), voucher },
            contract: Contract::Strict,
            ttl: None,
            reason: None,
            ticket: None,
            agent: None,
        };
        let now = Moment::from_micros(1);
        Lease {
            id: LeaseId(3),
            token: Token(5),
            claim: Arc::new(claim),
            acquired_at: now,
            heartbeat_at: now,
            pickup_by: None,
            revoked: false,
        }
    }

    fn running_in(pid_namespace: u64, processes: &[ProcessRef]) -> Caller {
        Caller { processes: Some((origin(pid_namespace), processes.to_vec())), ..Caller::default() }
    }

    #[test]
    fn the_token_is_enough_and_a_wrong_token_is_refused_whatever_else_the_caller_names() {
        let lease = lease(Voucher::Time);
        assert!(Caller::from(Some(Token(5))).may_end(&lease));
        let owner = Some("worker:1".parse().unwrap());
        assert!(!Caller { owner, ..Caller::from(Some(Token(4))) }.may_end(&lease));
        assert!(!Caller::default().may_end(&lease));
    }

    #[test]
    fn a_named_owner_counts_before_the_family() {
        let lease = lease(Voucher::Process(HOLDER));
        let named = |text: &str| Caller { owner: Some(text.parse().unwrap()), ..running_in(1, &[HOLDER]) };
        assert!(named("worker:1").may_end(&lease));
        assert!(!named("worker:2").may_end(&lease));
    }

    #[test]
    fn only_descendants_of_the_holder_in_its_pid_namespace_are_family() {
        let shell = ProcessRef { pid: 41, started: 8 };
        let reused = ProcessRef { started: 9, ..HOLDER };
        let kernel_lock = Voucher::KernelLock { holder: HolderId(1), process: HOLDER };
        for voucher in [Voucher::Process(HOLDER), Voucher::TimeFor(HOLDER), kernel_lock] {
            let lease = lease(voucher);
            assert!(running_in(1, &[shell, HOLDER]).may_end(&lease), "{voucher:?}");
            for stranger in [running_in(1, &[shell]), running_in(1, &[reused]), running_in(2, &[HOLDER])] {
                assert!(!stranger.may_end(&lease), "{voucher:?} {stranger:?}");
            }
        }
        assert!(!running_in(1, &[HOLDER]).may_end(&lease(Voucher::Time)));
    }

    #[test]
    fn a_ticket_is_withdrawn_by_its_owner_or_its_family() {
        let ticket = Ticket {
            id: LeaseId(3),
            claim: lease(Voucher::Process(HOLDER)).claim,
            priority: Priority::default(),
            rank: Rank { at: 0, id: LeaseId(3) },
            enqueued_at: Moment::from_micros(1),
            seen_at: Moment::from_micros(1),
            stays: Ttl::new(std::time::Duration::from_secs(1)).unwrap(),
            waker: None,
            under: Vec::new(),
            upgrades: None,
        };
        let named = |owner: &str| Caller { owner: Some(owner.parse().unwrap()), ..Caller::default() };
        assert!(named("worker:1").may_withdraw(&ticket));
        assert!(running_in(1, &[HOLDER]).may_withdraw(&ticket));
        for stranger in [named("worker:2"), Caller::default(), running_in(2, &[HOLDER])] {
            assert!(!stranger.may_withdraw(&ticket), "{stranger:?}");
        }
        // A ticket has no token, so a token proves nothing.
        assert!(!Caller { token: Some(Token(3)), ..running_in(1, &[HOLDER]) }.may_withdraw(&ticket));
    }
}
