//! A lease that is held: renewed while it is needed, told of its loss, released on drop.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::lease::{NotCurrent, Outcome};
use lockkeeper_core::record::Lease;

use super::{Keeper, KeeperError, locked};
use crate::engine::Engine;
use crate::store::StoreError;

/// A held lease. Dropping it releases it.
///
/// It stays held while this process lives, and is lost only when a person breaks it, or when its TTL runs out
/// under a contract that lets go. Whoever must not go on without it asks [`Guard::is_lost`] before each step
/// that cannot be undone, or has [`Guard::on_lost`] stop the work.
///
/// ```
/// # use std::time::Duration;
/// # use lockkeeper::Keeper;
/// # let folder = tempfile::tempdir()?;
/// # let keeper = Keeper::open(folder.path())?;
/// let mut guard = keeper.lock("deploy").shared().ttl(Duration::from_secs(30)).acquire()?;
/// guard.on_lost(|why| eprintln!("stop the deployment: {why}"))?;
/// let before = guard.token();
/// guard.upgrade()?; // exclusive now, with a newer token
/// assert!(guard.token() > before);
/// guard.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a guard that is dropped at once protects nothing"]
pub struct Guard {
    keeper: Keeper,
    held: Arc<Held>,
    /// Who took it.
    process: u32,
}

/// What a guard and the thread that looks after it share.
pub(super) struct Held {
    id: LeaseId,
    /// Taken around every call that compares tokens: an upgrade changes the store's before it changes ours, and
    /// who looked in between would see the lease as lost. Callbacks are run without it.
    turn: Mutex<()>,
    state: Mutex<State>,
    lost: Condvar,
}

struct State {
    lease: Lease,
    loss: Option<NotCurrent>,
    callbacks: Vec<Callback>,
    renewed_at: Instant,
    released: bool,
}

type Callback = Box<dyn FnOnce(&NotCurrent) + Send>;

impl Guard {
    pub(super) fn new(keeper: &Keeper, lease: Lease) -> Result<Self, KeeperError> {
        let (id, renews) = (lease.id, lease.claim.ttl.is_some());
        let (loss, callbacks, renewed_at) = (None, Vec::new(), Instant::now());
        let state = State { lease, loss, callbacks, renewed_at, released: false };
        let held =
            Arc::new(Held { id, turn: Mutex::new(()), state: Mutex::new(state), lost: Condvar::new() });
        let guard = Self { keeper: keeper.clone(), held, process: std::process::id() };
        if renews {
            keeper.sentinel()?.look_after(&guard.held);
        }
        Ok(guard)
    }

    /// The lease as it was last seen.
    pub fn lease(&self) -> Lease {
        locked(&self.held.state).lease.clone()
    }

    /// The lease's id.
    pub fn id(&self) -> LeaseId {
        self.held.id
    }

    /// The fencing number, to be checked by what the lease protects.
    pub fn token(&self) -> Token {
        locked(&self.held.state).lease.token
    }

    /// Asks the store whether the lease is gone.
    pub fn is_lost(&self) -> Result<bool, StoreError> {
        self.held.check(self.keeper.engine())
    }

    /// Calls back once when the lease is lost, from another thread; at once if it is lost already.
    pub fn on_lost(&self, callback: impl FnOnce(&NotCurrent) + Send + 'static) -> Result<(), KeeperError> {
        locked(&self.held.state).callbacks.push(Box::new(callback));
        self.keeper.sentinel()?.look_after(&self.held);
        // It may have been lost before anybody listened.
        self.held.check(self.keeper.engine())?;
        self.held.tell();
        Ok(())
    }

    /// Sleeps until the lease is lost; false when it is still held after `span`.
    pub fn wait_until_lost(&self, span: Duration) -> Result<bool, KeeperError> {
        self.keeper.sentinel()?.look_after(&self.held);
        if self.held.check(self.keeper.engine())? {
            return Ok(true);
        }
        let state = locked(&self.held.state);
        let waited = self.held.lost.wait_timeout_while(state, span, |state| state.loss.is_none());
        Ok(waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.loss.is_some())
    }

