//! Looks after runs whose worker is dead or silent, or was lost in a power cut: adopts live commands, ends those whose
//! time is up, marks the rest LOST.
//!
//! It judges only by evidence: the kernel lock that the processes of a run share, the kernel lock and the heartbeat of
//! its worker, the boot. What it cannot judge it leaves alone. It writes no ends by itself: the completer does.

mod survey;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::liveness::LockState;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::AttemptOutcome;

pub(super) use self::survey::Survey;
use super::attempt::reusable_log;
use super::completer::{Completer, persist};
use super::control::{ActiveRuns, Control, Stop, WakePipe};
use super::events::{Events, WorkerEvent};
use super::heartbeat::{self, HeartbeatWatch};
use super::processes::{RunProcesses, mark};
use super::report::{Finished, Report};
use crate::Engine;
use crate::runs::completing::{End, Outcome};
use crate::runs::{RunError, Runs};
use lockkeeper_platform::exec::Ending;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::{clock, poll, process, tree};
use lockkeeper_store::runs::Worker as WorkerRecord;

/// A run whose time is up is reported again after this long: the store may have failed.
const REPORT_AGAIN: Duration = Duration::from_millis(100);

/// Rescues runs for one worker, which need not claim any.
#[derive(Clone)]
pub struct Rescuer {
    pub(super) runs: Arc<Runs>,
    pub(super) leases: Arc<Engine>,
    pub(super) worker: Arc<WorkerRecord>,
    pub(super) active: Arc<ActiveRuns>,
    pub(super) events: Arc<Events>,
    pub(super) grace: Duration,
    pub(super) heartbeat: Duration,
    pub(super) completer: Arc<Completer>,
    pub(super) reports: Sender<Report>,
}

impl Rescuer {
    /// Adopts those runs that nobody looks after, each on a thread of its own that ends with the run.
    pub fn rescue(&self, wanted: impl Fn(&Run) -> bool) -> Result<Vec<(RunId, JoinHandle<()>)>, RunError> {
        let mut adopted = Vec::new();
        for run in self.survey()?.abandoned.into_iter().filter(wanted) {
            adopted.extend(self.adopt(&run, false, None)?.map(|thread| (run.id, thread)));
        }
        Ok(adopted)
    }

    /// Adopts all runs that nobody looks after, and those whose worker is silent. The end of each wakes `wake`.
    pub(super) fn rescue_all(
        &self,
        survey: &Survey,
        heartbeats: &mut HeartbeatWatch,
        wake: &Arc<WakePipe>,
    ) -> Result<(), RunError> {
        for run in &survey.abandoned {
            self.adopt(run, false, Some(wake))?;
        }
        if survey.theirs.is_empty() {
            return Ok(());
        }
        let is_busy = |id: &&WorkerId| survey.theirs.iter().any(|run| run.worker() == Some(*id));
        let busy = survey.others.iter().map(|other| &other.id).filter(is_busy);
        let silent = heartbeats.look(self.runs.folder(), busy, self.heartbeat);
        let is_silent = |run: &&Run| run.worker().is_some_and(|id| silent.contains(id));
        for run in survey.theirs.iter().filter(is_silent) {
            self.adopt(run, true, Some(wake))?;
        }
        Ok(())
    }

    /// Removes the files of workers that are gone and have no run left, such as those of earlier boots.
    pub(super) fn remove_stray_files(&self) -> Result<(), RunError> {
        // Listed first: a worker is registered before it makes files.
        let files = heartbeat::files(self.runs.folder());
        let logs = reusable_log::folders(self.runs.folder());
        let found = self.runs.workers_and_runs()?;
        let workers = found.workers.iter().map(|worker| &worker.id);
        let known: HashSet<&WorkerId> =
            workers.chain(found.runs.iter().filter_map(|run| run.worker())).collect();
        let is_stray = |path: &&PathBuf| !known.iter().any(|id| path.ends_with(id.as_str()));
        // Another worker may do the same now.
        files.iter().filter(is_stray).for_each(|path| drop(fs::remove_file(path)));
        logs.iter().filter(is_stray).for_each(|path| drop(fs::remove_dir_all(path)));
        Ok(())
    }

