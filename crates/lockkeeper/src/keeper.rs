//! The library: a keeper opens a store, a lock builder asks for a lease, a guard holds it.

mod guard;
mod lease_monitor;
mod lock_builder;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use lockkeeper_core::deadlock::Link;
use lockkeeper_core::id::{IdError, Owner};
use lockkeeper_core::lease::NotCurrent;
use lockkeeper_core::liveness::{ProcessRef, Proof, Voucher};
use lockkeeper_core::pattern::PatternError;
use lockkeeper_core::time::SpanError;
use lockkeeper_core::waiting::Blocker;
use thiserror::Error;

pub use guard::Guard;
pub use lock_builder::LockBuilder;

use lease_monitor::LeaseMonitor;
use lockkeeper_engine::Engine;
use lockkeeper_engine::location::LocationInputs;
use lockkeeper_engine::open::{OpenError, has_store, open_engine};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::liveness_lock::LivenessLock;
use lockkeeper_platform::{process, random};
use lockkeeper_store::{StoreError, Waker};

/// Acquires leases in one store and holds them for this process.
///
/// Cheap to clone; all clones are the same holder. Every method may be called from any thread.
///
/// ```
/// # use lockkeeper::{Keeper, KeeperError};
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
///
/// // Any number of readers, or one writer.
/// let one = keeper.lock("docs").shared().acquire()?;
/// let two = keeper.lock("docs").shared().acquire()?;
/// assert!(matches!(keeper.lock("docs").acquire(), Err(KeeperError::Held { .. })));
/// # drop((one, two));
///
/// // At most three builds at a time.
/// let build = keeper.lock("build").slots(3).acquire()?;
///
/// // Several things at once, all or none; patterns that overlap exclude each other.
/// let edit = keeper.lock("git/index").path("src/**/*.rs").reason("rename").acquire()?;
/// assert!(keeper.path("src/main.rs").acquire().is_err());
/// # drop((build, edit));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Keeper {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    resident: OnceLock<Resident>,
    becoming_resident: Mutex<()>,
    /// Wakers that no thread sleeps on now.
    idle_wakers: Mutex<Vec<Box<dyn Waker>>>,
    /// How many owners were made for leases without one.
    owners: AtomicU64,
    monitor: OnceLock<LeaseMonitor>,
}

/// The liveness lock of this process.
pub(crate) struct Resident {
    pub(crate) lock: LivenessLock,
    pub(crate) process: ProcessRef,
}

impl Keeper {
    /// Opens the store in this folder. Creates it if it is not there.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, KeeperError> {
        Ok(Self::over(open_engine(folder.as_ref())?))
    }

    /// Opens the store in this folder if there is one. Creates nothing.
    pub fn open_existing(folder: impl AsRef<Path>) -> Result<Option<Self>, KeeperError> {
        let folder = folder.as_ref();
        if has_store(folder) { Self::open(folder).map(Some) } else { Ok(None) }
    }

    /// Opens the store of the repository that this process is in, or the one that `LOCKKEEPER_DIR` names.
    ///
    /// It does not read settings files: those belong to the command.
    pub fn discover() -> Result<Self, KeeperError> {
        let named = std::env::var_os("LOCKKEEPER_DIR").filter(|value| !value.is_empty()).map(Into::into);
        let inputs = LocationInputs::of_process(named).map_err(KeeperError::Machine)?;
        Self::open(inputs.locate().state)
    }

    /// A keeper over any engine.
    pub fn over(engine: Engine) -> Self {
        let shared = Shared {
            engine: Arc::new(engine),
            resident: OnceLock::new(),
            becoming_resident: Mutex::new(()),
            idle_wakers: Mutex::new(Vec::new()),
            owners: AtomicU64::new(0),
            monitor: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Builds a request for a lease on a name.
    pub fn lock(&self, name: &str) -> LockBuilder<'_> {
        LockBuilder::new(self).name(name)
    }

    /// Builds a request for a lease on a pattern over paths.
    pub fn path(&self, pattern: &str) -> LockBuilder<'_> {
        LockBuilder::new(self).path(pattern)
    }

    /// The engine, for everything else.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// The proof of life of this process and of the commands that share its lock.
    pub fn resident_proof(&self) -> Result<Proof, KeeperError> {
        let resident = self.resident()?;
        let voucher = Voucher::KernelLock { holder: resident.lock.holder(), process: resident.process };
        Ok(Proof { origin: self.engine().probe().origin().clone(), voucher })
    }

    pub(crate) fn resident(&self) -> Result<&Resident, KeeperError> {
        if let Some(resident) = self.shared.resident.get() {
            return Ok(resident);
        }
        let _one_at_a_time = locked(&self.shared.becoming_resident);
        if let Some(resident) = self.shared.resident.get() {
            return Ok(resident);
        }
        let process = process::current().map_err(KeeperError::Machine)?;
        let holder = random::holder_id().map_err(KeeperError::Machine)?;
        let lock = self.engine().probe().liveness_file().hold(holder).map_err(KeeperError::Machine)?;
        Ok(self.shared.resident.get_or_init(|| Resident { lock, process }))
    }

    /// The liveness lock of this process. Commands that it starts may share it.
    pub fn liveness_lock(&self) -> Result<&LivenessLock, KeeperError> {
        self.resident().map(|resident| &resident.lock)
    }

    /// A new owner that was never used before: `lib:pid.random.number`. The numbers keep the owners of one process next to each
    /// other in the index of a store, which costs less than random ones.
    fn new_owner(&self) -> Result<Owner, KeeperError> {
        let holder = self.resident()?.lock.holder().0;
        let number = self.shared.owners.fetch_add(1, Ordering::Relaxed);
        let text = format!("lib:{}.{:08x}.{number}", std::process::id(), holder & 0xffff_ffff);
        text.parse().map_err(KeeperError::Id)
    }

    /// A waker from an earlier wait.
    fn idle_waker(&self) -> Option<Box<dyn Waker>> {
        let waker = locked(&self.shared.idle_wakers).pop()?;
        waker.receive();
        Some(waker)
    }

    fn return_waker(&self, waker: Box<dyn Waker>) {
        locked(&self.shared.idle_wakers).push(waker);
    }

    fn monitor(&self) -> Result<&LeaseMonitor, KeeperError> {
        if let Some(monitor) = self.shared.monitor.get() {
            return Ok(monitor);
        }
        let started = LeaseMonitor::start(self)?;
        Ok(self.shared.monitor.get_or_init(|| started))
    }
}

