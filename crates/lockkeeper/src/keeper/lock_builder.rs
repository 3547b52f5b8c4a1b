//! `LockBuilder`: the request for a lock.

use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::lease::{AcquireRequest, Outcome};
use lockkeeper_core::liveness;
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::{Acquired, AtEnd, WaitOptions};

use super::blocker::views;
use super::{Error, Guard, Keeper};

/// The TTL of the ticket of this process. If the process dies, the kernel reports it sooner.
const STAYS: Duration = Duration::from_secs(60);
/// How long an overdue holder has to stop before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// A request for a lock. Nothing happens before [`acquire`](Self::acquire) or [`try_acquire`](Self::try_acquire).
///
/// Names and patterns are checked then, too.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::Keeper;
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let guard = keeper
///     .lock("release")
///     .path("CHANGELOG.md")
///     .reason("release 1.2")
///     .priority(10)
///     .timeout(Duration::from_secs(30))
///     .acquire()?;
/// # drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a lock builder does nothing until `acquire` or `try_acquire` is called"]
pub struct LockBuilder {
    keeper: Keeper,
    targets: Vec<Target>,
    mode: Mode,
    owner: Option<Owner>,
    reason: Option<String>,
    ttl: Option<Duration>,
    contract: Contract,
    priority: i32,
    timeout: Option<Duration>,
    under: Vec<LeaseId>,
    /// The first setting that was not valid.
    invalid: Option<Error>,
}

/// What happens to a lock with a TTL if the holder does not renew it in time but lives.
///
/// The guard renews by itself, so this matters only if the whole process is stopped for longer than the TTL, for example by
/// Ctrl-Z or a suspended machine. A holder that died loses the lock at once under every contract.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::{Contract, Keeper};
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let guard = keeper.lock("db").ttl(Duration::from_secs(30)).contract(Contract::Lease).acquire()?;
/// # drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contract {
    /// The holder keeps the lock while it lives.
    #[default]
    Strict,
    /// Another owner may take the lock. The protected system has to check the fencing token.
    Lease,
    /// The next owner kills the process of the holder, and then takes the lock.
    Kill,
}

impl Contract {
    fn as_core(self) -> liveness::Contract {
        match self {
            Self::Strict => liveness::Contract::Strict,
            Self::Lease => liveness::Contract::Lease,
            Self::Kill => liveness::Contract::Kill,
        }
    }
}

impl LockBuilder {
    pub(super) fn new(keeper: Keeper) -> Self {
        Self {
            keeper,
            targets: Vec::new(),
            mode: Mode::Exclusive,
            owner: None,
            reason: None,
            ttl: None,
            contract: Contract::Strict,
            priority: 0,
            timeout: None,
            under: Vec::new(),
            invalid: None,
        }
    }