    /// Adopts a run; `is_silent` when its worker lives but was silent for too long. None when somebody else was first.
    fn adopt(
        &self,
        run: &Run,
        is_silent: bool,
        wake: Option<&Arc<WakePipe>>,
    ) -> Result<Option<JoinHandle<()>>, RunError> {
        let pipe = WakePipe::new().map_err(RunError::Machine)?;
        // Before the record says that another worker is responsible for it.
        if let Err(error) = reusable_log::rescue(self.runs.folder(), &run.id, &self.runs.folder_of(&run.id)) {
            self.events.trouble(format!("cannot keep what {} wrote: {error}", run.id));
        }
        let Some((run, request)) = self.runs.adopt(run, &self.worker.id)? else { return Ok(None) };
        self.events.publish(&WorkerEvent::Adopted(run.clone()), None);
        let control = self.active.add(&run, Arc::new(pipe));
        let (rescuer, wake) = (self.clone(), wake.map(Arc::clone));
        let work = move || {
            rescuer.look_after(run, request, is_silent, &control);
            if let Some(wake) = wake {
                wake.wake();
            }
        };
        let spawned = thread::Builder::new().name("adopted".to_owned()).spawn(work);
        spawned.map(Some).map_err(RunError::Machine)
    }

    /// Waits for the end of an adopted run, and until that end is written.
    fn look_after(&self, run: Run, request: Request, is_silent: bool, control: &Control) {
        let outcome = if !run.status().is_active() {
            self.end_processes(&run);
            Outcome::Recorded
        } else if is_silent {
            self.end_processes(&run);
            Outcome::Observed(AttemptOutcome::Replaced)
        } else {
            match self.events.catch_panic(&run.id, || self.wait_for_end(&run, control)) {
                Some(Ok(outcome)) => outcome,
                failed => {
                    if let Some(Err(error)) = failed {
                        self.events.trouble(format!("cannot look after {}: {error}", run.id));
                    }
                    self.end_processes(&run);
                    Outcome::Observed(AttemptOutcome::Vanished)
                }
            }
        };
        let ended_at = self.runs.now();
        self.completer.complete(Finished::of(End { run, request, outcome, ended_at }));
    }

    /// Waits until nothing of a run lives.
    fn wait_for_end(&self, run: &Run, control: &Control) -> io::Result<Outcome> {
        let vanished = || Ok(Outcome::Observed(AttemptOutcome::Vanished));
        let Some(process) = run.process() else { return vanished() };
        let life = self.leases.probe().liveness_file();
        let held = life.look(process.holder) == LockState::Held;
        // A command whose process was not recorded is found by its mark.
        let command = process.command.or_else(|| held.then(|| tree::marked_leader(&mark(run))).flatten());
        let exit = match command.map(process::watch) {
            Some(Watch::Exit(exit)) => Some(exit),
            Some(Watch::Unavailable) if held => None,
            Some(Watch::Gone | Watch::Unavailable) | None => {
                // Nobody saw how it ended. What it left behind is ended with it.
                self.end_processes(run);
                return vanished();
            }
        };
        let mut report_at = run.times_out_at().map(|at| self.runs.local_moment(at));
        loop {
            match control.take() {
                None => {}
                Some(Stop::Canceled) => {
                    self.end_processes(run);
                    return Ok(Outcome::Observed(AttemptOutcome::Stopped(None)));
                }
                Some(Stop::Recorded) => {
                    self.end_processes(run);
                    return Ok(Outcome::Recorded);
                }
                Some(Stop::Superseded) => return Ok(Outcome::Superseded),
            }
            let ended = match &exit {
                Some(exit) => poll::wait(&[exit.as_fd()], Some(Duration::ZERO))?.any(),
                None => life.look(process.holder) != LockState::Held,
            };
            if ended {
                let status = exit.as_ref().zip(command);
                let status = status.and_then(|(exit, command)| process::exit_status(exit, command));
                self.end_processes(run);
                return match status {
                    Some(status) => {
                        Ok(Outcome::Observed(AttemptOutcome::Ended(Ending::from_wait(status).into())))
                    }
                    None => vanished(),
                };
            }
            if report_at.is_some_and(|at| at <= clock::now()) {
                let _ = self.reports.send(Report::Overdue(Box::new(run.clone())));
                report_at = Some(clock::now().after(REPORT_AGAIN));
            }
            let sentry = if exit.is_none() { self.leases.probe().watch_lock(process.holder) } else { None };
            let mut descriptors: Vec<BorrowedFd<'_>> = vec![control.as_fd()];
            descriptors.extend(exit.as_ref().map(AsFd::as_fd));
            descriptors.extend(sentry.as_ref().map(|sentry| sentry.as_fd()));
            poll::wait(&descriptors, report_at.map(|at| at.since(clock::now())))?;
        }
    }

    fn end_processes(&self, run: &Run) {
        // Workers hold the kernel locks of their runs, too: one that is silent is not a process of the run.
        let workers = persist(&self.events, "list the workers", || self.runs.worker_processes());
        let (leases, events) = (&*self.leases, &*self.events);
        RunProcesses { leases, events, grace: self.grace, workers }.end_all(run);
    }
}
