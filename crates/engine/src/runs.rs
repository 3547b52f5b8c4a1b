//! Requests and runs: one function for each use case.
//!
//! Each function reads a snapshot of the store, computes the next record by a rule of [`lockkeeper_core::run::transition`], and
//! writes it by compare-and-set. If another process changed the run in between, it decides again with the current record.

pub mod activity;
mod answering;
mod blocked;
pub mod bulk;
pub(super) mod claiming;
pub(super) mod completing;
mod dependencies;
pub mod environment;
mod folder;
mod lookup;
mod moves;
pub mod new_request;
pub mod output;
pub(crate) mod portable;
mod rescuing;
mod stats;
mod submit;
pub mod swarm;
pub mod template;
mod wait;
mod workers;
pub(super) mod write_again;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::transition::TransitionError;
use lockkeeper_core::run::{Run, Stamp, Status};
use lockkeeper_core::time::Moment;
use thiserror::Error;

pub use answering::ANSWER;
use answering::LONGEST_ANSWER;
pub use blocked::Blocked;
pub(crate) use dependencies::FailedBefore;
pub use dependencies::{Stuck, flags_for, never_starts};
pub use folder::RunFolder;
#[cfg(feature = "stages")]
pub(super) use folder::write_whole;
pub use lockkeeper_core::run::admission::{Refusal, Submitted};
pub use lockkeeper_store::runs::{AutoRun, RequestFilter, RunFilter, StoredEvent, StoredRequest};
pub use lookup::{Changes, RequestEntry, RunDetail, RunEntry, Totals};
pub use moves::Canceled;
pub(crate) use moves::EndedElsewhere;
pub use stats::{Group, Spread, Stats};
pub use submit::SubmitError;
pub use wait::Subscription;
pub use workers::{Host, WorkerEntry};
pub(super) use workers::{is_gone, session_ends_at};

use crate::location::Location;
use crate::open::{OpenError, has_run_store, open_run_store, open_run_store_to_read, open_shared_runs};
use crate::shared_store::SharedStore;
use lockkeeper_platform::{access, clock, random};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{RunRecords, RunStore};

/// Requests and runs of one state folder, or of a store that several machines share.
pub struct Runs {
    store: Arc<dyn RunStore>,
    /// The state folder: the output of runs, and small files of workers.
    folder: PathBuf,
    /// The folder with the liveness locks of workers and runs.
    liveness: PathBuf,
    /// The root of the project: on a store that several machines share, folders of requests are relative to it. None if the store
    /// is never one of several machines.
    root: Option<PathBuf>,
}

/// Why a run was not changed.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no such run.
    #[error("there is no run `{0}`")]
    NoRun(String),
    /// Several ids fit this text: it is the end of the id, or the beginning of its last part.
    #[error("`{text}` is the beginning or end of several ids: runs {} and {}", short_id(one.as_str()), short_id(other.as_str()))]
    Ambiguous {
        /// The text.
        text: String,
        /// One of the runs.
        one: RunId,
        /// Another.
        other: RunId,
    },
    /// There is no such request.
    #[error("there is no request `{0}`")]
    NoRequest(RequestId),
    /// The state of the run does not allow the change.
    #[error("run {run} is {current}")]
    Refused {
        /// Which run.
        run: RunId,
        /// Its status.
        current: Status,
        /// Why that does not allow it.
        source: TransitionError,
    },
    /// A run of the request has not ended.
    #[error("request {request} is {status}: run {run}")]
    InProgress {
        /// Which request.
        request: RequestId,
        /// That run.
        run: RunId,
        /// The status of that run.
        status: Status,
    },
    /// The request comes after others that are not done.
    #[error("request {request} comes after {}, not done yet", names(unmet))]
    DependsNotDone {
        /// Which request.
        request: RequestId,
        /// Those that are not done.
        unmet: Vec<RequestId>,
    },
    /// Another process renews the session of this worker.
    #[error("a copy of worker {0}, on a cloned machine, goes on with its runs")]
    WorkerTaken(WorkerId),
    /// The request does not wait for an answer.
    #[error("request {request} is {status} and does not wait for an answer")]
    NotAsked {
        /// Which request.
        request: RequestId,
        /// Its status.
        status: RequestStatus,
    },
    /// The answer cannot be passed to a command.
    #[error("an answer has 1 to {LONGEST_ANSWER} bytes, and no NUL byte")]
    BadAnswer,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output of a run cannot be read.
    #[error(transparent)]
    Unreadable(io::Error),
    /// A system call failed.
    #[error("cannot find out about this process or machine")]
    Machine(#[source] io::Error),
}

