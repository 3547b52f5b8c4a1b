//! The processes of a run: found by the variable that each of them carries and by the kernel lock that they share, and
//! ended with the run.

use std::thread;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::liveness::{LockState, ProcessRef};
use lockkeeper_core::run::Run;

use super::events::Events;
use crate::Engine;
use lockkeeper_platform::exec::{between_starts, is_command_of_another};
use lockkeeper_platform::process;
use lockkeeper_platform::tree::{self, Root, Stop, stop_tree};

/// The variable that every process of a run has in its environment.
pub(crate) const RUN_ID: &str = "LOCKKEEPER_RUN_ID";

/// A kernel lock that seems to be shared is looked at again after these pauses, while other commands may start.
const PAUSES: [Duration; 3] =
    [Duration::from_micros(200), Duration::from_micros(500), Duration::from_millis(1)];
/// It counts as shared when it is held at this many more looks, during which no other command starts.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_micros(250);

/// `NAME=value` in the environment of every process of a run.
pub(super) fn mark(run: &RunId) -> String {
    format!("{RUN_ID}={run}")
}

/// Finds and ends processes of runs.
pub(super) struct RunProcesses<'p> {
    pub(super) leases: &'p Engine,
    pub(super) events: &'p Events,
    /// How long a process may take to end by itself after it was asked to.
    pub(super) grace: Duration,
    /// Workers hold the kernel locks of their runs, too. They are no processes of a run.
    pub(super) workers: Vec<ProcessRef>,
}

impl RunProcesses<'_> {
    /// Ends what the command left running. What shares the kernel lock lives; processes that closed it are found among
    /// the orphans that this process took in.
    pub(super) fn end_leftovers(&self, run: &Run) {
        let mark = mark(&run.id);
        let left = process::reap_orphans().into_iter().any(|orphan| tree::has_mark(orphan, &mark));
        if left || run.process().is_some_and(|process| self.is_shared(process.holder)) {
            self.end_all(run);
            process::reap_orphans();
        }
    }

    /// Ends every process that carries the run's mark, and those that share its kernel lock without the mark.
    pub(super) fn end_all(&self, run: &Run) {
        let mark = mark(&run.id);
        self.end_tree(run, Root::Marked, Some(&mark));
        for one in self.sharing(run) {
            self.end_tree(run, Root::Process(one), None);
        }
    }

    /// The processes that share a run's kernel lock.
    pub(super) fn sharing(&self, run: &Run) -> Vec<ProcessRef> {
        let Some(holder) = run.process().map(|process| process.holder) else { return Vec::new() };
        if !self.is_shared(holder) {
            return Vec::new();
        }
        let sharing = between_starts(|| self.leases.probe().liveness_file().processes(holder));
        let others = sharing.into_iter().filter(|process| !is_command_of_another(process.pid, holder));
        let others = others.filter(|process| !self.workers.contains(process));
        others.filter(|process| !process::is_before_exec(process.pid)).collect()
    }

    fn end_tree(&self, run: &Run, root: Root, mark: Option<&str>) {
        match stop_tree(&Stop { root, grace: self.grace, mark }) {
            Ok(left) if left.is_empty() => {}
            Ok(left) => {
                self.events.trouble(format!("{} processes of {} could not be ended", left.len(), run.id));
            }
            Err(error) => self.events.trouble(format!("cannot end the processes of {}: {error}", run.id)),
        }
    }

    /// Whether any process shares a kernel lock. A command that is just being started has a copy of every lock for a
    /// moment. So the lock is looked at several times before other commands are kept from starting.
    fn is_shared(&self, holder: HolderId) -> bool {
        let look = || self.leases.probe().liveness_file().look(holder) == LockState::Held;
        let stays_held = |held: bool, pause: Duration| {
            if held {
                thread::sleep(pause);
            }
            held
        };
        PAUSES.into_iter().all(|pause| stays_held(look(), pause))
            && (0..LOOKS).all(|_| stays_held(between_starts(look), BETWEEN_LOOKS))
    }
}
