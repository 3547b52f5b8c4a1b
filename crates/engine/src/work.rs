//! Workers: claim queued runs, execute their commands, record how they ended.
//!
//! ARCHITECTURE.md draws its types, threads and channels ("The worker").
//!
//! | type | thread | what it owns |
//! |---|---|---|
//! | [`Worker`] | the caller's, and `heartbeat` while it executes something | registration, heartbeat, the threads |
//! | `Claimer` | `claimer` | tickets for the leases of runs |
//! | `Attempt` | `slot N`, one for each job | one command with its log and liveness lock |
//! | `Completer` | the slot that has finished commits; `completer` publishes and releases | results that wait, the transaction |
//! | [`Rescuer`] | the caller's, and `adopted` for each run | the evidence about other workers |
//!
//! After a crash at any step, another process can continue from what is on the disk:
//!
//! 1. The lease is taken first, for a liveness lock of this run: the worker holds it, then the command inherits it. A crash
//!    here frees the lease.
//! 2. The claim names that liveness lock. Any process that finds the run later can ask the kernel whether a process of it
//!    lives, also when the command was started and its number was not recorded.
//! 3. The claim is on the disk before the command begins. No power cut makes a run that has begun one that has not.
//! 4. The command writes to its log by itself: it does not notice that its worker died.
//! 5. The end is one compare-and-set with the claim's number. It is published, and the lease is released, when it is on
//!    the disk.

mod attempt;
mod claimer;
mod completer;
mod completer_message;
mod control;
mod end_records;
mod events;
mod guardian;
mod heartbeat;
mod lock_files;
mod orphans;
mod output_copier;
mod processes;
mod rescuer;
mod session;
mod slots;
mod stage_attempts;
mod stage_file;
mod start_records;
mod watch;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(feature = "stages")]
pub(crate) use claimer::why;
pub use claimer::{ClaimResult, Claimed};
pub(crate) use end_records::has_ended;
pub use events::{Listener, WorkerEvent};
#[cfg(feature = "stages")]
pub(crate) use lock_files::remove_of_ended;
pub use orphans::Orphans;
#[cfg(feature = "stages")]
pub(crate) use processes::RUN_ID;
pub use rescuer::Rescuer;
#[cfg(feature = "stages")]
pub(crate) use stage_attempts::WHY as STAGE_GONE;
#[cfg(feature = "stages")]
pub(crate) use stage_file::{mend as mend_stage, write_end as write_stage_end};
pub use watch::{RescueWatch, StartWorker, UnattendedRuns, Wanted, unattended_runs};
#[cfg(feature = "stages")]
pub(crate) use watch::{UnattendedFindings, unattended_findings};
pub use worker::{ControlListener, Worker};

use lockkeeper_core::id::{Name, WorkerId};
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_formats::swarm::Swarm;

/// How commands are executed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a command may take to end by itself after it was asked to.
    pub grace: Duration,
    /// How many bytes of a command's output are kept at most.
    pub output_limit: u64,
    /// The interval of the heartbeat of a worker that executes something. After three missed ones another worker replaces it.
    pub heartbeat: Duration,
    /// The labels of the worker: it also executes requests that need them.
    pub labels: Vec<Name>,
    /// Environment variables for commands besides those of their requests: names and values.
    pub variables: Vec<(String, String)>,
    /// The lock files of aiflow. If set, a run is executed only while this worker holds the file of its request.
    pub aiflow: Option<Aiflow>,
    /// The lock files of a swarm. If set, a run of one of its tasks is executed only while this worker holds the file of the task.
    pub swarm: Option<Swarm>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(10),
            output_limit: 256 * 1024 * 1024,
            heartbeat: Duration::from_secs(10),
            labels: Vec::new(),
            variables: Vec::new(),
            aiflow: None,
            swarm: None,
        }
    }
}

/// The folder in which a worker keeps small files about its commands.
pub(crate) fn worker_folder(state: &Path, worker: &WorkerId) -> PathBuf {
    attempt::reusable_log::folder_of(state, worker)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