fn names(requests: &[RequestId]) -> String {
    requests.iter().map(|request| request.as_str()).collect::<Vec<_>>().join(", ")
}

impl From<OpenError> for RunError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => Self::Store(error),
            OpenError::Machine(error) => Self::Machine(error),
        }
    }
}

impl RunError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoRun(_) => "`lockkeeper runs` lists them".to_owned(),
            Self::Ambiguous { .. } => "write more of its id".to_owned(),
            Self::NoRequest(_) => "`lockkeeper requests` lists them".to_owned(),
            Self::Refused { run, .. } => format!("`lockkeeper run show {run}` tells what happened"),
            Self::InProgress { run, .. } => format!("`lockkeeper run wait {run}` waits for its end"),
            Self::DependsNotDone { unmet, .. } => {
                format!("run `{}` first, or confirm that this one starts without it", names(unmet))
            }
            Self::NotAsked { request, .. } => {
                format!(
                    "`lockkeeper requests` shows which do; `lockkeeper run again {request}` starts it once more"
                )
            }
            Self::WorkerTaken(_) => "start the worker again: it gets an id of its own".to_owned(),
            Self::BadAnswer => "write a longer one to a file, and answer with its name".to_owned(),
            Self::Store(error) => error.hint(),
            Self::Unreadable(_) => "check that the state folder is yours".to_owned(),
            Self::Machine(_) => "check that /proc is mounted".to_owned(),
        }
    }
}

impl Runs {
    /// Opens the store in this state folder, and creates both if they are missing.
    pub fn open(folder: &Path) -> Result<Self, RunError> {
        let (store, folder) = (open_run_store(folder)?, folder.to_owned());
        Ok(Self { store, liveness: folder.clone(), folder, root: None })
    }

    /// Opens the requests and runs of this location, and creates what is missing.
    pub fn at(location: &Location) -> Result<Self, RunError> {
        match &location.shared {
            Some(shared) => {
                let made = access::make_state_folder(&location.state);
                made.map_err(|source| StoreError::io("make", &location.state, source))?;
                match open_shared_runs(shared)? {
                    Some(store) => Self::shared(store, location),
                    None => Self::local(open_run_store(&location.state)?, location),
                }
            }
            None => Ok(Self { root: Some(location.root.clone()), ..Self::open(&location.state)? }),
        }
    }

    /// Opens the requests and runs of this location to read them; none if there is no store yet. Works without a state folder
    /// where several machines share the store.
    pub fn existing_at(location: &Location) -> Result<Option<Self>, RunError> {
        match &location.shared {
            Some(shared) => match open_shared_runs(shared)? {
                Some(store) => Self::shared(store, location).map(Some),
                None if has_run_store(&location.state) => {
                    Self::local(open_run_store_to_read(&location.state)?, location).map(Some)
                }
                None => Ok(None),
            },
            None => {
                let root = Some(location.root.clone());
                Ok(Self::open_existing(&location.state)?.map(|runs| Self { root, ..runs }))
            }
        }
    }

    /// The requests and runs of this location over a store that is open.
    pub(crate) fn over(store: Arc<dyn RunStore>, location: &Location) -> Result<Self, RunError> {
        if location.shared.is_some() {
            return Self::shared(store, location);
        }
        let folder = location.state.clone();
        Ok(Self { store, liveness: folder.clone(), folder, root: Some(location.root.clone()) })
    }

    fn shared(store: Arc<dyn RunStore>, location: &Location) -> Result<Self, RunError> {
        let (folder, liveness) = (location.state.clone(), SharedStore::liveness_folder()?);
        Ok(Self { store, folder, liveness, root: Some(location.root.clone()) })
    }

