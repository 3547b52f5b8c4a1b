//! Outcomes of the lease rules: a lease, a place in line, or a refusal.

use thiserror::Error;

use crate::deadlock::Link;
use crate::id::{LeaseId, Owner, Token};
use crate::record::{Lease, Ticket};
use crate::time::Moment;
use crate::waiting::Blocker;

/// The outcome of a request.
#[derive(Clone, Debug)]
#[must_use]
pub enum Outcome {
    /// The lease is held.
    Granted(Grant),
    /// The ticket is in line.
    Waiting(Waiting),
    /// Others hold it, and the request does not wait.
    Held(Vec<Blocker>),
    /// Waiting would never end.
    Deadlock(Vec<Link>),
    /// The ticket or lease is not there any more.
    Gone,
}

/// A lease that is held.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The lease.
    pub lease: Lease,
    /// Whether the owner held it before this request.
    pub joined: bool,
}

/// A ticket in line.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The ticket.
    pub ticket: Ticket,
    /// What blocks it.
    pub blockers: Vec<Blocker>,
    /// When the blockers were read, on the store's clock.
    pub looked_at: Moment,
}

/// Why a lease cannot be renewed, released or changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotCurrent {
    /// There is no such lease: it was released, lost or never there.
    #[error("{0} is not held")]
    Unknown(LeaseId),
    /// Somebody else's token is current.
    #[error("token {given} of {id} is not current, {current} is")]
    Token {
        /// The lease.
        id: LeaseId,
        /// The token that was named.
        given: Token,
        /// The token that it has.
        current: Token,
    },
    /// Its time is up.
    #[error("{0} has expired")]
    Expired(LeaseId),
    /// It was revoked: its holder has to release it.
    #[error("{0} was revoked")]
    Revoked(LeaseId),
    /// A copy of its holder, on a cloned machine, renews the same session.
    #[error("another machine holds {0} with the same session")]
    SessionTaken(LeaseId),
    /// The store that several machines share could not be reached in time to renew the session.
    #[error("the session of {0} could not be renewed in time")]
    SessionLapsed(LeaseId),
    /// The caller is neither its owner nor a process of its family, and does not name its token.
    #[error("{id} belongs to {owner}")]
    NotTheOwner {
        /// The lease.
        id: LeaseId,
        /// Whose it is.
        owner: Owner,
    },
    /// There is no such ticket: it was granted, given up or never there.
    #[error("{} is not in line", .0.as_ticket())]
    NotInLine(LeaseId),
    /// The caller is neither the owner of a ticket nor a process of its family.
    #[error("{} belongs to {owner}", id.as_ticket())]
    NotTheWaiter {
        /// The ticket.
        id: LeaseId,
        /// Whose it is.
        owner: Owner,
    },
}
