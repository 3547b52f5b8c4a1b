//! Control of a phase: stops all its groups, and cancels their runs.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockkeeper_core::id::RunId;

use crate::runs::RunError;
use crate::work::Worker;

/// Stop flag that all groups share, and the runs to cancel.
pub(super) struct PhaseControl {
    stop: AtomicBool,
    /// The read end of a pipe. It becomes readable when all groups have to stop.
    pub(super) stopped: OwnedFd,
    stopper: Mutex<Option<OwnedFd>>,
    /// Whether groups ignore `lease_timeout`. Set when a rule makes groups run one by one.
    pub(super) wait_without_limit: AtomicBool,
    /// Runs that are being executed.
    pub(super) active: Mutex<Vec<RunId>>,
}

impl PhaseControl {
    pub(super) fn new() -> Result<Self, RunError> {
        let (stopped, stopper) = lockkeeper_platform::pipe::nonblocking().map_err(RunError::Machine)?;
        Ok(Self {
            stop: AtomicBool::new(false),
            stopped,
            stopper: Mutex::new(Some(stopper)),
            wait_without_limit: AtomicBool::new(false),
            active: Mutex::default(),
        })
    }

    /// Stops all groups: no agent starts any more, and running agents are canceled.
    pub(super) fn stop(&self, worker: &Worker, why: &str) {
        self.stop.store(true, Ordering::SeqCst);
        drop(locked(&self.stopper).take());
        for run in locked(&self.active).iter() {
            // A run that has ended cannot be canceled.
            let _ = worker.runs().cancel(run, Some(why));
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
