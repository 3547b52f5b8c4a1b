//! The processes of a run: found by their process mark, a variable in their environment, and by the liveness lock that they
//! share, and ended with the run.

use std::io;
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::liveness::{LockState, ProcessRef};
use lockkeeper_core::run::Run;

use super::events::Events;
use crate::Engine;
use lockkeeper_platform::exec::{between_starts, is_command_of_another};
use lockkeeper_platform::liveness_lock::{LivenessFile, LivenessLock};
use lockkeeper_platform::process;
use lockkeeper_platform::tree::{self, Root, Stop, stop_tree};

/// The variable that every process of a run has in its environment.
pub(crate) const RUN_ID: &str = "LOCKKEEPER_RUN_ID";

/// A liveness lock that seems to be shared is read again after these pauses, while other commands may start.
const PAUSES: [Duration; 3] =
    [Duration::from_micros(200), Duration::from_micros(500), Duration::from_millis(1)];
/// It counts as shared if it is still held at this many more reads, during which no other command starts.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_micros(250);
/// How often processes that could not be ended are checked again.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The process mark of a run: `NAME=value` in the environment of each of its processes.
pub(super) fn process_mark(run: &RunId) -> String {
    format!("{RUN_ID}={run}")
}

/// Finds and ends processes of runs.
pub(super) struct RunProcesses<'p> {
    pub(super) leases: &'p Engine,
    pub(super) events: &'p Events,
    /// How long a process may take to end by itself after it was asked to.
    pub(super) grace: Duration,
    /// Workers hold the liveness locks of their runs, too. They are no processes of a run.
    pub(super) workers: Vec<ProcessRef>,
}

/// What shares the liveness lock of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Nothing of the run: no process of it lives.
    Nothing,
    /// These processes.
    Seen(Vec<ProcessRef>),
    /// Processes that this user may not look at.
    Unseen,
}

impl RunProcesses<'_> {
    /// Ends what the command left running. Processes that hold the liveness lock are found by it; those that closed it are found
    /// among reparented orphans.
    pub(super) fn end_leftovers(&self, run: &Run) {
        let mark = process_mark(&run.id);
        let left = process::reap_orphans().into_iter().any(|orphan| tree::has_mark(orphan, &mark));
        if left || run.process().is_some_and(|process| self.is_shared(process.holder)) {
            // The command has ended by itself, so the run does not wait for a daemon that this user may not look at.
            if let Some(left) = self.end_seen(run) {
                self.events.warn(left);
            }
            process::reap_orphans();
        }
    }

    /// Ends every process of a run, and waits for those that this process may not end. Returns false if the worker has to end
    /// before they are gone: then the run is not over, and is left to the next worker.
    ///
    /// `lock` is this process's copy of the liveness lock of the run. It is dropped when only unseen processes may be left.
    pub(super) fn end_all(&self, run: &Run, lock: &mut Option<LivenessLock>) -> bool {
        let mut told = false;
        loop {
            let unseen = || {
                drop(lock.take());
                (self.sharing(run) == Sharing::Unseen).then(|| unseen(run))
            };
            let Some(left) = self.end_seen(run).or_else(unseen) else { return true };
            if !std::mem::replace(&mut told, true) {
                self.events.warn(format!("{left}: it is not over before they are gone"));
            }
            if self.events.is_past_deadline() {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends every process that carries the run's mark, and those that share its liveness lock without the mark. Describes those
    /// that are left.
    fn end_seen(&self, run: &Run) -> Option<String> {
        let mark = process_mark(&run.id);
        let mut left = self.end_tree(Root::Marked, Some(&mark));
        if let Sharing::Seen(processes) = self.sharing(run) {
            for one in processes {
                left = left.and_then(|mut left| {
                    left.extend(self.end_tree(Root::Process(one), None)?);
                    Ok(left)
                });
            }
        }
        match left {
            Ok(left) if left.is_empty() => None,
            Ok(left) => {
                let left: Vec<String> = left.into_iter().map(in_words).collect();
                Some(format!("this user cannot end {} of {}", left.join(", "), run.id))
            }
            Err(error) => Some(format!("cannot end the processes of {}: {error}", run.id)),
        }
    }

    /// What shares a run's liveness lock.
    pub(super) fn sharing(&self, run: &Run) -> Sharing {
        let Some(holder) = run.process().map(|process| process.holder) else { return Sharing::Nothing };
        if !self.is_shared(holder) {
            return Sharing::Nothing;
        }
        let sharing = between_starts(|| self.leases.probe().liveness_file().processes(holder));
        if sharing.is_empty() && LivenessFile::SHOWS_PROCESSES && self.is_shared(holder) {
            return Sharing::Unseen;
        }
        let others = sharing.into_iter().filter(|process| !is_command_of_another(process.pid, holder));
        let others = others.filter(|process| !self.workers.contains(process));
        let others: Vec<ProcessRef> =
            others.filter(|process| !process::is_before_exec(process.pid)).collect();
        if others.is_empty() { Sharing::Nothing } else { Sharing::Seen(others) }
    }

    fn end_tree(&self, root: Root, mark: Option<&str>) -> io::Result<Vec<ProcessRef>> {
        stop_tree(&Stop { root, grace: self.grace, mark })
    }

    /// Whether any process shares a liveness lock. A command that is just being started has a copy of every lock for a
    /// moment. So the lock is read several times before starts of other commands are blocked.
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

/// A process that could not be ended, and whose it is.
fn in_words(process: ProcessRef) -> String {
    match process::foreign_user(process) {
        Some(user) => format!("process {} of user {user}", process.pid),
        None => format!("process {}", process.pid),
    }
}

fn unseen(run: &Run) -> String {
    format!("processes of {} live that this user may not look at", run.id)
}
