//! `Guard`: a held lock. It is renewed while it is needed and released on drop.

#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::Outcome;
use lockkeeper_core::record::Lease;
use lockkeeper_engine::Engine;

use super::blocker::views;
use super::{Error, Keeper, Loss, locked};

/// A fencing token. A later grant has a larger token, also after a crash.
///
/// The protected system stores the largest token that it saw and refuses smaller ones.
///
/// ```
/// # use lockkeeper::Keeper;
/// # let folder = tempfile::tempdir()?;
/// # let keeper = Keeper::open(folder.path())?;
/// let first = keeper.lock("db").acquire()?.token();
/// let second = keeper.lock("db").acquire()?.token();
/// assert!(second > first && second.get() > first.get());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A held lock. Dropping it releases the lock.
///
/// The lock stays held while this process lives. It is lost only if a person breaks it, if its TTL ends under a
/// [`Contract`](super::Contract) that lets it go, or if the server of a store of several machines cannot be reached for long. Call [`is_lost`](Self::is_lost) before each step that cannot be undone, or let
/// [`on_lost`](Self::on_lost) stop the work.
///
/// After a fork the lock belongs to the parent only.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::Keeper;
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let mut guard = keeper.lock("deploy").shared().ttl(Duration::from_secs(30)).acquire()?;
/// guard.on_lost(|loss| eprintln!("stop the deployment: {loss}"))?;
/// let before = guard.token();
/// guard.try_upgrade()?; // exclusive now, with a larger token
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

/// How long before the end of its session a lease counts as lost, at most.
const LONGEST_NOTICE: Duration = Duration::from_secs(10);

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
    loss: Option<Loss>,
    callbacks: Vec<Callback>,
    renewed_at: Instant,
    released: bool,
}

type Callback = Box<dyn FnOnce(Loss) + Send>;

impl Guard {
    pub(super) fn new(keeper: Keeper, lease: Lease) -> Result<Self, Error> {
        let (id, renews) = (lease.id, lease.claim.ttl.is_some() || lease.claim.session().is_some());
        let (loss, callbacks, renewed_at) = (None, Vec::new(), Instant::now());
        let state = State { lease, loss, callbacks, renewed_at, released: false };
        let held =
            Arc::new(Held { id, turn: Mutex::new(()), state: Mutex::new(state), lost: Condvar::new() });
        let guard = Self { keeper, held, process: std::process::id() };
        if renews {
            guard.keeper.monitor()?.watch(&guard.held);
        }
        Ok(guard)
    }

    /// The id of the lock, such as `L42`, as `lockkeeper locks` shows it.
    pub fn id(&self) -> String {
        self.held.id.to_string()
    }

    /// The owner of the lock, as `kind:id`.
    pub fn owner(&self) -> String {
        self.lease().claim.owner.to_string()
    }

    /// The fencing token, to be checked by the system that the lock protects.
    pub fn token(&self) -> Token {
        Token(self.current_token().0)
    }

    /// Asks the store whether the lock is lost.
    pub fn is_lost(&self) -> Result<bool, Error> {
        self.held.check(self.keeper.engine())
    }

    /// Calls back once when the lock is lost, from another thread. Calls back at once if it is lost already.
    pub fn on_lost(&self, callback: impl FnOnce(Loss) + Send + 'static) -> Result<(), Error> {
        locked(&self.held.state).callbacks.push(Box::new(callback));
        self.keeper.monitor()?.watch(&self.held);
        // It may have been lost before the monitor watched it.
        self.held.check(self.keeper.engine())?;
        self.held.run_callbacks();
        Ok(())
    }

    /// Waits until the lock is lost, at most this long. Returns whether it is lost.
    pub fn wait_until_lost(&self, limit: Duration) -> Result<bool, Error> {
        self.keeper.monitor()?.watch(&self.held);
        if self.held.check(self.keeper.engine())? {
            return Ok(true);
        }
        let state = locked(&self.held.state);
        let waited = self.held.lost.wait_timeout_while(state, limit, |state| state.loss.is_none());
        Ok(waited.unwrap_or_else(PoisonError::into_inner).0.loss.is_some())
    }

