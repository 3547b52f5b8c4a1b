//! `LockBuilder`: the builder of a request for a lease.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::lease::{Outcome, Request, WaitTerms};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;

use super::{Guard, Keeper, KeeperError};
use lockkeeper_engine::{Acquired, AtEnd, WaitOptions};

/// How long the ticket of this process could outlive it. The kernel reports its end sooner.
const STAYS: Duration = Duration::from_secs(60);
/// How long an overdue holder gets to stop by itself.
const GRACE: Duration = Duration::from_secs(10);

/// Builds a request for a lease. Nothing happens before [`LockBuilder::acquire`].
#[must_use = "a lock builder does nothing until `acquire` is called"]
pub struct LockBuilder<'k> {
    keeper: &'k Keeper,
    targets: Vec<Result<Target, KeeperError>>,
    mode: Mode,
    owner: Option<Owner>,
    reason: Option<String>,
    ttl: Option<Duration>,
    contract: Contract,
    priority: i32,
    wait: Wait,
    under: Vec<LeaseId>,
}

#[derive(Clone, Copy)]
enum Wait {
    No,
    For(Duration),
    Forever,
}

impl<'k> LockBuilder<'k> {
    pub(super) fn new(keeper: &'k Keeper) -> Self {
        Self {
            keeper,
            targets: Vec::new(),
            mode: Mode::Exclusive,
            owner: None,
            reason: None,
            ttl: None,
            contract: Contract::Strict,
            priority: 0,
            wait: Wait::No,
            under: Vec::new(),
        }
    }

    /// Adds a name.
    pub fn name(mut self, name: &str) -> Self {
        self.targets.push(name.parse().map(Target::Name).map_err(KeeperError::Id));
        self
    }

    /// Adds a pattern over paths, relative to the repository's root.
    pub fn path(mut self, pattern: &str) -> Self {
        self.targets.push(pattern.parse().map(Target::Path).map_err(KeeperError::Pattern));
        self
    }

    /// Shares all names and paths with other holders that share them.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Shares the names with at most `slots` holders, this one included.
    pub fn slots(mut self, slots: u32) -> Self {
        // `acquire` refuses zero.
        self.mode = NonZeroU32::new(slots).map_or(Mode::Shared, Mode::Slots);
        if slots == 0 {
            self.targets.push(Err(KeeperError::Invalid("a name needs at least one slot")));
        }
        self
    }

    /// Holds for this owner. Leases of one owner do not exclude each other. By default every lease has an owner of its own.
    pub fn owner(mut self, owner: &str) -> Self {
        match owner.parse() {
            Ok(owner) => self.owner = Some(owner),
            Err(error) => self.targets.push(Err(KeeperError::Id(error))),
        }
        self
    }

    /// Says why, for people.
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self
    }

    /// Sets a TTL. The guard renews the lease three times within it.
    ///
    /// While this process lives it keeps its lease, also if it is not renewed: see [`LockBuilder::contract`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// What happens to the lease if it is not renewed in time while this process lives.
    pub fn contract(mut self, contract: Contract) -> Self {
        self.contract = contract;
        self
    }

    /// How urgent it is, from −100 to 100.
    pub fn priority(mut self, level: i32) -> Self {
        self.priority = level;
        self
    }

    /// Waits this long for it.
    pub fn wait(mut self, span: Duration) -> Self {
        self.wait = Wait::For(span);
        self
    }

    /// Waits for it without a limit.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Says that this process runs under a lease. To wait for that lease is then refused as a deadlock.
    pub fn under(mut self, lease: LeaseId) -> Self {
        self.under.push(lease);
        self
    }

    /// Acquires the lease.
    pub fn acquire(self) -> Result<Guard, KeeperError> {
        let (keeper, wait) = (self.keeper, self.wait);
        let (engine, mut request) = (keeper.engine(), self.request()?);
        let until = match wait {
            Wait::No => return guard(keeper, engine.acquire(&request)?.into()),
            Wait::For(span) => Instant::now().checked_add(span),
            Wait::Forever => None,
        };
        // A waker costs something: the first one is created when there is somebody to wait for.
        let waker = match keeper.idle_waker() {
            Some(waker) => waker,
            None => match engine.acquire(&request)? {
                granted @ Outcome::Granted(_) => return guard(keeper, granted.into()),
                Outcome::Held(_) | Outcome::Waiting(_) | Outcome::Deadlock(_) | Outcome::Gone => {
                    engine.store().waker()?
                }
            },
        };
        request.wait = Some(WaitTerms { waker: Some(waker.id()), stays: Ttl::new(STAYS)? });
        let options = WaitOptions { until, interrupts: &[], grace: GRACE, tick: None };
        let outcome = engine.acquire(&request)?;
        let acquired = engine.follow(outcome, Some(&*waker), &options, AtEnd::GiveUp, &mut |_| {});
        keeper.return_waker(waker);
        guard(keeper, acquired?)
    }

    fn request(self) -> Result<Request, KeeperError> {
        let mode = self.mode;
        let mut resources: Vec<Resource> = Vec::new();
        for target in self.targets {
            let target = target?;
            if matches!((&target, mode), (Target::Path(_), Mode::Slots(_))) {
                return Err(KeeperError::Invalid("slots are for names, not for paths"));
            }
            let resource = Resource { target, mode };
            if !resources.contains(&resource) {
                resources.push(resource);
            }
        }
        if resources.is_empty() {
            return Err(KeeperError::Invalid("a lock needs a name or a path"));
        }
        let ttl = self.ttl.map(Ttl::new).transpose()?;
        if ttl.is_none() && self.contract != Contract::Strict {
            return Err(KeeperError::Invalid("this contract needs a TTL"));
        }
        let owner = match self.owner {
            Some(owner) => owner,
            None => self.keeper.new_owner()?,
        };
        let proof = self.keeper.resident_proof()?;
        let claim = Claim {
            owner,
            resources,
            proof,
            contract: self.contract,
            ttl,
            reason: self.reason,
            ticket: None,
        };
        let priority = Priority::new(self.priority)
            .map_err(|_| KeeperError::Invalid("a priority lies between -100 and 100"))?;
        Ok(Request { claim, priority, under: self.under, wait: None, join: false })
    }
}

fn guard(keeper: &Keeper, acquired: Acquired) -> Result<Guard, KeeperError> {
    match acquired {
        Acquired::Granted(grant) => Guard::new(keeper, grant.lease),
        Acquired::Held(blockers) => Err(KeeperError::Held { blockers }),
        Acquired::Waiting(waiting) | Acquired::Interrupted(waiting) => {
            Err(KeeperError::Held { blockers: waiting.blockers })
        }
        Acquired::Deadlock(links) => Err(KeeperError::Deadlock { links }),
        Acquired::Gone => Err(KeeperError::TicketRemoved),
    }
}
