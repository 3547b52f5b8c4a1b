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
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::liveness::{LockState, ProcessRef};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::AttemptOutcome;

pub(super) use self::survey::{Abandoned, Survey, Surveyor};
use super::attempt::reusable_log;
use super::completer::{Completer, persist};
use super::control::{ActiveRuns, Control, Stop, WakePipe};
use super::events::{Events, WorkerEvent};
use super::heartbeat::{self, HeartbeatWatch};
use super::processes::RunProcesses;
use super::report::Finished;
use super::start_marks::StartMarks;
use crate::Engine;
use crate::runs::completing::{End, Outcome};
use crate::runs::{RunError, Runs};
use lockkeeper_platform::exec::Ending;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::{clock, poll, process};
use lockkeeper_store::runs::Worker as WorkerRecord;

/// What was found out about the worker of a run.
#[derive(Clone, Copy)]
enum Found {
    /// It is gone. The command lives, if there is one.
    Abandoned(Option<ProcessRef>),
    /// It lives, but was silent for too long.
    Silent,
}

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
    pub(super) marks: Arc<StartMarks>,
}

impl Rescuer {
    /// Adopts those runs that nobody looks after, each on a thread of its own that ends with the run.
    pub fn rescue(&self, wanted: impl Fn(&Run) -> bool) -> Result<Vec<(RunId, JoinHandle<()>)>, RunError> {
        let mut adopted = Vec::new();
        for one in self.survey()?.abandoned.into_iter().filter(|one| wanted(&one.run)) {
            let id = one.run.id.clone();
            adopted.extend(self.rescue_one(&one, None)?.map(|thread| (id, thread)));
        }
        Ok(adopted)
    }

