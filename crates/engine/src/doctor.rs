//! The doctor: looks at everything that locks depend on, says what is wrong and what to do, and in its full pass puts
//! away what is stale.
//!
//! Each check is one function over a [`Site`] and gives one [`Check`]. The quick pass changes nothing. The full pass
//! tries out what the quick one only looks at, and recovers by the same functions that takers and `cleanup` use, so
//! every lock is judged again at the moment at which it is put away. What only a person may decide (a zombie sprint,
//! a holder of whom nobody knows) is reported and left alone.

mod alerts;
mod document;
mod finding;
mod formats;
mod hooks;
mod leases;
mod leftovers;
mod machine;
mod place;
mod runs;
mod store;
mod trials;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lockkeeper_core::alert::Alert;

pub use alerts::{count_leases, waits_and_orphans};
pub use document::Environment;
pub use finding::{Check, Recovered, Status};

use super::Engine;
use super::runs::{RunError, Runs};
use crate::location::Location;
use finding::Finding;
pub use lockkeeper_formats::aiflow::Pass;
use lockkeeper_formats::aiflow::{self, Aiflow, AiflowError};
use lockkeeper_formats::group::{Folders, GroupError, Survey};
use lockkeeper_formats::swarm::{self, Swarm, SwarmError};
use lockkeeper_platform::wall_clock::WallTime;

/// What the doctor looks at.
pub struct Site<'s> {
    /// Where state and project are.
    pub location: &'s Location,
    /// The store of leases, as it could be opened.
    pub store: Opened<'s>,
    /// The folders of group locks.
    pub groups: &'s Folders,
    /// How old a group lock may become before it is worth a warning.
    pub max_group_age: Duration,
    /// The folder of task locks.
    pub swarm: &'s Swarm,
    /// How often parallel work fell back to a stricter strategy within the last hour.
    pub downgrades: usize,
    /// The wall clock, for the formats that know no other.
    pub now: WallTime,
}

/// What came of opening the store.
pub enum Opened<'s> {
    /// There is none yet.
    Absent,
    /// It is open.
    Open(&'s Engine),
    /// It cannot be opened.
    Refused {
        /// What was said, with its causes.
        why: String,
        /// The way out.
        fix: String,
    },
}

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// How thorough it was.
    pub pass: Pass,
    /// One entry for each check, in the order of the catalogue.
    pub checks: Vec<Check>,
    /// Counts above their limits.
    pub alerts: Vec<Alert>,
    /// Where all of it was seen.
    pub environment: Environment,
}

impl Diagnosis {
    /// The worst of all checks.
    pub fn status(&self) -> Status {
        self.checks.iter().map(|check| check.status).max().unwrap_or(Status::Pass)
    }

    /// How many checks ended so.
    pub fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.status == status).count()
    }

    /// What was put away.
    pub fn recovered(&self) -> impl Iterator<Item = &Recovered> {
        self.checks.iter().flat_map(|check| &check.recovered)
    }
}