    /// Adds a name, such as `db` or `git/index`.
    pub fn name(mut self, name: &str) -> Self {
        match name.parse() {
            Ok(name) => self.targets.push(Target::Name(name)),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Adds a pattern over paths, such as `src/**/*.rs`. Paths are relative to the root of the repository.
    pub fn path(mut self, pattern: &str) -> Self {
        match pattern.parse() {
            Ok(pattern) => self.targets.push(Target::Path(pattern)),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Shares all names and paths with other holders that share them.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Shares the names with at most `slots` holders, this one included. Paths have no slots.
    pub fn slots(mut self, slots: u32) -> Self {
        match NonZeroU32::new(slots) {
            Some(slots) => self.mode = Mode::Slots(slots),
            None => self.refuse("a name needs at least one slot"),
        }
        self
    }

    /// Sets the owner, as `kind:id`. By default every lock has an owner of its own.
    ///
    /// Locks of one owner never exclude each other. So an owner must be one worker, for example one thread.
    pub fn owner(mut self, owner: &str) -> Self {
        match owner.parse() {
            Ok(owner) => self.owner = Some(owner),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Says why, for people. `lockkeeper locks` shows it.
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self
    }

    /// Sets a TTL. The guard renews the lock three times within it. See [`Contract`] for what happens if it cannot.
    ///
    /// Without a TTL, and with [`Contract::Strict`], the lock lasts as long as this process.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets what happens if the TTL ends while this process lives. Needs a TTL.
    pub fn contract(mut self, contract: Contract) -> Self {
        self.contract = contract;
        self
    }

    /// Sets the priority of the wait, from −100 to 100. One step is worth one minute of waiting.
    pub fn priority(mut self, level: i32) -> Self {
        self.priority = level;
        self
    }

    /// Limits how long [`acquire`](Self::acquire) waits. After that it fails with [`Error::Timeout`].
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Says that the caller holds the lock with this id while it waits, so that a deadlock through it is detected.
    ///
    /// Deadlocks are detected between owners. Two locks with different owners, as they have by default, belong together only
    /// if the second names the first here. The id is that of [`Guard::id`], or `LOCKKEEPER_LEASE` below `lockkeeper exec`.
    pub fn under(mut self, id: &str) -> Self {
        match id.parse() {
            Ok(id) => self.under.push(id),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Acquires the lock if nothing blocks it. Never waits: fails with [`Error::Held`] otherwise, whatever the timeout is.
    pub fn try_acquire(self) -> Result<Guard, Error> {
        let (keeper, request, _) = self.finish()?;
        match keeper.engine().acquire(&request).map_err(Error::store)? {
            Outcome::Granted(grant) => Guard::new(keeper, grant.lease),
            Outcome::Held(blockers) => Err(Error::Held { blockers: views(&keeper, &blockers)? }),
            Outcome::Deadlock(links) => Err(Error::deadlock(links)),
            Outcome::Waiting(_) | Outcome::Gone => Err(Error::TicketRemoved),
        }
    }

    /// Acquires the lock. Waits in line for it, without a limit or up to the [`timeout`](Self::timeout).
    ///
    /// Fails with [`Error::Deadlock`] if the wait would never end. A failed call leaves nothing in line.
    pub fn acquire(self) -> Result<Guard, Error> {
        self.acquire_until(&[])
    }

    /// Acquires the lock like [`acquire`](Self::acquire), on a blocking thread of tokio.
    ///
    /// It is cancel safe: if the future is dropped, its place in line is given up, and a lock that was granted at the same
    /// moment is released. The guard may be held across `.await`. Its drop writes to the store, which blocks for a moment.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// use lockkeeper::Keeper;
    ///
    /// let keeper = Keeper::open(folder.path())?;
    /// let guard = keeper.lock("db").acquire_async().await?;
    /// println!("token {}", guard.token());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub async fn acquire_async(self) -> Result<Guard, Error> {
        super::wait_task::run(move |cancelled| self.acquire_until(&[cancelled])).await
    }

    /// Acquires the lock. The wait also ends when an interrupt is readable or closed.
    fn acquire_until(self, interrupts: &[BorrowedFd<'_>]) -> Result<Guard, Error> {
        let began = Instant::now();
        let (keeper, request, timeout) = self.finish()?;
        // A timeout beyond the range of the clock is no limit.
        let until = timeout.and_then(|timeout| began.checked_add(timeout));
        let options = WaitOptions { until, interrupts, grace: GRACE, tick: None };
        let stays = Ttl::new(STAYS).map_err(Error::invalid)?;
        let acquired = keeper.engine().acquire_and_wait(request, stays, &options, AtEnd::GiveUp, &mut |_| {});
        let timed_out = |blockers: &[_]| {
            Ok::<_, Error>(Error::Timeout { waited: began.elapsed(), blockers: views(&keeper, blockers)? })
        };
        Err(match acquired.map_err(Error::store)? {
            Acquired::Granted(grant) => return Guard::new(keeper, grant.lease),
            Acquired::Held(blockers) => timed_out(&blockers)?,
            // After an interrupt nobody reads the result.
            Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => timed_out(&waiting.blockers)?,
            Acquired::Deadlock(links) => Error::deadlock(links),
            Acquired::Gone => Error::TicketRemoved,
        })
    }

    /// Remembers the first setting that is not valid.
    fn refuse(&mut self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) {
        self.invalid.get_or_insert_with(|| Error::invalid(error));
    }

    /// Checks everything. Returns the request and the timeout.
    fn finish(self) -> Result<(Keeper, AcquireRequest, Option<Duration>), Error> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        let (keeper, mode) = (self.keeper, self.mode);
        let has_path = self.targets.iter().any(|target| matches!(target, Target::Path(_)));
        if has_path && matches!(mode, Mode::Slots(_)) {
            return Err(Error::invalid("slots are for names, not for paths"));
        }
        let mut resources: Vec<Resource> = Vec::new();
        for target in self.targets {
            let resource = Resource { target, mode };
            if !resources.contains(&resource) {
                resources.push(resource);
            }
        }
        let ttl = self.ttl.map(Ttl::new).transpose().map_err(Error::invalid)?;
        if ttl.is_none() && self.contract != Contract::Strict {
            return Err(Error::invalid("this contract needs a TTL"));
        }
        let priority = Priority::new(self.priority).map_err(Error::invalid)?;
        let owner = match self.owner {
            Some(owner) => owner,
            None => keeper.new_owner()?,
        };
        let (proof, contract, reason) = (keeper.resident()?.proof(), self.contract.as_core(), self.reason);
        let claim = Claim { owner, resources, proof, contract, ttl, reason, ticket: None, agent: None };
        let request = AcquireRequest { claim, priority, under: self.under, wait: None, join: false };
        Ok((keeper, request, self.timeout))
    }
}
