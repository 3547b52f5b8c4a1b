//! `Guard`: a held lease. It is renewed while it is needed and released on drop.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::lease::{NotCurrent, Outcome};
use lockkeeper_core::record::Lease;

use super::{Keeper, KeeperError, locked};
use lockkeeper_engine::Engine;
use lockkeeper_store::StoreError;

/// A held lease. Dropping it releases it.
///
/// It stays held while this process lives. It is lost only if a person breaks it, or if its TTL ends under a contract that lets
/// go. Call [`Guard::is_lost`] before each step that cannot be undone, or have [`Guard::on_lost`] stop the work.
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
    /// The id of the process that took it.
    process: u32,
}

/// What a guard and the lease monitor share.
pub(super) struct Held {
    id: LeaseId,
    /// Held around every call that compares tokens: an upgrade changes the token of the store before that of the guard, and
    /// a look in between would see the lease as lost. Callbacks run without it.
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
            keeper.monitor()?.watch(&guard.held);
        }
        Ok(guard)
    }

    /// The lease as it was last read.
    pub fn lease(&self) -> Lease {
        locked(&self.held.state).lease.clone()
    }

    /// The lease's id.
    pub fn id(&self) -> LeaseId {
        self.held.id
    }

    /// The fencing token, to be checked by what the lease protects.
    pub fn token(&self) -> Token {
        locked(&self.held.state).lease.token
    }

    /// Asks the store whether the lease is gone.
    pub fn is_lost(&self) -> Result<bool, StoreError> {
        self.held.check(self.keeper.engine())
    }

    /// Calls back once when the lease is lost, from another thread. Calls back at once if it is lost already.
    pub fn on_lost(&self, callback: impl FnOnce(&NotCurrent) + Send + 'static) -> Result<(), KeeperError> {
        locked(&self.held.state).callbacks.push(Box::new(callback));
        self.keeper.monitor()?.watch(&self.held);
        // It may have been lost before the monitor watched it.
        self.held.check(self.keeper.engine())?;
        self.held.run_callbacks();
        Ok(())
    }

    /// Sleeps until the lease is lost. Returns false if it is still held after `span`.
    pub fn wait_until_lost(&self, span: Duration) -> Result<bool, KeeperError> {
        self.keeper.monitor()?.watch(&self.held);
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

    /// Makes a shared lease exclusive. If that fails, it stays shared.
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

    /// Makes an exclusive lease shared, and grants it to those who wait to share it.
    pub fn downgrade(&mut self) -> Result<(), KeeperError> {
        let _turn = locked(&self.held.turn);
        let lease = self.keeper.engine().downgrade(self.held.id, Some(self.token()))??;
        locked(&self.held.state).lease = lease;
        Ok(())
    }

    /// Releases the lease. Fails if it was lost.
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
            // If the store cannot be written, the exit of this process frees the lease all the same.
            let _ = self.keeper.engine().release(lease.id, Some(lease.token));
        }
    }
}

impl Held {
    /// Reads whether the lease is still held. Remembers a loss.
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

    /// Renews the lease. Remembers a loss.
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

    /// When to renew it next: three times within its TTL. None if it needs no renewal.
    pub(super) fn renewal_due(&self) -> Option<Instant> {
        let state = locked(&self.state);
        let needed = state.loss.is_none() && !state.released;
        state.lease.claim.ttl.filter(|_| needed).map(|ttl| state.renewed_at + ttl.get() / 3)
    }

    /// Runs the callbacks if the lease is lost.
    pub(super) fn run_callbacks(&self) {
        let (loss, callbacks) = {
            let mut state = locked(&self.state);
            let Some(loss) = state.loss.clone() else { return };
            (loss, std::mem::take(&mut state.callbacks))
        };
        for callback in callbacks {
            // The panic hook has reported it. This thread has other guards to watch.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| callback(&loss)));
        }
    }

    /// Remembers a loss, unless this process has released the lease meanwhile.
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