    /// Renews the lease now.
    pub fn renew(&self) -> Result<(), KeeperError> {
        self.held.renew(self.keeper.engine())?.map_err(KeeperError::Lost)
    }

    /// Makes a shared lease exclusive; on failure it stays shared.
    pub fn upgrade(&mut self) -> Result<(), KeeperError> {
        let _turn = locked(&self.held.turn);
        let token = self.token();
        match self.keeper.engine().upgrade(self.held.id, Some(token), None)?? {
            Outcome::Granted(grant) => {
                locked(&self.held.state).lease = grant.lease;
                Ok(())
            }
            Outcome::Held(blockers) => Err(KeeperError::Held { blockers }),
            Outcome::Deadlock(links) => Err(KeeperError::Deadlock { links }),
            Outcome::Waiting(_) | Outcome::Gone => Err(KeeperError::TicketRemoved),
        }
    }

    /// Makes an exclusive lease shared, and lets in whoever waits to share it.
    pub fn downgrade(&mut self) -> Result<(), KeeperError> {
        let _turn = locked(&self.held.turn);
        let lease = self.keeper.engine().downgrade(self.held.id, Some(self.token()))??;
        locked(&self.held.state).lease = lease;
        Ok(())
    }

    /// Releases the lease and tells whether it was still held.
    pub fn release(self) -> Result<(), KeeperError> {
        let _turn = locked(&self.held.turn);
        let lease = self.lease();
        locked(&self.held.state).released = true;
        self.keeper.engine().release(lease.id, Some(lease.token))??;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (lease, released) = {
            let mut state = locked(&self.held.state);
            (state.lease.clone(), std::mem::replace(&mut state.released, true))
        };
        // A forked child has a copy of the guard, but the lease is its parent's.
        let forked = self.process != std::process::id();
        if !released && !forked {
            // If the store cannot be written, the end of this process tells the others all the same.
            let _ = self.keeper.engine().release(lease.id, Some(lease.token));
        }
    }
}

impl Held {
    /// Looks whether the lease is still ours, and remembers when it is not.
    pub(super) fn check(&self, engine: &Engine) -> Result<bool, StoreError> {
        let _turn = locked(&self.turn);
        let token = {
            let state = locked(&self.state);
            if state.loss.is_some() || state.released {
                return Ok(state.loss.is_some());
            }
            state.lease.token
        };
        let loss = engine.loss(self.id, token)?;
        Ok(loss.is_some_and(|loss| self.lose(loss)))
    }

    /// Renews the lease, or remembers that it is lost.
    pub(super) fn renew(&self, engine: &Engine) -> Result<Result<(), NotCurrent>, StoreError> {
        let _turn = locked(&self.turn);
        let token = locked(&self.state).lease.token;
        match engine.renew(self.id, Some(token), None)? {
            Ok(lease) => {
                let mut state = locked(&self.state);
                state.lease = lease;
                state.renewed_at = Instant::now();
                Ok(Ok(()))
            }
            Err(loss) => {
                self.lose(loss.clone());
                Ok(Err(loss))
            }
        }
    }

    /// When it is to be renewed next: three times within its TTL. None when it needs no renewal.
    pub(super) fn renewal_due(&self) -> Option<Instant> {
        let state = locked(&self.state);
        let needed = state.loss.is_none() && !state.released;
        state.lease.claim.ttl.filter(|_| needed).map(|ttl| state.renewed_at + ttl.get() / 3)
    }

    /// Runs the callbacks if the lease is lost.
    pub(super) fn tell(&self) {
        let (loss, callbacks) = {
            let mut state = locked(&self.state);
            let Some(loss) = state.loss.clone() else { return };
            (loss, std::mem::take(&mut state.callbacks))
        };
        for callback in callbacks {
            // The panic was told by its hook; this thread has other guards to look after.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| callback(&loss)));
        }
    }

    /// Remembers the loss, unless the lease was released here meanwhile.
    fn lose(&self, loss: NotCurrent) -> bool {
        let mut state = locked(&self.state);
        if state.released {
            return false;
        }
        state.loss.get_or_insert(loss);
        self.lost.notify_all();
        true
    }
}
