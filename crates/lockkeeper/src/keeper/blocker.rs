//! `Blocker` and `Link`: who blocks a lock, and who waits for whom in a deadlock.

use std::fmt;
use std::time::{Duration, SystemTime};

use lockkeeper_core::deadlock;
use lockkeeper_core::record::Claim;
use lockkeeper_core::resource::Target;
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting;
use lockkeeper_platform::wall_clock::ClockOffset;

use super::{Error, Keeper};

/// A lock, or a place in line, that blocks another lock.
///
/// ```
/// use lockkeeper::{Error, Keeper};
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let guard = keeper.path("src/**/*.rs").owner("worker:1").reason("rename").acquire()?;
/// let Err(Error::Held { blockers, .. }) = keeper.path("src/api/*").try_acquire() else { panic!() };
/// assert_eq!(blockers[0].owner, "worker:1");
/// assert_eq!(blockers[0].wanted, "src/api/*");
/// assert!(blockers[0].witness.starts_with("src/api/") && blockers[0].witness.ends_with(".rs"));
/// assert_eq!(blockers[0].reason.as_deref(), Some("rename"));
/// # drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocker {
    /// The id of the lock (`L42`) or of the place in line (`T42`), as `lockkeeper locks` shows it.
    pub id: String,
    /// Its owner.
    pub owner: String,
    /// The name or pattern that was asked for.
    pub wanted: String,
    /// The name, or a path that both patterns match.
    pub witness: String,
    /// Since when it is held, or since when its owner waits.
    pub since: SystemTime,
    /// Why its owner wants it.
    pub reason: Option<String>,
    /// Its process, if it belongs to one.
    pub pid: Option<u32>,
    /// False: its owner holds it. True: its owner waits for it and is served earlier.
    pub is_waiting: bool,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_waiting {
            write!(f, "{} is ahead in line for {}", self.owner, self.wanted)?;
        } else {
            write!(f, "{} is held by {}", self.wanted, self.owner)?;
        }
        if self.witness == self.wanted { Ok(()) } else { write!(f, " (both match {})", self.witness) }
    }
}

/// One link of a deadlock: an owner that waits for another.
///
/// ```
/// use lockkeeper::{Error, Keeper};
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let outer = keeper.lock("db").owner("worker:1").acquire()?;
/// // This thread holds `db` and would wait for itself.
/// let Err(Error::Deadlock { cycle, .. }) = keeper.lock("db").under(&outer.id()).acquire() else { panic!() };
/// assert_eq!((cycle[0].wanted.as_str(), cycle[0].holder.as_str()), ("db", "worker:1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// The owner that waits.
    pub waiter: String,
    /// What it waits for: a name, or a path that both patterns match.
    pub wanted: String,
    /// The owner that holds it, or is served earlier.
    pub holder: String,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waits for {} of {}", self.waiter, self.wanted, self.holder)
    }
}

impl Link {
    pub(super) fn new(link: deadlock::Link) -> Self {
        Self { waiter: link.waiter.to_string(), wanted: link.wanted, holder: link.holder.to_string() }
    }
}

/// Shows what blocks a request.
pub(super) fn views(keeper: &Keeper, blockers: &[waiting::Blocker]) -> Result<Vec<Blocker>, Error> {
    let dial = ClockOffset::at(keeper.engine().now().map_err(Error::store)?);
    let view = |id: String, claim: &Claim, wanted: &Target, witness: &str, since: Moment, is_waiting| {
        let millis = u64::try_from(dial.unix_millis(since)).unwrap_or(0);
        Blocker {
            id,
            owner: claim.owner.to_string(),
            wanted: wanted.to_string(),
            witness: witness.to_owned(),
            since: SystemTime::UNIX_EPOCH + Duration::from_millis(millis),
            reason: claim.reason.clone(),
            pid: claim.proof.process().map(|process| process.pid),
            is_waiting,
        }
    };
    let mut views = Vec::new();
    for blocker in blockers {
        let wanted = &blocker.resource.target;
        views.extend(blocker.leases.iter().map(|found| {
            let lease = &found.record;
            view(lease.id.to_string(), &lease.claim, wanted, &found.witness, lease.acquired_at, false)
        }));
        views.extend(blocker.tickets.iter().map(|found| {
            let ticket = &found.record;
            view(ticket.id.as_ticket(), &ticket.claim, wanted, &found.witness, ticket.enqueued_at, true)
        }));
    }
    views.sort_by_key(|view| view.is_waiting);
    Ok(views)
}

/// The first blocker, and how many more there are.
pub(super) fn summary(blockers: &[Blocker]) -> String {
    match blockers {
        [] => "it is held".to_owned(),
        [one] => one.to_string(),
        [first, more @ ..] => format!("{first}, and {} more block it", more.len()),
    }
}

/// All links of a cycle.
pub(super) fn cycle_text(cycle: &[Link]) -> String {
    cycle.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
