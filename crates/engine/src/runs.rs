//! Requests and runs: one function for each thing that can be asked.
//!
//! Each reads what it needs in one transaction, asks the rules of [`lockkeeper_core::run::life`], and replaces the
//! record only if nobody else did meanwhile. Losing that race is a normal outcome, told in the answer.

pub mod bulk;
pub(super) mod claiming;
pub(super) mod completing;
pub mod environment;
mod folder;
mod lookup;
mod moves;
pub mod new_request;
pub mod output;
mod rescuing;
mod stats;
mod submit;
pub mod swarm;
pub mod template;
mod wait;

use std::io;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run::life::Lost;
use lockkeeper_core::run::{Run, Status};
use thiserror::Error;

pub use folder::RunFolder;
#[cfg(feature = "stages")]
pub(super) use folder::write_whole;
pub use lockkeeper_store::runs::{AutoRun, Filter as RunFilter, RequestFilter, StoredEvent, StoredRequest};
pub use lookup::{Blocked, Changes, RequestEntry, RunDetail, RunEntry};
pub use moves::Canceled;
pub use stats::{Group, Spread, Stats};
pub use submit::{Refused, Submitted};
pub use wait::Heard;

use lockkeeper_platform::{origin, random};
use lockkeeper_store::runs::RunStore;
use lockkeeper_store::{StoreError, runs};

/// Requests and runs of one state folder.
pub struct Runs {
    store: RunStore,
    /// The state folder.
    folder: PathBuf,
}

/// Why nothing was done to a run.
#[derive(Debug, Error)]
pub enum RunError {
    /// There is no such run.
    #[error("there is no run `{0}`")]
    NoRun(String),
    /// Several runs end like this.
    #[error("`{text}` is the end of several runs: {one}, {other}")]
    Ambiguous {
        /// What was meant to name one.
        text: String,
        /// One that it could be.
        one: RunId,
        /// Another.
        other: RunId,
    },
    /// There is no such request.
    #[error("there is no request `{0}`")]
    NoRequest(RequestId),
    /// The compare-and-set was lost: the run is not where it was thought to be.
    #[error("run {run} is {current}")]
    Lost {
        /// Which run.
        run: RunId,
        /// Where it is.
        current: Status,
        /// Why that does not fit.
        source: Lost,
    },
    /// A run of the request is going on.
    #[error("request {request} is {status}: run {run}")]
    InProgress {
        /// Which request.
        request: RequestId,
        /// Its run.
        run: RunId,
        /// Where that is.
        status: Status,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The machine did not tell what is needed.
    #[error("cannot find out about this process or machine")]
    Machine(#[source] io::Error),
}

impl RunError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::NoRun(_) => "`lockkeeper runs` lists them".to_owned(),
            Self::Ambiguous { .. } => "write more of its id".to_owned(),
            Self::NoRequest(_) => "`lockkeeper requests` lists them".to_owned(),
            Self::Lost { run, .. } => format!("`lockkeeper run show {run}` tells what happened"),
            Self::InProgress { run, .. } => format!("`lockkeeper run wait {run}` waits for its end"),
            Self::Store(error) => error.hint(),
            Self::Machine(_) => "check that /proc is mounted".to_owned(),
        }
    }
}

impl Runs {
    /// Opens those in this state folder, which is made if it is not there.
    pub fn open(folder: &Path) -> Result<Self, RunError> {
        let boot = origin::origin().map_err(RunError::Machine)?.boot;
        Ok(Self { store: RunStore::open(folder, &boot)?, folder: folder.to_owned() })
    }

    /// Opens those in this state folder if there are any: who only looks leaves nothing behind.
    pub fn open_existing(folder: &Path) -> Result<Option<Self>, RunError> {
        if RunStore::exists(folder) { Self::open(folder).map(Some) } else { Ok(None) }
    }

    /// The store.
    pub fn store(&self) -> &RunStore {
        &self.store
    }

    /// The state folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of one run, which need not exist.
    pub fn folder_of(&self, run: &RunId) -> RunFolder {
        RunFolder::new(&self.folder, run)
    }

    fn found(tables: &runs::Tables<'_>, id: &RunId) -> Result<Result<Run, RunError>, StoreError> {
        Ok(tables.run(id)?.ok_or_else(|| RunError::NoRun(id.to_string())))
    }
}

/// An id such as `RUN-20260131-120000-k3x9f2m7qd`: the time for people, the rest so that nobody else has it.
pub(super) fn new_id<T: std::str::FromStr>(kind: &str, unix_micros: i64) -> Result<T, RunError> {
    /// Without letters that are taken for digits.
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    /// Fifty bits: a hundred thousand of one second are all different, as good as always.
    const LENGTH: usize = 10;
    let mut number = random::number().map_err(RunError::Machine)?;
    let mut short = String::new();
    for _ in 0..LENGTH {
        short.push(char::from(LETTERS[(number % 32) as usize]));
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