/// Why there is no lease.
#[derive(Debug, Error)]
pub enum KeeperError {
    /// A name or an owner is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A pattern is not valid.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A TTL is not valid.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// The request has no name and no path, or settings that do not fit together.
    #[error("{0}")]
    Invalid(&'static str),
    /// Others hold it, or still hold it after the time to wait.
    #[error("{}", held_message(blockers))]
    Held {
        /// What blocks it.
        blockers: Vec<Blocker>,
    },
    /// Waiting would never end.
    #[error("waiting would never end: {}", links.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Deadlock {
        /// Who waits for whom.
        links: Vec<Link>,
    },
    /// The lease is not held any more.
    #[error("the lease was lost")]
    Lost(#[from] NotCurrent),
    /// Somebody else removed the ticket.
    #[error("the ticket was removed while it was in line")]
    TicketRemoved,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system does not tell about this process or machine.
    #[error("cannot find out about this process or machine")]
    Machine(#[source] io::Error),
}

impl From<OpenError> for KeeperError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => Self::Store(error),
            OpenError::Machine(error) => Self::Machine(error),
        }
    }
}

fn held_message(blockers: &[Blocker]) -> String {
    let Some(blocker) = blockers.first() else { return "it is held".to_owned() };
    let owner = blocker.leases.first().map(|found| &found.record.claim.owner);
    let ahead = blocker.tickets.first().map(|found| &found.record.claim.owner);
    match (owner, ahead) {
        (Some(owner), _) => format!("{} is held by {owner}", blocker.resource.target),
        (None, Some(ahead)) => format!("{ahead} is first in line for {}", blocker.resource.target),
        (None, None) => format!("{} is held", blocker.resource.target),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<KeeperError> for Report {
    fn from(error: KeeperError) -> Self {
        match error {
            KeeperError::Id(error) => error.into(),
            KeeperError::Pattern(error) => error.into(),
            KeeperError::Span(error) => error.into(),
            KeeperError::Store(error) => error.into(),
            KeeperError::Lost(error) => error.into(),
            KeeperError::Invalid(message) => Self::usage(message),
            KeeperError::Held { .. } => Self::of(Exit::Refused, "LOCK_HELD", &error),
            KeeperError::Deadlock { .. } => Self::of(Exit::Refused, "DEADLOCK", &error),
            KeeperError::TicketRemoved => Self::of(Exit::Refused, "TICKET_REMOVED", &error),
            KeeperError::Machine(_) => Self::machine(&error),
        }
    }
}
