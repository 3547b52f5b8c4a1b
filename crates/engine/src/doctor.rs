//! The doctor: health checks of everything that locks depend on. Each check says what is wrong and how to fix it.
//!
//! Each check is one function that reads the [`Inputs`] and returns one [`Check`]. The quick pass changes nothing. The
//! full pass also tries out the file system and removes stale locks. It removes them with the functions that `acquire`
//! and `cleanup` use, so every lock is judged again at the moment of its removal. Some things only a person can decide
//! (a zombie sprint lock, a holder that cannot be observed from here): the doctor reports them and changes nothing.

mod alerts;
mod document;
mod file_system;
mod finding;
mod formats;
mod hooks;
mod leases;
mod leftovers;
mod machine;
mod runs;
mod self_tests;
mod store;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::alert::Alert;
pub use lockkeeper_formats::aiflow::Pass;
use lockkeeper_formats::aiflow::{self, Aiflow, AiflowError};
use lockkeeper_formats::group::{Folders, GroupError, Survey};
use lockkeeper_formats::swarm::{self, Swarm, SwarmError};
use lockkeeper_platform::wall_clock::WallTime;

use crate::Engine;
use crate::location::Location;
use crate::messages::{Language, Phrases};
use crate::queue::FailedCheck;
use crate::runs::{RunError, Runs};
pub(crate) use alerts::sentences as alert_sentences;
pub use alerts::{count_leases, waits_and_orphans};
pub use document::{CheckView, DiagnosisView, Environment, RecoveredView, SummaryView};
use finding::Finding;
pub use finding::{Check, Recovered, Status};

/// What the doctor examines: folders, stores and the time.
pub struct Inputs<'s> {
    /// The state folder and the root of the project.
    pub location: &'s Location,
    /// The lease store, or why it is not open.
    pub store: Opened<'s>,
    /// The folders with group locks.
    pub groups: &'s Folders,
    /// A group lock that is older than this gets a warning.
    pub max_group_age: Duration,
    /// The folder with task locks.
    pub swarm: &'s Swarm,
    /// How often parallel work fell back to a stricter strategy within the last hour.
    pub downgrades: usize,
    /// The time of the wall clock. Lock files of other programs are dated by it.
    pub now: WallTime,
}

/// The result of opening the lease store.
pub enum Opened<'s> {
    /// There is no store yet.
    Absent,
    /// The store is open.
    Open(&'s Engine),
    /// The store cannot be opened.
    Refused {
        /// The error with its causes.
        why: String,
        /// What the user can do about it.
        fix: String,
    },
}

/// The result of one pass.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// Quick or full.
    pub pass: Pass,
    /// One entry for each check, in the order of the catalogue.
    pub checks: Vec<Check>,
    /// Counts above their limits.
    pub alerts: Vec<Alert>,
    /// The machine and the folders that were examined.
    pub environment: Environment,
}

impl Diagnosis {
    /// The worst status of all checks.
    pub fn status(&self) -> Status {
        self.checks.iter().map(|check| check.status).max().unwrap_or(Status::Pass)
    }

    /// The first check that failed.
    pub fn failed_check(&self) -> Option<FailedCheck> {
        let check = self.checks.iter().find(|check| check.status == Status::Fail)?;
        Some(FailedCheck {
            id: check.id.to_owned(),
            title: check.title.to_owned(),
            detail: check.detail.clone(),
            fix: check.fix.clone(),
        })
    }

    /// How many checks have this status.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }

    /// The stale locks that were removed, and the lost runs that were ended.
    pub fn recovered(&self) -> impl Iterator<Item = &Recovered> {
        self.checks.iter().flat_map(|check| &check.recovered)
    }
}