/// A check of the catalogue.
struct Probe {
    id: &'static str,
    title: &'static str,
    /// The first pass that makes it.
    from: Pass,
    run: fn(&Visit<'_>) -> Finding,
}

const fn probe(id: &'static str, title: &'static str, run: fn(&Visit<'_>) -> Finding) -> Probe {
    Probe { id, title, from: Pass::Quick, run }
}

/// Every check, in the order in which they are made: what others rest on comes first, and what looks at all that is
/// left comes after what puts away.
const PROBES: [Probe; 27] = [
    probe("state-folder", "the folder of the state can be used, by its owner alone", place::state_folder),
    probe("file-system", "the state lies on a local file system that can be written", place::file_system),
    probe("free-space", "there is room for locks", place::free_space),
    probe("git", "the repository is found, and git tracks no lock", place::git),
    probe("hooks", "hooks that call lockkeeper can", hooks::hooks),
    probe("store", "the store opens and is whole", store::store),
    probe("store-files", "the files of the store are their owner's alone", store::files),
    probe("flock", "flock keeps another process out", trials::flock),
    probe("kernel-locks", "a holder's kernel lock is seen and ends with it", trials::kernel_locks),
    Probe {
        from: Pass::Full,
        ..probe("exchange", "a stale lock file is replaced in one step", trials::exchange)
    },
    probe("processes", "processes can be told apart", machine::processes),
    probe("file-watching", "changes of files are told", machine::file_watching),
    probe("descriptors", "enough files can be open", machine::descriptors),
    probe("leases", "no lease or ticket is left of the dead", leases::stale),
    probe("holders", "of every holder it can be told whether it lives", leases::unknown),
    probe("sprint-lock", "no zombie has the sprint lock", formats::sprint),
    probe("swarm-locks", "no task lock has expired", formats::swarm),
    probe("group-locks", "no group lock is left of the dead", formats::groups),
    probe("aiflow-locks", "no request or queue lock is stale", formats::aiflow),
    probe("leftovers", "killed writers left no files", leftovers::leftovers),
    probe("run-store", "the store of runs opens and is whole", runs::store),
    probe("runs", "every run under way has a process", runs::without_process),
    probe("run-processes", "no process is left of a run that is over", runs::without_run),
    probe("run-folders", "every run folder belongs to a run", runs::folders),
    probe("clock", "no record is from the future", machine::clock),
    probe("deadlocks", "nobody waits in a circle", leases::deadlocks),
    probe("alerts", "no count is above its limit", alerts::check),
];

/// Every check with its id and title, in order.
pub fn catalogue() -> impl Iterator<Item = (&'static str, &'static str)> {
    PROBES.iter().map(|probe| (probe.id, probe.title))
}

/// Told before each check: its id, its place from 1, and how many there are.
pub type Progress<'p> = &'p mut dyn FnMut(&'static str, usize, usize);

/// Makes every check of a pass.
pub fn examine(site: &Site<'_>, pass: Pass, progress: Progress<'_>) -> Diagnosis {
    let due = |probe: &&Probe| pass == Pass::Full || probe.from == Pass::Quick;
    let total = PROBES.iter().filter(due).count();
    let visit = Visit::new(site, pass);
    let (mut checks, mut alerts) = (Vec::with_capacity(total), Vec::new());
    for (place, probe) in PROBES.iter().filter(due).enumerate() {
        progress(probe.id, place + 1, total);
        let mut finding = (probe.run)(&visit);
        alerts.append(&mut finding.alerts);
        checks.push(finding.into_check(probe.id, probe.title));
    }
    Diagnosis { pass, checks, alerts, environment: Environment::of(&visit) }
}

/// A site during one pass: what several checks need is looked at once, after it was put in order.
struct Visit<'v> {
    site: &'v Site<'v>,
    pass: Pass,
    tasks: OnceCell<Result<Vec<swarm::Listed>, SwarmError>>,
    requests: OnceCell<Result<Vec<aiflow::Listed>, AiflowError>>,
    survey: OnceCell<Result<Survey, GroupError>>,
    runs: OnceCell<Result<Option<Runs>, RunError>>,
}

impl<'v> Visit<'v> {
    fn new(site: &'v Site<'v>, pass: Pass) -> Self {
        Self {
            site,
            pass,
            tasks: OnceCell::new(),
            requests: OnceCell::new(),
            survey: OnceCell::new(),
            runs: OnceCell::new(),
        }
    }

    /// The task locks that are there.
    fn tasks(&self) -> Result<&[swarm::Listed], &SwarmError> {
        self.tasks.get_or_init(|| self.site.swarm.list(self.site.now)).as_deref()
    }

    /// The request and queue locks that are there.
    fn requests(&self) -> Result<&[aiflow::Listed], &AiflowError> {
        self.requests.get_or_init(|| self.aiflow().list(self.site.now)).as_deref()
    }

    /// The group locks that are there.
    fn survey(&self) -> Result<&Survey, &GroupError> {
        self.survey.get_or_init(|| Survey::take(self.site.groups, self.seconds())).as_ref()
    }

    /// The store, if it is open.
    fn engine(&self) -> Option<&Engine> {
        match &self.site.store {
            Opened::Open(engine) => Some(engine),
            Opened::Absent | Opened::Refused { .. } => None,
        }
    }

    /// The folder of the state, or the nearest one above that is there: the state will lie on its file system.
    fn ground(&self) -> &'v Path {
        let state = &self.site.location.state;
        state.ancestors().find(|folder| folder.is_dir()).unwrap_or(state)
    }

    fn aiflow(&self) -> Aiflow {
        Aiflow::new(&self.site.location.root)
    }

    /// Seconds of the wall clock, as the registry of groups counts.
    fn seconds(&self) -> i64 {
        self.site.now.as_micros().div_euclid(1_000_000)
    }

    /// Every folder that locks lie in and that is there, the state's first.
    fn lock_folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.ground().to_owned(), self.site.location.root.clone()];
        folders.push(self.site.swarm.dir().to_owned());
        folders.extend(self.site.groups.existing());
        folders.retain(|folder| folder.is_dir());
        folders.dedup();
        folders
    }
}