    /// Runs of this machine, under leases that several machines share.
    fn local(store: Arc<dyn RunStore>, location: &Location) -> Result<Self, RunError> {
        Ok(Self { root: None, ..Self::shared(store, location)? })
    }

    /// Opens the store in this state folder, if there is one. A command that only reads leaves nothing behind, and works
    /// where this process cannot write: then everything that changes something fails.
    pub fn open_existing(folder: &Path) -> Result<Option<Self>, RunError> {
        if !has_run_store(folder) {
            return Ok(None);
        }
        let (store, folder) = (open_run_store_to_read(folder)?, folder.to_owned());
        Ok(Some(Self { store, liveness: folder.clone(), folder, root: None }))
    }

    /// Whether this process can only read the store.
    pub fn is_read_only(&self) -> bool {
        self.store.is_read_only()
    }

    /// The store.
    pub fn store(&self) -> &dyn RunStore {
        &*self.store
    }

    /// The time on the store's clock.
    pub fn now(&self) -> Stamp {
        self.store.now()
    }

    /// A moment of the store's clock as a moment of the clock of this machine.
    pub(crate) fn local_moment(&self, at: Moment) -> Moment {
        let (here, there) = (clock::now(), self.now().moment);
        here.after(at.since(there)).before(there.since(at))
    }

    /// The state folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of one run, which need not exist.
    pub fn folder_of(&self, run: &RunId) -> RunFolder {
        RunFolder::new(&self.folder, run)
    }

    /// Makes ids for new runs.
    fn new_run_ids(&self, count: usize) -> Result<Vec<RunId>, RunError> {
        let now = self.store.now().unix_micros;
        (0..count).map(|_| new_id("RUN", now)).collect()
    }
}

/// One run of a snapshot.
fn found(records: &dyn RunRecords, id: &RunId) -> Result<Run, RunError> {
    records.run(id)?.ok_or_else(|| RunError::NoRun(id.to_string()))
}

/// The last part of an id that was made here, such as `k3x9f2m7qd`, or `k3x9f2m7qd.2.1` for an agent of a stage; other ids as
/// they are. Commands accept it, a unique beginning of it, and a unique end of the whole id (3 characters or more).
pub fn short_id(id: &str) -> &str {
    let is_random =
        |part: &str| part.len() == ID_LENGTH && part.bytes().all(|byte| ID_LETTERS.contains(&byte));
    let of_stage = |part: &str| {
        let (execution, agent) = part.split_once('.').unwrap_or_default();
        is_random(execution) && agent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let short = match id.split_once('-') {
        Some(("RUN" | "RQ" | "W", rest)) => {
            rest.rsplit_once('-').map(|(_, part)| part).filter(|part| is_random(part))
        }
        Some(("EX", rest)) => rest.rsplit_once('-').map(|(_, part)| part).filter(|part| of_stage(part)),
        Some(_) | None => None,
    };
    short.unwrap_or(id)
}

/// The letters of the random part of an id, without those that look like digits.
const ID_LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Fifty random bits: a hundred thousand ids of one second are almost certainly different.
const ID_LENGTH: usize = 10;

/// Makes an id such as `RUN-20260131-120000-k3x9f2m7qd`: the time for people, and a random part that makes it unique.
pub(super) fn new_id<T: std::str::FromStr>(kind: &str, unix_micros: i64) -> Result<T, RunError> {
    let mut number = random::number().map_err(RunError::Machine)?;
    let mut short = String::new();
    for _ in 0..ID_LENGTH {
        short.push(char::from(ID_LETTERS[(number % 32) as usize]));
        number /= 32;
    }
    let time = lockkeeper_platform::wall_clock::WallTime::from_micros(unix_micros).compact();
    let text = format!("{kind}-{time}-{short}");
    Ok(text.parse().unwrap_or_else(|_| unreachable!("letters, digits and dashes are an id")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_second_are_all_different() {
        let ids = (0..100_000).map(|_| new_id::<RunId>("RUN", 1_769_860_800_000_000).unwrap());
        let different: std::collections::HashSet<RunId> = ids.collect();
        assert_eq!(different.len(), 100_000);
        assert!(different.iter().all(|id| id.as_str().starts_with("RUN-20260131-120000-")));
    }
}
