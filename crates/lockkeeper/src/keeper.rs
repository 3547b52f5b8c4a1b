//! `Keeper`: the handle of a store. It creates lock builders and run builders.

mod blocker;
mod error;
mod guard;
mod lazy;
mod lease_monitor;
mod lock_builder;
mod run;
mod run_builder;
#[cfg(feature = "tokio")]
mod wait_task;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper_core::id::Owner;
use lockkeeper_engine::config::ProjectConfig;
use lockkeeper_engine::location::{Location, LocationInputs, LocationSource, without_links};
use lockkeeper_engine::open::open_leases;
use lockkeeper_engine::runs::Runs;
use lockkeeper_engine::{Engine, Resident};

pub use blocker::{Blocker, Link};
pub use error::{Error, Loss};
pub use guard::{Guard, Token};
pub use lock_builder::{Contract, LockBuilder};
pub use run::{Run, RunOutcome, RunStatus};
pub use run_builder::RunBuilder;

use lazy::Lazy;
use lease_monitor::LeaseMonitor;

/// Acquires locks and submits runs in one store: a state folder, or a server that several machines share.
///
/// A clone is cheap and is the same holder. Every method may be called from any thread. Two keepers exclude each other like two
/// processes, also if one process opened both.
///
/// ```
/// use lockkeeper::Keeper;
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let guard = keeper.lock("db").acquire()?;
/// let other = Keeper::open(folder.path())?;
/// assert!(other.lock("db").try_acquire().is_err());
/// drop(guard);
/// assert!(other.lock("db").try_acquire().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Keeper {
    shared: Arc<Shared>,
}

/// What all clones of a keeper share.
struct Shared {
    location: Location,
    engine: Engine,
    runs: Lazy<Runs>,
    resident: Lazy<Resident>,
    monitor: Lazy<LeaseMonitor>,
    /// How many owners were made for locks without one.
    owners: AtomicU64,
}

impl Keeper {
    /// Opens the state folder. Creates it if it does not exist.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        // Only a store of several machines needs the root of the project.
        let (state, root) = (without_links(folder.as_ref()), folder.as_ref().to_owned());
        Self::at(Location { state, root, source: LocationSource::Named, shared: None })
    }

    fn at(location: Location) -> Result<Self, Error> {
        let shared = Shared {
            engine: open_leases(&location).map_err(Error::open)?.keep_wakers(),
            location,
            runs: Lazy::default(),
            resident: Lazy::default(),
            monitor: Lazy::default(),
            owners: AtomicU64::new(0),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens the store that the command uses here. It reads the same settings: those that say which store it is, in
    /// `lockkeeper.toml`, the file of the user and the environment. Without any, it is the folder of the git repository around the
    /// current directory, otherwise the nearest `.lockkeeper/`.
    ///
    /// It fails if a setting is not valid, and if the git folder cannot be looked at, for example in a container that has only a work
    /// tree of the repository.
    ///
    /// On a server that several machines share, a lock has a session, which a thread renews. If the server cannot be reached, the lock
    /// counts as lost before the session can end, so that the program can stop in time: see [`Guard::on_lost`].
    pub fn discover() -> Result<Self, Error> {
        let inputs = LocationInputs::of_process(None).map_err(Error::System)?;
        let cwd = inputs.cwd.clone();
        let project = ProjectConfig::load(inputs, &[]).map_err(Error::invalid)?;
        Self::at(project.locate(&cwd).map_err(|report| Error::settings(&report))?.map_err(Error::location)?)
    }

    /// Starts a lock on a name, such as `db` or `git/index`.
    pub fn lock(&self, name: &str) -> LockBuilder {
        LockBuilder::new(self.clone()).name(name)
    }

    /// Starts a lock on a pattern over paths, such as `src/**/*.rs`. Paths are relative to the root of the repository.
    pub fn path(&self, pattern: &str) -> LockBuilder {
        LockBuilder::new(self.clone()).path(pattern)
    }

    /// Starts a request to run a command: the program and its arguments.
    pub fn submit(&self, command: impl IntoIterator<Item = impl Into<String>>) -> RunBuilder {
        RunBuilder::new(self.clone(), command.into_iter().map(Into::into).collect())
    }

    /// Finds a run by its id, by a unique end of its id, or by the id of its request (then its latest run).
    pub fn find_run(&self, id: &str) -> Result<Run, Error> {
        let found = self.runs()?.find(id).map_err(Error::run)?;
        Ok(Run::new(self.clone(), found.id, found.request))
    }

    fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    fn runs(&self) -> Result<&Runs, Error> {
        self.shared.runs.get_or_create(|| Runs::at(&self.shared.location).map_err(Error::run))
    }

    /// The liveness lock of this keeper. All its locks end when this process ends.
    fn resident(&self) -> Result<&Resident, Error> {
        self.shared.resident.get_or_create(|| self.engine().resident().map_err(Error::System))
    }

    fn monitor(&self) -> Result<&LeaseMonitor, Error> {
        self.shared.monitor.get_or_create(|| LeaseMonitor::start(self))
    }

    /// A new owner that was never used before: `lib:pid.random.number`. The numbers keep the owners of one process next to each
    /// other in the index of a store, which costs less than random ones.
    fn new_owner(&self) -> Result<Owner, Error> {
        let holder = self.resident()?.holder().0;
        let number = self.shared.owners.fetch_add(1, Ordering::Relaxed);
        let text = format!("lib:{}.{:08x}.{number}", std::process::id(), holder & 0xffff_ffff);
        text.parse().map_err(Error::invalid)
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("store", &self.shared.location.store_id()).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
