//! `LeaseStore`: conditional commit over leases and tickets. This page is the contract that every backend fulfils.
//!
//! A store does two things. It commits changes if the records that the decision read are unchanged. It wakes processes that
//! wait for a change. It knows no lock rules: those are in `lockkeeper-core`, and they are the same on every backend.
//!
//! A decision runs like this:
//!
//! 1. [`LeaseStore::begin`] opens a [`Transaction`], which shows the [`Records`] of one moment.
//! 2. The rules read records, draw numbers, and produce a list of changes and a list of effects.
//! 3. [`Transaction::commit`] commits all changes, then carries out the effects, and returns [`Commit::Committed`]. Or a record
//!    that the decision read has changed: then it does nothing and returns [`Commit::Changed`], and the caller starts again
//!    with step 1.
//!
//! A backend may lock in step 1, so that step 3 never finds a change (SQLite does). Or it reads without a lock, remembers what
//! it showed, and compares versions in step 3 (stores on another machine do). So a decision may run more than once. Only the
//! run that was committed counts.
//!
//! # Contract
//!
//! - **Serializable.** The changes are committed only if everything that the transaction showed is still so. That includes what
//!   was not there: a record that was added to a key range that the transaction has read is a change. A store may also return
//!   `Changed` without need, as long as some transaction makes progress.
//! - **All or nothing.** Other users see all changes of a commit or none, also if a process dies at any point. A dropped
//!   transaction changes nothing.
//! - **Strict changes.** A change that does not fit the records (see [`Change`]) fails the commit with
//!   [`StoreError::Mismatch`]. Changes apply in the order of the list.
//! - **Numbers.** [`Records::next_number`] returns a number that is larger than every number that the store returned before, also
//!   if the transaction was dropped, the process was killed, or the machine lost power. A snapshot returns no numbers.
//!   A backend may commit decisions about different records in another order than it has drawn their numbers. Of two commits
//!   that concern the same record or key range, the later one has the larger numbers, if it drew them after it had read.
//! - **Time.** [`Records::now`] is the store's clock. It is one clock for all users, and it never goes back: a transaction never
//!   reads a moment in a record that is later than its own `now`. Every moment in a record comes from this clock.
//! - **Wake-ups.** A process that creates a waker, then reads, then sleeps on the waker is woken by every [`Effect::Wake`] that
//!   was committed after the read. A wake-up may come without a reason. It may come late, if the process that committed was
//!   stopped before it could send it: a sleeper also looks by itself now and then.
//! - **Unknown outcome.** If a store cannot tell whether it committed, it fails with [`StoreError::InDoubt`]. A store that cannot
//!   be reached fails with [`StoreError::Unreachable`], and has changed nothing.
//!
//! The cases in `tests/conformance/` hold every backend to all of it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::records::{Change, Effect, Records};
use lockkeeper_core::time::Moment;

use super::StoreError;

/// A backend that stores leases and tickets.
pub trait LeaseStore: Send + Sync {
    /// Starts a decision.
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError>;

    /// The records of one moment, read-only. A snapshot blocks nobody, and nobody blocks it.
    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError>;

    /// Creates a waker with a new id.
    fn waker(&self) -> Result<Box<dyn Waker>, StoreError>;

    /// Creates the waker with this id.
    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError>;

    /// Whether this process can only read the store.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Makes all later numbers larger than this one. A migration calls it on the new store, so that its tokens are larger than
    /// those of the old store. False if the backend cannot change how the server draws numbers.
    fn raise_numbers(&self, _above: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Removes the wakers of dead processes that no record names. Stores whose wakers end with their process do nothing.
    fn sweep(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Looks for damage without changing anything. `thorough` checks every record and every key.
    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        let _ = thorough;
        Ok(Examination::default())
    }
}

/// The records that one decision reads, and the conditional commit that ends it. Dropping it changes nothing.
pub trait Transaction: Records<StoreError> {
    /// Commits all changes and then carries out the effects, unless a record that was read has changed.
    ///
    /// A waker that an effect names and whose ticket a change grants may get the lease with its wake-up: see [`Waker::receive`].
    fn commit(self: Box<Self>, changes: Vec<Change>, effects: &[Effect]) -> Result<Commit, StoreError>;
}

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Commit {
    /// All changes are committed.
    Committed,
    /// A record that the transaction read has changed. Nothing was committed: read again and decide again.
    Changed,
}

/// A descriptor that a process sleeps on until another process wakes it. Dropping it removes it.
pub trait Waker: Send {
    /// The id by which records and effects name it.
    fn id(&self) -> WakerId;

    /// Readable after a wake-up.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Clears all wake-ups so far. Returns the lease that the last wake-up carried, if any.
    fn receive(&self) -> Option<Granted>;
}

/// The granted lease that a wake-up carries. The waiter knows the rest from its ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The id of the ticket, which is now the id of the lease.
    pub id: LeaseId,
    /// The token of the lease.
    pub token: Token,
    /// When it was granted.
    pub at: Moment,
}

impl Granted {
    /// The leases that these changes grant to tickets on which a process sleeps, by the waker of that process.
    pub(super) fn among(changes: &[Change]) -> Vec<(WakerId, Self)> {
        let granted = changes.iter().filter_map(|change| {
            let Change::Grant(ticket, lease) = change else { return None };
            let granted = Self { id: lease.id, token: lease.token, at: lease.acquired_at };
            ticket.waker.map(|waker| (waker, granted))
        });
        granted.collect()
    }

    /// The lease itself. Nothing about it has changed since the grant.
    pub fn lease(self, claim: Arc<Claim>) -> Lease {
        let Self { id, token, at } = self;
        Lease { id, token, claim, acquired_at: at, heartbeat_at: at, pickup_by: None, revoked: false }
    }
}

/// What a store says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// The name and version of the backend; empty if it has nothing to say.
    pub backend: String,
    /// The version of the tables, if there are any.
    pub schema: Option<i64>,
    /// What is wrong, one sentence each.
    pub flaws: Vec<String>,
    /// How the store may lose leases although its data are sound.
    pub risks: Vec<Risk>,
}

/// How a store may lose leases, by the settings of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Risk {
    /// It keeps nothing on disk.
    Forgets,
    /// It removes keys when its memory is full.
    Evicts {
        /// The setting.
        policy: String,
    },
    /// Replication is asynchronous. A replica that is promoted may lack the latest leases.
    Replicas {
        /// How many.
        count: usize,
    },
}