    /// Writes the ends of all runs that nobody looks after and of which no process lives.
    pub(super) fn settle(&self) -> Result<(), RunError> {
        let mut adopted = Vec::new();
        for one in self.survey()?.abandoned.iter().filter(|one| !one.is_alive) {
            adopted.extend(self.rescue_one(one, None)?);
        }
        for thread in adopted {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Finds out who executes what, and removes workers that are gone and left nothing.
    pub(super) fn survey(&self) -> Result<Survey, RunError> {
        let own = Some((&self.worker.id, &*self.active));
        let survey = Surveyor { runs: &self.runs, leases: &self.leases, own, grace: self.grace }.survey()?;
        for worker in &survey.gone {
            self.runs.remove_worker(worker)?;
            heartbeat::remove(self.runs.folder(), worker);
            reusable_log::remove(self.runs.folder(), worker);
        }
        Ok(survey)
    }

    /// Adopts a run that nobody looks after. A run whose command has not begun waits to be claimed again.
    pub(super) fn rescue_one(
        &self,
        abandoned: &Abandoned,
        wake: Option<&Arc<WakePipe>>,
    ) -> Result<Option<JoinHandle<()>>, RunError> {
        if !abandoned.may_have_begun
            && self.runs.end_lost(&abandoned.run, &AttemptOutcome::NotBegun)?.is_some()
        {
            return Ok(None);
        }
        self.adopt(&abandoned.run, Found::Abandoned(abandoned.command), wake)
    }

    /// Adopts all runs that nobody looks after, and those whose worker is silent. The end of each wakes `wake`.
    pub(super) fn rescue_all(
        &self,
        survey: &Survey,
        heartbeats: &mut HeartbeatWatch,
        wake: &Arc<WakePipe>,
    ) -> Result<(), RunError> {
        for one in &survey.abandoned {
            self.rescue_one(one, Some(wake))?;
        }
        if survey.theirs.is_empty() {
            return Ok(());
        }
        let is_busy = |id: &&WorkerId| survey.theirs.iter().any(|run| run.worker() == Some(*id));
        // What a worker of another pid namespace executes can neither be seen dead nor ended here.
        let visible = survey.others.iter().filter(|other| other.is_visible);
        let busy = visible.map(|other| &other.id).filter(is_busy);
        let silent = heartbeats.look(self.runs.folder(), busy, self.heartbeat);
        let is_silent = |run: &&Run| run.worker().is_some_and(|id| silent.contains(id));
        for run in survey.theirs.iter().filter(is_silent) {
            self.adopt(run, Found::Silent, Some(wake))?;
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

    /// Adopts a run. None when somebody else was first.
    fn adopt(
        &self,
        run: &Run,
        found: Found,
        wake: Option<&Arc<WakePipe>>,
    ) -> Result<Option<JoinHandle<()>>, RunError> {
        let pipe = WakePipe::new().map_err(RunError::Machine)?;
        // Before the record says that another worker is responsible for it.
        if let Err(error) = reusable_log::rescue(self.runs.folder(), &run.id, &self.runs.folder_of(&run.id)) {
            self.events.trouble(format!("cannot keep what {} wrote: {error}", run.id));
        }
        // The next rescuer looks for the marks of this worker.
        self.marks.set(None, &run.id, run.claim() + 1).map_err(RunError::Machine)?;
        let Some((run, request)) = self.runs.adopt(run, &self.worker.id)? else { return Ok(None) };
        self.events.publish(&WorkerEvent::Adopted(run.clone()), None);
        let control = self.active.add(&run, Arc::new(pipe));
        let (rescuer, wake) = (self.clone(), wake.map(Arc::clone));
        let work = move || {
            rescuer.look_after(run, request, found, &control);
            if let Some(wake) = wake {
                wake.wake();
            }
        };
        let spawned = thread::Builder::new().name("adopted".to_owned()).spawn(work);
        spawned.map(Some).map_err(RunError::Machine)
    }

    /// Waits for the end of an adopted run, and until that end is written.
    fn look_after(&self, run: Run, request: Request, found: Found, control: &Control) {
        let outcome = if !run.status().is_active() {
            self.end_processes(&run);
            Outcome::Recorded
        } else {
            match found {
                Found::Silent => {
                    self.end_processes(&run);
                    Outcome::Observed(AttemptOutcome::Replaced)
                }
                Found::Abandoned(command) => {
                    match self.events.catch_panic(&run.id, || self.wait_for_end(&run, command, control)) {
                        Some(Ok(outcome)) => outcome,
                        failed => {
                            if let Some(Err(error)) = failed {
                                self.events.trouble(format!("cannot look after {}: {error}", run.id));
                            }
                            self.end_processes(&run);
                            Outcome::Observed(AttemptOutcome::Vanished)
                        }
                    }
                }
            }
        };
        let ended_at = self.runs.now();
        self.completer.complete(Finished::of(End { run, request, outcome, ended_at }));
    }

    /// Waits until nothing of a run lives.
    fn wait_for_end(&self, run: &Run, command: Option<ProcessRef>, control: &Control) -> io::Result<Outcome> {
        let vanished = || Ok(Outcome::Observed(AttemptOutcome::Vanished));
        let Some(process) = run.process() else { return vanished() };
        let life = self.leases.probe().liveness_file();
        let held = life.look(process.holder) == LockState::Held;
        let exit = match command.map(process::watch) {
            Some(Watch::Exit(exit)) => Some(exit),
            Some(Watch::Unavailable) if held => None,
            Some(Watch::Gone | Watch::Unavailable) | None => {
                // Nobody saw how it ended. What it left behind is ended with it.
                self.end_processes(run);
                return vanished();
            }
        };
        let times_out_at = run.times_out_at().map(|at| self.runs.local_moment(at));
        let is_overdue = || times_out_at.is_some_and(|at| at <= clock::now());
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
                let ending = status.map(|status| Ending::from_wait(status).into());
                return match ending {
                    // Its worker may have stopped it: such a run is no success, whatever its command returned.
                    _ if is_overdue() => Ok(Outcome::Observed(AttemptOutcome::TimedOut(ending))),
                    Some(ending) => Ok(Outcome::Observed(AttemptOutcome::Ended(ending))),
                    None => vanished(),
                };
            }
            if is_overdue() {
                self.end_processes(run);
                return Ok(Outcome::Observed(AttemptOutcome::TimedOut(None)));
            }
            let sentry = if exit.is_none() { self.leases.probe().watch_lock(process.holder) } else { None };
            let mut descriptors: Vec<BorrowedFd<'_>> = vec![control.as_fd()];
            descriptors.extend(exit.as_ref().map(AsFd::as_fd));
            descriptors.extend(sentry.as_ref().map(|sentry| sentry.as_fd()));
            poll::wait(&descriptors, times_out_at.map(|at| at.since(clock::now())))?;
        }
    }

    fn end_processes(&self, run: &Run) {
        // Workers hold the kernel locks of their runs, too: one that is silent is not a process of the run.
        let workers = persist(&self.events, "list the workers", || self.runs.worker_processes());
        let (leases, events) = (&*self.leases, &*self.events);
        RunProcesses { leases, events, grace: self.grace, workers }.end_all(run);
    }
}
