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
use crate::engine::runs::{RunError, new_id, write_whole};
use crate::engine::work::{Executor, why};
use crate::stages::PhasePlan;
use crate::store::runs::now;

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
        let folder = folder(state);
        let failed = |action| {
            let path = folder.clone();
            move |source| StageError::Io { action, path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed("make"))?;
        let text = serde_json::to_string_pretty(self).expect("texts and numbers can always be written");
        write_whole(&folder.join(format!("{}.json", self.id)), text.as_bytes()).map_err(failed("write to"))
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
    execution.keep(executor.runs().folder())?;
    Ok((execution, baton))
}

/// The lease that whoever conducts an execution holds.
fn baton(executor: &Executor, execution: &str) -> Result<Lease, StageError> {
    let name: Name = format!("stages/{execution}").parse().expect("letters, digits and dashes are a name");
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

/// The STAGES.yml files that were executed.
pub fn files(state: &Path) -> Result<BTreeSet<PathBuf>, StageError> {
    Ok(all(state)?.into_iter().map(|execution| PathBuf::from(execution.file)).collect())
}

/// The latest execution of this phase of this file that did not come to its end.
pub fn latest_unfinished(state: &Path, file: &str, phase: &str) -> Result<Option<Execution>, StageError> {
    let ours = all(state)?.into_iter().filter(|one| one.file == file && one.phase == phase && !one.finished);
    Ok(ours.max_by_key(|execution| execution.started_at))
}

fn all(state: &Path) -> Result<Vec<Execution>, StageError> {
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

fn folder(state: &Path) -> PathBuf {
    state.join("stages")
}
