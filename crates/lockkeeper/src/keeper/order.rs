//! What is wanted, put together step by step.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::lease::{Grant, Outcome, Request, WaitTerms, Waiting};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;

use super::{Guard, Keeper, KeeperError};
use crate::engine::{Patience, Waited};

/// How long a ticket of a process that stays could outlive it; the kernel tells sooner.
const STAYS: Duration = Duration::from_secs(60);
/// How long an overdue holder gets to stop by itself.
const GRACE: Duration = Duration::from_secs(10);

/// An order for a lease; nothing happens before [`Order::acquire`].
#[must_use = "an order does nothing until it is acquired"]
pub struct Order<'k> {
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

impl<'k> Order<'k> {
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
    pub fn and(mut self, name: &str) -> Self {
        self.targets.push(name.parse().map(Target::Name).map_err(KeeperError::Id));
        self
    }

    /// Adds a pattern over paths, relative to the repository's root.
    pub fn path(mut self, pattern: &str) -> Self {
        self.targets.push(pattern.parse().map(Target::Path).map_err(KeeperError::Pattern));
        self
    }

    /// Shares everything in this order with others who share it.
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Shares the names in this order with at most `slots` holders, this one included.
    pub fn slots(mut self, slots: u32) -> Self {
        // Zero is refused when the order is placed.
        self.mode = NonZeroU32::new(slots).map_or(Mode::Shared, Mode::Slots);
        if slots == 0 {
            self.targets.push(Err(KeeperError::Order("a name needs at least one slot")));
        }
        self
    }

    /// Holds for this owner, who does not exclude itself; by default for an owner that nobody else is.
    pub fn owner(mut self, owner: &str) -> Self {
        match owner.parse() {
            Ok(owner) => self.owner = Some(owner),
            Err(error) => self.targets.push(Err(KeeperError::Id(error))),
        }
        self
    }

    /// Tells people why.
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self
    }

    /// Has the guard renew itself, three times within this span.
    ///
    /// A process that lives keeps its lease also without being renewed; see [`Order::contract`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// What becomes of the lease when it is not renewed in time although this process lives.
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

    /// Waits for it as long as it takes.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Says that this process is part of a command that runs under a lease, so that waiting for that lease is
    /// seen to be a deadlock.
    pub fn under(mut self, lease: LeaseId) -> Self {
        self.under.push(lease);
        self
    }

    /// Takes the lease.
    pub fn acquire(self) -> Result<Guard, KeeperError> {
        let (keeper, wait) = (self.keeper, self.wait);
        let mut request = self.request()?;
        let until = match wait {
            Wait::No => return place(keeper, &request)?.guard(keeper),
            Wait::For(span) => Instant::now().checked_add(span),
            Wait::Forever => None,
        };
        // A waker costs something: the first one is made when there is somebody to wait for.
        let waker = match keeper.idle_bell() {
            Some(waker) => waker,
            None => {
                if let placed @ Placed::Granted(_) = place(keeper, &request)? {
                    return placed.guard(keeper);
                }
                keeper.engine().store().waker()?
            }
        };
        request.wait = Some(WaitTerms { waker: Some(waker.id()), stays: Ttl::new(STAYS)? });
        let waiting = match place(keeper, &request)? {
            Placed::Waiting(waiting) => waiting,
            placed @ (Placed::Granted(_) | Placed::Refused(_)) => {
                keeper.return_bell(waker);
                return placed.guard(keeper);
            }
        };
        let ticket = waiting.ticket.clone();
        let patience = Patience { until, interrupts: &[], grace: GRACE, tick: None };
        let waited = keeper.engine().wait(waiting, &*waker, &patience, &mut |_| {});
        let placed = match waited {
            Ok(Waited::Granted(grant)) => Ok(Placed::Granted(grant)),
            Ok(Waited::Gone) => Err(KeeperError::TicketRemoved),
            Ok(Waited::TimedOut(waiting) | Waited::Interrupted(waiting)) => {
                keeper.engine().give_up(&ticket)?;
                Err(KeeperError::Held { blockers: waiting.blockers })
            }
            Err(error) => {
                // The wait failed: the place in line is not to be kept by a process that does not come back.
                let _ = keeper.engine().give_up(&ticket);
                Err(error.into())
            }
        };
        keeper.return_bell(waker);
        placed?.guard(keeper)
    }

    fn request(self) -> Result<Request, KeeperError> {
        let mode = self.mode;
        let mut resources: Vec<Resource> = Vec::new();
        for target in self.targets {
            let target = target?;
            if matches!((&target, mode), (Target::Path(_), Mode::Slots(_))) {
                return Err(KeeperError::Order("slots are for names, not for paths"));
            }
            let resource = Resource { target, mode };
            if !resources.contains(&resource) {
                resources.push(resource);
            }
        }
        if resources.is_empty() {
            return Err(KeeperError::Order("an order needs a name or a path"));
        }
        let ttl = self.ttl.map(Ttl::new).transpose()?;
        if ttl.is_none() && self.contract != Contract::Strict {
            return Err(KeeperError::Order("this contract needs a TTL"));
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
            .map_err(|_| KeeperError::Order("a priority lies between -100 and 100"))?;
        Ok(Request { claim, priority, under: self.under, wait: None, join: false })
    }
}

/// What became of an order that was placed.
enum Placed {
    Granted(Grant),
    Waiting(Waiting),
    Refused(KeeperError),
}

impl Placed {
    fn guard(self, keeper: &Keeper) -> Result<Guard, KeeperError> {
        match self {
            Self::Granted(grant) => Guard::new(keeper, grant.lease),
            Self::Waiting(waiting) => Err(KeeperError::Held { blockers: waiting.blockers }),
            Self::Refused(error) => Err(error),
        }
    }
}

fn place(keeper: &Keeper, request: &Request) -> Result<Placed, KeeperError> {
    Ok(Placed::from(keeper.engine().acquire(request)?))
}

impl From<Outcome> for Placed {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Granted(grant) => Self::Granted(grant),
            Outcome::Waiting(waiting) => Self::Waiting(waiting),
            Outcome::Held(blockers) => Self::Refused(KeeperError::Held { blockers }),
            Outcome::Deadlock(links) => Self::Refused(KeeperError::Deadlock { links }),
            Outcome::Gone => Self::Refused(KeeperError::TicketRemoved),
        }
    }
}
