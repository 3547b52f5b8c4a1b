//! JSON document of a diagnosis, with the machine and the folders that were examined.

use lockkeeper_platform::volume::Volume;
use serde::Serialize;

use super::{Check, Context, Diagnosis, Opened, Pass, Recovered, Status};
use crate::location::LocationSource;
use crate::views::AlertView;

/// The version of the document.
const VERSION: &str = "1.0";

/// A diagnosis. The command line, the HTTP API and the page all show this document.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Diagnosis))]
pub struct DiagnosisView {
    /// The version of the document.
    pub version: &'static str,
    /// `quick` or `full`.
    pub mode: &'static str,
    /// How the checks ended.
    pub summary: SummaryView,
    /// Every check, in the order in which they ran.
    pub checks: Vec<CheckView>,
    /// Counts that are above their limits.
    pub alerts: Vec<AlertView>,
    /// The machine and the folders that were examined.
    pub environment: Environment,
}

/// How the checks ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DiagnosisSummary))]
pub struct SummaryView {
    /// The worst of all: `PASS`, `WARN` or `FAIL`.
    pub status: &'static str,
    /// How many failed.
    pub fail_count: usize,
    /// How many warned.
    pub warn_count: usize,
    /// How many stale locks and lost runs the full pass removed.
    pub recovered_count: usize,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Check))]
pub struct CheckView {
    /// Its id.
    pub id: String,
    /// What it is about.
    pub title: String,
    /// `PASS`, `WARN` or `FAIL`.
    pub status: &'static str,
    /// What was found.
    pub detail: String,
    /// What to do about it.
    pub fix: Option<String>,
    /// What the full pass removed.
    pub recovered: Vec<RecoveredView>,
}

/// A stale lock that the full pass removed, or a lost run that it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Recovered))]
pub struct RecoveredView {
    /// A stable code.
    pub reason_code: &'static str,
    /// `lease`, `swarm`, `group`, `aiflow`, `leftover` or `run`.
    pub format: &'static str,
    /// The lock or the run, in words.
    pub what: String,
    /// Why it was stale.
    pub why: String,
}

/// The machine and the folders that were examined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ExaminedEnvironment))]
pub struct Environment {
    /// The version of Lockkeeper.
    pub lockkeeper: &'static str,
    /// The operating system.
    pub system: String,
    /// Its release.
    pub release: String,
    /// The architecture.
    pub machine: String,
    /// The name of the machine.
    pub host: String,
    /// The number of the user.
    pub user: u32,
    /// The pid namespace; null without a store.
    pub pid_namespace: Option<u64>,
    /// When it was examined.
    pub time: String,
    /// The state folder.
    pub state: String,
    /// Why it is that one.
    pub state_because: &'static str,
    /// The root of the project.
    pub root: String,
    /// The storage backend and its version; null if there is no store.
    pub store: Option<String>,
    /// The file system of the state folder.
    pub file_system: Option<&'static str>,
    /// The folder of group locks.
    pub lock_dir: String,
    /// The folder of the swarm.
    pub ai_swarm_dir: String,
}

impl Environment {
    pub(super) fn of(context: &Context<'_>) -> Self {
        let system = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let state_because = match context.inputs.location.source {
            LocationSource::Named => "named",
            LocationSource::Git => "inside the git folder",
            LocationSource::Found => "found here or above",
            LocationSource::Here => "would be made here",
        };
        let store = match &context.inputs.store {
            Opened::Open(engine) => engine.store().examine(false).map(|found| found.backend).ok(),
            Opened::Absent | Opened::Refused { .. } => None,
        };
        let origin = context.engine().map(|engine| engine.probe().origin());
        let volume = Volume::of(context.existing_folder()).ok();
        Self {
            lockkeeper: env!("CARGO_PKG_VERSION"),
            system: text(system.sysname()),
            release: text(system.release()),
            machine: text(system.machine()),
            host: text(system.nodename()),
            user: rustix::process::geteuid().as_raw(),
            pid_namespace: origin.map(|origin| origin.pid_namespace),
            time: context.inputs.now.to_string(),
            state: path(&context.inputs.location.state),
            state_because,
            root: path(&context.inputs.location.root),
            store,
            file_system: volume.and_then(|volume| volume.kind),
            lock_dir: path(context.inputs.groups.first()),
            ai_swarm_dir: path(context.inputs.swarm.dir()),
        }
    }
}

impl Diagnosis {
    /// The document.
    pub fn view(&self) -> DiagnosisView {
        DiagnosisView {
            version: VERSION,
            mode: match self.pass {
                Pass::Quick => "quick",
                Pass::Full => "full",
            },
            summary: SummaryView {
                status: self.status().word(),
                fail_count: self.count(Status::Fail),
                warn_count: self.count(Status::Warn),
                recovered_count: self.recovered().count(),
            },
            checks: self.checks.iter().map(Check::view).collect(),
            alerts: self.alerts.iter().map(AlertView::new).collect(),
            environment: self.environment.clone(),
        }
    }
}

impl Check {
    fn view(&self) -> CheckView {
        CheckView {
            id: self.id.to_string(),
            title: self.title.to_string(),
            status: self.status.word(),
            detail: self.detail.clone(),
            fix: self.fix.clone(),
            recovered: self.recovered.iter().map(Recovered::view).collect(),
        }
    }
}

impl Recovered {
    fn view(&self) -> RecoveredView {
        RecoveredView {
            reason_code: self.reason_code(),
            format: self.format,
            what: self.what.clone(),
            why: self.why.clone(),
        }
    }
}