/// A check in the catalogue.
struct CatalogueEntry {
    id: &'static str,
    title: &'static str,
    /// `Quick`: both passes run it. `Full`: only the full pass does.
    pass: Pass,
    run: fn(&Context<'_>) -> Finding,
}

const fn entry(id: &'static str, title: &'static str, run: fn(&Context<'_>) -> Finding) -> CatalogueEntry {
    CatalogueEntry { id, title, pass: Pass::Quick, run }
}

/// Every check, in the order in which they run. A check comes after those that it depends on. Checks that look at all
/// locks (`clock`, `deadlocks`, `alerts`) come after the checks that remove stale locks.
const CATALOGUE: [CatalogueEntry; 27] = [
    entry("state-folder", "the state folder can be used, and only by its owner", file_system::state_folder),
    entry("file-system", "the state is on a local, writable file system", file_system::file_system),
    entry("free-space", "there is free space for locks", file_system::free_space),
    entry("git", "the repository is found, and git tracks no lock", file_system::git),
    entry("hooks", "every hook that calls lockkeeper works", hooks::hooks),
    entry("store", "the lease store opens and is not damaged", store::store),
    entry("store-files", "only their owner can read and write the files of the store", store::files),
    entry("flock", "flock keeps another process out", self_tests::flock),
    entry(
        "kernel-locks",
        "a kernel lock is seen while it is held, and ends with its holder",
        self_tests::kernel_locks,
    ),
    CatalogueEntry {
        pass: Pass::Full,
        ..entry("exchange", "a stale lock file is replaced in one step", self_tests::exchange)
    },
    entry("processes", "each process can be identified", machine::processes),
    entry("file-watching", "changes of files are reported", machine::file_watching),
    entry("descriptors", "a process may open enough files", machine::descriptors),
    entry("leases", "no lease or ticket belongs to a dead holder", leases::stale),
    entry("holders", "for every holder it is known whether it lives, or its lease expires", leases::unknown),
    entry("sprint-lock", "the sprint lock is not a zombie", formats::sprint),
    entry("swarm-locks", "no task lock has expired", formats::swarm),
    entry("group-locks", "no group lock belongs to a dead process", formats::groups),
    entry("aiflow-locks", "no request or queue lock is stale", formats::aiflow),
    entry("leftovers", "killed writers left no temporary files", leftovers::leftovers),
    entry("run-store", "the run store opens and is not damaged", runs::store),
    entry("runs", "every active run is looked after", runs::without_worker),
    entry("run-processes", "no process of an ended run is left", runs::without_run),
    entry("run-folders", "every run folder belongs to a run", runs::folders),
    entry("clock", "no record is from the future", machine::clock),
    entry("deadlocks", "there is no deadlock", leases::deadlocks),
    entry("alerts", "no count is above its limit", alerts::check),
];

/// Every check with its id and title, in order.
pub fn catalogue() -> impl Iterator<Item = (&'static str, &'static str)> {
    CATALOGUE.iter().map(|entry| (entry.id, entry.title))
}

/// Called before each check with its id, its position from 1, and the number of checks.
pub type Progress<'p> = &'p mut dyn FnMut(&'static str, usize, usize);

/// Runs every check of a pass.
pub fn examine(inputs: &Inputs<'_>, pass: Pass, progress: Progress<'_>) -> Diagnosis {
    let in_pass = |entry: &&CatalogueEntry| pass == Pass::Full || entry.pass == Pass::Quick;
    let total = CATALOGUE.iter().filter(in_pass).count();
    let context = Context::new(inputs, pass);
    let english = Phrases::load(Language::En);
    let (mut checks, mut alerts) = (Vec::with_capacity(total), Vec::new());
    for (index, entry) in CATALOGUE.iter().filter(in_pass).enumerate() {
        progress(entry.id, index + 1, total);
        let mut finding = (entry.run)(&context);
        alerts.append(&mut finding.alerts);
        checks.push(finding.into_check(entry.id, entry.title, &english));
    }
    Diagnosis { pass, checks, alerts, environment: Environment::of(&context) }
}

/// What the checks of one pass share: the inputs, and lists that are read once. A list is read after the check that
/// removes stale entries from it.
struct Context<'v> {
    inputs: &'v Inputs<'v>,
    pass: Pass,
    tasks: OnceCell<Result<Vec<swarm::Listed>, SwarmError>>,
    requests: OnceCell<Result<Vec<aiflow::Listed>, AiflowError>>,
    survey: OnceCell<Result<Survey, GroupError>>,
    runs: OnceCell<Result<Option<Runs>, RunError>>,
}

impl<'v> Context<'v> {
    fn new(inputs: &'v Inputs<'v>, pass: Pass) -> Self {
        Self {
            inputs,
            pass,
            tasks: OnceCell::new(),
            requests: OnceCell::new(),
            survey: OnceCell::new(),
            runs: OnceCell::new(),
        }
    }

    /// The existing task locks.
    fn tasks(&self) -> Result<&[swarm::Listed], &SwarmError> {
        self.tasks.get_or_init(|| self.inputs.swarm.list(self.inputs.now)).as_deref()
    }

    /// The existing request and queue locks.
    fn requests(&self) -> Result<&[aiflow::Listed], &AiflowError> {
        self.requests.get_or_init(|| self.aiflow().list(self.inputs.now)).as_deref()
    }

    /// The existing group locks.
    fn survey(&self) -> Result<&Survey, &GroupError> {
        self.survey.get_or_init(|| Survey::take(self.inputs.groups, self.seconds())).as_ref()
    }

    /// The lease store, if it is open.
    fn engine(&self) -> Option<&Engine> {
        match &self.inputs.store {
            Opened::Open(engine) => Some(engine),
            Opened::Absent | Opened::Refused { .. } => None,
        }
    }

    /// The state folder, or its nearest ancestor that exists. The state will be on the same file system.
    fn existing_folder(&self) -> &'v Path {
        let state = &self.inputs.location.state;
        state.ancestors().find(|folder| folder.is_dir()).unwrap_or(state)
    }

    fn aiflow(&self) -> Aiflow {
        Aiflow::new(&self.inputs.location.root)
    }

    /// Seconds since 1970, as in the registry of groups.
    fn seconds(&self) -> i64 {
        self.inputs.now.as_micros().div_euclid(1_000_000)
    }

    /// Every existing folder with locks. The state folder comes first.
    fn lock_folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.existing_folder().to_owned(), self.inputs.location.root.clone()];
        folders.push(self.inputs.swarm.dir().to_owned());
        folders.extend(self.inputs.groups.existing());
        folders.retain(|folder| folder.is_dir());
        folders.dedup();
        folders
    }
}