    /// Makes a shared lock exclusive, with a larger token. Never waits: if others share it, it stays shared, and this fails with
    /// [`Error::Held`].
    pub fn try_upgrade(&mut self) -> Result<(), Error> {
        let _turn = locked(&self.held.turn);
        let engine = self.keeper.engine();
        let upgraded =
            engine.upgrade(self.held.id, Some(self.current_token()), None).map_err(Error::store)?;
        match upgraded.map_err(|error| Error::lost(&error))? {
            Outcome::Granted(grant) => {
                locked(&self.held.state).lease = grant.lease;
                Ok(())
            }
            Outcome::Held(blockers) => Err(Error::Held { blockers: views(&self.keeper, &blockers)? }),
            Outcome::Deadlock(links) => Err(Error::deadlock(links)),
            Outcome::Waiting(_) | Outcome::Gone => Err(Error::TicketRemoved),
        }
    }

    /// Makes an exclusive lock shared. Waiters that want to share it are granted it.
    pub fn downgrade(&mut self) -> Result<(), Error> {
        let _turn = locked(&self.held.turn);
        let downgraded = self.keeper.engine().downgrade(self.held.id, Some(self.current_token()));
        locked(&self.held.state).lease =
            downgraded.map_err(Error::store)?.map_err(|error| Error::lost(&error))?;
        Ok(())
    }

    /// Releases the lock. Fails with [`Error::Lost`] if it was lost before.
    pub fn release(self) -> Result<(), Error> {
        let _turn = locked(&self.held.turn);
        // If the store fails here, the drop tries again.
        let released = self.keeper.engine().release(self.held.id, Some(self.current_token()));
        let released = released.map_err(Error::store)?;
        locked(&self.held.state).released = true;
        released.map(|_| ()).map_err(|error| Error::lost(&error))
    }

    /// The lease as it was last read.
    fn lease(&self) -> Lease {
        locked(&self.held.state).lease.clone()
    }

    fn current_token(&self) -> lockkeeper_core::id::Token {
        locked(&self.held.state).lease.token
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lease = self.lease();
        f.debug_struct("Guard")
            .field("id", &format_args!("{}", lease.id))
            .field("owner", &format_args!("{}", lease.claim.owner))
            .field("token", &lease.token.0)
            .finish_non_exhaustive()
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
    /// Looks whether the session of the lease is over, or will be soon, without asking the store. Remembers a loss.
    pub(super) fn check_session(&self, engine: &Engine) -> bool {
        let is_held = {
            let state = locked(&self.state);
            state.loss.is_none() && !state.released
        };
        let loss = is_held.then(|| engine.session_loss(self.id, self.notice())).flatten();
        loss.is_some_and(|loss| self.lose(Loss::new(&loss)))
    }

    /// How long before the end of its session, or of a shorter TTL, a lease counts as lost: a sixth of it, at most 10 seconds.
    fn notice(&self) -> Duration {
        let claim = &locked(&self.state).lease.claim;
        let span = claim.session().into_iter().chain(claim.ttl).min();
        span.map_or(Duration::ZERO, |span| (span.get() / 6).min(LONGEST_NOTICE))
    }

    /// When to look at the session again; none if there is none.
    pub(super) fn session_due(&self, engine: &Engine) -> Option<Instant> {
        let due = engine.session_due(self.id, self.notice())?;
        Some(Instant::now() + due)
    }

    /// Reads whether the lease is still held. Remembers a loss.
    pub(super) fn check(&self, engine: &Engine) -> Result<bool, Error> {
        if self.check_session(engine) {
            return Ok(true);
        }
        let _turn = locked(&self.turn);
        let token = {
            let state = locked(&self.state);
            if state.loss.is_some() || state.released {
                return Ok(state.loss.is_some());
            }
            state.lease.token
        };
        let loss = engine.loss(self.id, token).map_err(Error::store)?;
        Ok(loss.is_some_and(|loss| self.lose(Loss::new(&loss))))
    }

    /// Renews the lease. Remembers a loss.
    pub(super) fn renew(&self, engine: &Engine) -> Result<(), Error> {
        let _turn = locked(&self.turn);
        let token = locked(&self.state).lease.token;
        match engine.renew(self.id, Some(token), None).map_err(Error::store)? {
            Ok(lease) => {
                let mut state = locked(&self.state);
                state.lease = lease;
                state.renewed_at = Instant::now();
            }
            Err(loss) => {
                self.lose(Loss::new(&loss));
            }
        }
        Ok(())
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
            let Some(loss) = state.loss else { return };
            (loss, std::mem::take(&mut state.callbacks))
        };
        for callback in callbacks {
            // The panic hook has reported it. This thread has other guards to watch.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| callback(loss)));
        }
    }

    /// Remembers a loss, unless this process has released the lease meanwhile.
    fn lose(&self, loss: Loss) -> bool {
        let mut state = locked(&self.state);
        if state.released {
            return false;
        }
        state.loss.get_or_insert(loss);
        self.lost.notify_all();
        true
    }
}
