//! Saved record of an execution, so that it can be resumed after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_core::id::{Name, Owner, RunId};
use lockkeeper_core::lease::{self, Outcome};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_stages::{PhasePlan, PlanView};
use serde::{Deserialize, Serialize};

use super::StageError;
use super::executor::Options;
use crate::runs::{RunError, new_id, write_whole};
use crate::stage_names::lock_name;
use crate::work::{Worker, why};
use lockkeeper_platform::access;

/// The longest id of an execution.
const MAX_ID_LENGTH: usize = 100;

/// An execution of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// The id. It is unique.
    pub id: String,
    /// The path of the STAGES.yml when it started.
    pub file: String,
    /// The phase.
    pub phase: String,
    /// The ids of its groups, in the order of the plan.
    pub groups: Vec<String>,
    /// When it started, in microseconds since 1970.
    pub started_at: i64,
    /// How groups ended, by their ids: `SUCCESS`, `FAILED` or `CANCELED`.
    pub ended: BTreeMap<String, String>,
    /// Whether every group succeeded. An execution that is not finished can be resumed.
    pub finished: bool,
    /// The commit that was checked out when it started, for the rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
}

impl Execution {
    /// Writes the record atomically.
    pub(super) fn save(&self, state: &Path) -> Result<(), StageError> {
        let path = make_folder(state)?.join(format!("{}.json", self.id));
        let text = serde_json::to_string_pretty(self).expect("texts and numbers can always be written");
        write_whole(&path, text.as_bytes()).map_err(|source| StageError::Io {
            action: "write to",
            path,
            source,
        })
    }
}

/// Starts a new execution, or resumes one. Returns it with the lease that lets only one process execute it.
pub(super) fn begin(
    worker: &Worker,
    plan: &PhasePlan,
    options: &Options,
) -> Result<(Execution, Lease), StageError> {
    let file = options.file.to_string_lossy().into_owned();
    if options.resume {
        let found = latest_unfinished(worker.runs().folder(), &file, &plan.phase)?;
        let found = found.ok_or_else(|| StageError::NothingToResume { phase: plan.phase.clone() })?;
        let same =
            found.groups.iter().map(String::as_str).eq((0..plan.groups.len()).map(|index| plan.id(index)));
        if !same {
            return Err(StageError::Changed { execution: found.id });
        }
        let lease = acquire(worker, &found.id)?;
        // Read it again: the previous process may have changed it until it released the lease.
        let again = latest_unfinished(worker.runs().folder(), &file, &plan.phase)?;
        return match again.filter(|again| again.id == found.id) {
            Some(again) => Ok((again, lease)),
            None => Err(StageError::NothingToResume { phase: plan.phase.clone() }),
        };
    }
    let started_at = worker.runs().now().unix_micros;
    let id: RunId = new_id("EX", started_at)?;
    let execution = Execution {
        id: id.to_string(),
        file,
        phase: plan.phase.clone(),
        groups: plan.groups.iter().map(|group| group.id.value.clone()).collect(),
        started_at,
        ended: BTreeMap::new(),
        finished: false,
        head: options.rollback.as_ref().and_then(|_| checked_out(&options.dir)),
    };
    let lease = acquire(worker, &execution.id)?;
    save_plan(worker.runs().folder(), &execution.id, plan)?;
    execution.save(worker.runs().folder())?;
    Ok((execution, lease))
}

/// The commit that is checked out in a folder; none outside of git.
fn checked_out(folder: &str) -> Option<String> {
    let output =
        Command::new("git").args(["-C", folder, "rev-parse", "--verify", "-q", "HEAD"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}

/// Acquires the lease of an execution for this process, without waiting.
fn acquire(worker: &Worker, execution: &str) -> Result<Lease, StageError> {
    let name: Name = lock_name(execution).parse().expect("letters, digits and dashes are a name");
    let owner: Owner = format!("worker:{}", worker.id()).parse().expect("an id is an owner");
    let record = worker.record();
    let claim = Claim {
        owner,
        resources: vec![Resource { target: Target::Name(name), mode: Mode::Exclusive }],
        proof: Proof {
            origin: record.origin.clone(),
            voucher: Voucher::KernelLock { holder: record.holder, process: record.process },
        },
        contract: Contract::Strict,
        ttl: None,
        reason: Some("executes stages".to_owned()),
        ticket: None,
        agent: None,
    };
    let priority = Priority::new(0).expect("zero is a priority");
    let request = lease::AcquireRequest { claim, priority, under: Vec::new(), wait: None, join: false };
    let blockers = match worker.leases().acquire(&request).map_err(RunError::from)? {
        Outcome::Granted(grant) => return Ok(grant.lease),
        Outcome::Held(blockers) => blockers,
        Outcome::Waiting(_) | Outcome::Deadlock(_) | Outcome::Gone => Vec::new(),
    };
    Err(StageError::AlreadyRunning { execution: execution.to_owned(), why: why(&blockers) })
}

/// The plan that an execution started with; none if it was not saved. The STAGES.yml may have changed since.
pub fn plan_of(state: &Path, id: &str) -> Option<PlanView> {
    serde_json::from_slice(&fs::read(plan_path(state, id)).ok()?).ok()
}

/// Saves the plan in a file of its own: the record changes, the plan does not.
fn save_plan(state: &Path, id: &str, plan: &PhasePlan) -> Result<(), StageError> {
    let text = serde_json::to_vec(&PlanView::of(plan)).expect("texts and numbers can always be written");
    make_folder(state)?;
    let path = plan_path(state, id);
    write_whole(&path, &text).map_err(|source| StageError::Io { action: "write to", path, source })
}

fn plan_path(state: &Path, id: &str) -> PathBuf {
    folder(state).join(format!("{id}.plan"))
}

fn make_folder(state: &Path) -> Result<PathBuf, StageError> {
    let path = folder(state);
    match access::make_folder(&path) {
        Ok(_) => Ok(path),
        Err(source) => Err(StageError::Io { action: "make", path, source }),
    }
}

/// Every STAGES.yml that was executed.
pub fn files(state: &Path) -> Result<BTreeSet<PathBuf>, StageError> {
    Ok(all(state)?.into_iter().map(|execution| PathBuf::from(execution.file)).collect())
}

/// The latest execution of a phase of a file that is not finished.
pub fn latest_unfinished(state: &Path, file: &str, phase: &str) -> Result<Option<Execution>, StageError> {
    let matching =
        all(state)?.into_iter().filter(|one| one.file == file && one.phase == phase && !one.finished);
    Ok(matching.max_by_key(|execution| execution.started_at))
}

/// The execution with this id; none if it does not exist.
pub(super) fn find(state: &Path, id: &str) -> Result<Option<Execution>, StageError> {
    let is_id = id.len() <= MAX_ID_LENGTH && id.chars().all(|one| one.is_ascii_alphanumeric() || one == '-');
    if !is_id {
        return Ok(None);
    }
    let path = folder(state).join(format!("{id}.json"));
    match fs::read(&path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok().filter(|found: &Execution| found.id == id)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StageError::Io { action: "read", path, source }),
    }
}

/// All executions, in no order.
pub(super) fn all(state: &Path) -> Result<Vec<Execution>, StageError> {
    let folder = folder(state);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StageError::Io { action: "list", path: folder, source }),
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let records = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    // A record that cannot be read is left out. Its file is not changed.
    Ok(records.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok()).collect())
}

/// The folder with the records. The first execution creates it.
pub fn folder(state: &Path) -> PathBuf {
    state.join("stages")
}
