//! What is kept of an execution, so that it can be gone on with after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{Name, Owner, RunId};
use lockkeeper_core::lease::{self, Outcome};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use serde::{Deserialize, Serialize};

use super::StageError;
use super::conductor::Options;
use crate::runs::{RunError, new_id, write_whole};
use crate::work::{Executor, why};
use lockkeeper_stages::{PhasePlan, PlanView};
use lockkeeper_store::runs::now;

/// No id of an execution is longer.
const MOST_LETTERS: usize = 100;

/// An execution of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Its id, never given twice.
    pub id: String,
    /// The file, as its path was when it began.
    pub file: String,
    /// The phase.
    pub phase: String,
    /// The groups that were to be executed, in the order of the plan.
    pub groups: Vec<String>,
    /// When it began, in microseconds since 1970.
    pub started_at: i64,
    /// How groups ended, by their ids.
    pub ended: BTreeMap<String, String>,
    /// Whether it came to its end.
    pub finished: bool,
}

impl Execution {
    /// Keeps it, whole or not at all.
    pub(super) fn keep(&self, state: &Path) -> Result<(), StageError> {
        let path = make_folder(state)?.join(format!("{}.json", self.id));
        let text = serde_json::to_string_pretty(self).expect("texts and numbers can always be written");
        write_whole(&path, text.as_bytes()).map_err(|source| StageError::Io {
            action: "write to",
            path,
            source,
        })
    }
}

/// Begins an execution, or goes on with one, as the only one who conducts it.
pub(super) fn begin(
    executor: &Executor,
    plan: &PhasePlan,
    options: &Options,
) -> Result<(Execution, Lease), StageError> {
    let file = options.file.to_string_lossy().into_owned();
    if options.resume {
        let found = latest_unfinished(executor.runs().folder(), &file, &plan.phase)?;
        let found = found.ok_or_else(|| StageError::NothingToResume { phase: plan.phase.clone() })?;
        let same =
            found.groups.iter().map(String::as_str).eq((0..plan.groups.len()).map(|place| plan.id(place)));
        if !same {
            return Err(StageError::Changed { execution: found.id });
        }
        let baton = baton(executor, &found.id)?;
        // It may have gone on until the baton was free.
        let again = latest_unfinished(executor.runs().folder(), &file, &plan.phase)?;
        return match again.filter(|again| again.id == found.id) {
            Some(again) => Ok((again, baton)),
            None => Err(StageError::NothingToResume { phase: plan.phase.clone() }),
        };
    }
    let started_at = now().unix_micros;
    let id: RunId = new_id("EX", started_at)?;
    let execution = Execution {
        id: id.to_string(),
        file,
        phase: plan.phase.clone(),
        groups: plan.groups.iter().map(|group| group.id.value.clone()).collect(),
        started_at,
        ended: BTreeMap::new(),
        finished: false,
    };
    let baton = baton(executor, &execution.id)?;
    keep_plan(executor.runs().folder(), &execution.id, plan)?;
    execution.keep(executor.runs().folder())?;
    Ok((execution, baton))
}

/// The lease that whoever conducts an execution holds.
fn baton(executor: &Executor, execution: &str) -> Result<Lease, StageError> {
    let name: Name = baton_name(execution).parse().expect("letters, digits and dashes are a name");
    let owner: Owner = format!("worker:{}", executor.worker()).parse().expect("an id is an owner");
    let worker = executor.record();
    let claim = Claim {
        owner,
        resources: vec![Resource { target: Target::Name(name), mode: Mode::Exclusive }],
        proof: Proof {
            origin: worker.origin.clone(),
            voucher: Voucher::KernelLock { holder: worker.holder, process: worker.process },
        },
        contract: Contract::Strict,
        ttl: None,
        reason: Some("conducts an execution of stages".to_owned()),
        ticket: None,
    };
    let priority = Priority::new(0).expect("zero is a priority");
    let request = lease::Request { claim, priority, under: Vec::new(), wait: None, join: false };
    let jams = match executor.leases().acquire(&request).map_err(RunError::from)? {
        Outcome::Granted(grant) => return Ok(grant.lease),
        Outcome::Held(jams) => jams,
        Outcome::Waiting(_) | Outcome::Deadlock(_) | Outcome::Gone => Vec::new(),
    };
    Err(StageError::Conducted { execution: execution.to_owned(), why: why(&jams) })
}

/// Who holds what a group of an execution needs.
pub(super) fn group_owner(execution: &str, place: usize) -> String {
    format!("stage:{execution}.{}", place + 1)
}

/// The execution that the group of this owner belongs to.
pub fn execution_of(owner: &str) -> Option<String> {
    let (execution, _) = owner.strip_prefix("stage:")?.rsplit_once('.')?;
    Some(execution.to_owned())
}

/// What whoever conducts an execution holds.
pub(super) fn baton_name(execution: &str) -> String {
    format!("stages/{execution}")
}

/// The plan that an execution began with; none where it was not kept. The file may say something else by now.
pub fn plan_of(state: &Path, id: &str) -> Option<PlanView> {
    serde_json::from_slice(&fs::read(plan_path(state, id)).ok()?).ok()
}

/// Keeps the plan, which does not change any more, beside the record, which does.
fn keep_plan(state: &Path, id: &str, plan: &PhasePlan) -> Result<(), StageError> {
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
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(StageError::Io { action: "make", path, source }),
    }
}

/// The STAGES.yml files that were executed.
pub fn files(state: &Path) -> Result<BTreeSet<PathBuf>, StageError> {
    Ok(all(state)?.into_iter().map(|execution| PathBuf::from(execution.file)).collect())
}

/// The latest execution of this phase of this file that did not come to its end.
pub fn latest_unfinished(state: &Path, file: &str, phase: &str) -> Result<Option<Execution>, StageError> {
    let ours = all(state)?.into_iter().filter(|one| one.file == file && one.phase == phase && !one.finished);
    Ok(ours.max_by_key(|execution| execution.started_at))
}

/// The execution with this id; none where that is no id of one.
pub(super) fn one(state: &Path, id: &str) -> Result<Option<Execution>, StageError> {
    let is_id = id.len() <= MOST_LETTERS && id.chars().all(|one| one.is_ascii_alphanumeric() || one == '-');
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

/// All executions that are known, in no order.
pub(super) fn all(state: &Path) -> Result<Vec<Execution>, StageError> {
    let folder = folder(state);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StageError::Io { action: "list", path: folder, source }),
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let records = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    // What cannot be read is not ours to go on with; what is there of it stays.
    Ok(records.filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok()).collect())
}

/// The folder that records are kept in; it is there once something was executed.
pub fn folder(state: &Path) -> PathBuf {
    state.join("stages")
}
