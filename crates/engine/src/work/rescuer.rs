//! Adopts runs whose worker is dead or silent. Completes each as its command ended, or as LOST if that is unknown.
//!
//! It judges only by evidence: the liveness lock that the processes of a run share, the liveness lock and the heartbeat of
//! its worker, the boot. What it cannot judge it leaves alone. The completer writes the ends of adopted runs. The rescuer
//! itself writes two things: a run whose command has not begun is returned, and a stage's run without `stages run` ends.

mod survey;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::liveness::{LockState, ProcessRef};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::AttemptOutcome;
use lockkeeper_core::run::{Run, Stamp};
use lockkeeper_core::time::Moment;

pub(super) use self::survey::{Survey, Surveyor, UnattendedRun};
use super::attempt::reusable_log;
use super::completer::{Completer, persist};
use super::completer_message::Finished;
use super::control::{ActiveRuns, Control, Stop, WakePipe};
use super::end_records::{self, Known, SeenEnd};
use super::events::{Events, WorkerEvent};
use super::heartbeat::{self, HeartbeatWatch};
use super::lock_files::{LockFiles, LockFormats, RenewedFiles};
use super::output_copier::OutputCopier;
use super::processes::RunProcesses;
use super::session::WorkerSession;
use super::start_records::StartRecords;
use super::{stage_attempts, stage_file};
use crate::Engine;
use crate::runs::completing::{AttemptResult, Outcome};
use crate::runs::{RunError, Runs};
use lockkeeper_platform::exec::Ending;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::{clock, poll, process};
use lockkeeper_store::runs::Worker as WorkerRecord;

/// A guardian writes the end of a command at once. One that takes longer is assumed frozen: what it would write later is lost, so this
/// is longer than the time that the doctor waits.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the end record is read until then.
const END_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Poll interval for a command that has no pidfd.
const COMMAND_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The state of the worker of a run.
#[derive(Clone, Copy)]
enum Found {
    /// The worker is dead. The process of the command, if it is alive and can be found.
    Dead(Option<ProcessRef>),
    /// The worker is alive, but has missed too many heartbeats.
    Silent,
    /// The worker was on another machine, and its session has ended. Its command cannot be seen from here.
    Elsewhere,
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
    pub(super) start_records: Arc<StartRecords>,
    pub(super) formats: LockFormats,
    /// The session of the worker, on a store that several machines share.
    pub(super) session: Option<Arc<WorkerSession>>,
    pub(super) output: Arc<OutputCopier>,
}

impl Rescuer {
    /// Adopts those unattended runs that are wanted, each on a thread of its own that ends with the run.
    pub fn rescue(&self, wanted: impl Fn(&Run) -> bool) -> Result<Vec<(RunId, JoinHandle<()>)>, RunError> {
        let mut adopted = Vec::new();
        for one in self.survey()?.unattended.into_iter().filter(|one| wanted(&one.run)) {
            let id = one.run.id.clone();
            adopted.extend(self.rescue_one(&one, None)?.map(|thread| (id, thread)));
        }
        Ok(adopted)
    }

    /// Completes or returns all unattended runs of which no process lives.
    pub(super) fn complete_dead_runs(&self) -> Result<(), RunError> {
        let mut adopted = Vec::new();
        for one in self.survey()?.unattended.iter().filter(|one| !one.is_alive) {
            adopted.extend(self.rescue_one(one, None)?);
        }
        for thread in adopted {
            // A thread that panics publishes a warning.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Surveys which worker executes which run, and removes dead workers that have no run left.
    pub(super) fn survey(&self) -> Result<Survey, RunError> {
        let own = Some((&self.worker.id, &*self.active));
        let survey = Surveyor { runs: &self.runs, leases: &self.leases, own, grace: self.grace }.survey()?;
        for worker in &survey.dead_workers {
            // Its guardian may still write, and another rescuer may have to read that.
            let folder = reusable_log::folder_of(self.runs.folder(), worker);
            if !end_records::is_needed(&folder, &survey.holders) {
                self.runs.remove_worker(worker)?;
                heartbeat::remove(self.runs.folder(), worker);
                reusable_log::remove(self.runs.folder(), worker);
            }
        }
        if !survey.dead_workers.is_empty() {
            stage_file::mend_latest(&self.runs)?;
        }
        Ok(survey)
    }

    /// Adopts an unattended run. A run whose command has not begun is returned instead: it waits to be claimed again.
    pub(super) fn rescue_one(
        &self,
        unattended: &UnattendedRun,
        wake: Option<&Arc<WakePipe>>,
    ) -> Result<Option<JoinHandle<()>>, RunError> {
        if unattended.is_elsewhere {
            if !unattended.run.status().is_active() {
                self.runs.clear_processes(&unattended.run)?;
                return Ok(None);
            }
            return self.adopt(&unattended.run, Found::Elsewhere, wake);
        }
        if !unattended.may_have_begun
            && self.runs.end_unattended(&unattended.run, &AttemptOutcome::NotBegun)?.is_some()
        {
            return Ok(None);
        }
        self.adopt(&unattended.run, Found::Dead(unattended.command), wake)
    }

    /// Adopts all unattended runs, and those whose worker is silent. The end of each wakes `wake`.
    pub(super) fn rescue_all(
        &self,
        survey: &Survey,
        heartbeats: &mut HeartbeatWatch,
        wake: &Arc<WakePipe>,
    ) -> Result<(), RunError> {
        for one in &survey.unattended {
            self.rescue_one(one, Some(wake))?;
        }
        for run in survey.silent(self.runs.folder(), heartbeats, self.heartbeat) {
            self.adopt(run, Found::Silent, Some(wake))?;
        }
        self.end_stage_attempts(|_| true)
    }

    /// Replaces the silent worker of a run. Does nothing if another process was first.
    pub(super) fn replace_worker(&self, run: &Run) -> Result<(), RunError> {
        self.adopt(run, Found::Silent, None).map(drop)
    }

    /// Ends those runs of stages whose next attempt will never be made, because their `stages run` is gone.
    pub(super) fn end_stage_attempts(&self, wanted: impl Fn(&Run) -> bool) -> Result<(), RunError> {
        for run in stage_attempts::unmade(&self.runs, &self.leases)?.into_iter().filter(wanted) {
            if let Some(ended) = self.runs.abandon_retry(&run, stage_attempts::WHY)? {
                // The file is for people. A run that has ended has its end in the store.
                let _ = stage_file::write_end(&self.runs.folder_of(&ended.id), &ended);
                self.events.publish(&WorkerEvent::Ended(ended), None);
            }
        }
        Ok(())
    }

    /// Removes the files of workers that are not registered and have no run left, such as those of earlier boots.
    pub(super) fn remove_stray_files(&self) -> Result<(), RunError> {
        if self.runs.is_silent() {
            // The store may have lost workers that live.
            return Ok(());
        }
        // Listed first: a worker is registered before it makes files.
        let files = heartbeat::files(self.runs.folder());
        let logs = reusable_log::folders(self.runs.folder());
        let found = self.runs.workers_and_runs()?;
        let workers = found.workers.iter().map(|worker| &worker.id);
        let known: HashSet<&WorkerId> =
            workers.chain(found.runs.iter().filter_map(|run| run.worker())).collect();
        let is_stray = |path: &&PathBuf| !known.iter().any(|id| path.ends_with(id.as_str()));
        let holders: Vec<HolderId> =
            found.runs.iter().filter_map(|run| Some(run.process()?.holder)).collect();
        // Another worker may do the same now.
        files.iter().filter(is_stray).for_each(|path| drop(fs::remove_file(path)));
        let logs = logs.iter().filter(is_stray).filter(|path| !end_records::is_needed(path, &holders));
        logs.for_each(|path| drop(fs::remove_dir_all(path)));
        Ok(())
    }

    /// Adopts a run. None if another process was first.
    fn adopt(
        &self,
        run: &Run,
        found: Found,
        wake: Option<&Arc<WakePipe>>,
    ) -> Result<Option<JoinHandle<()>>, RunError> {
        let pipe = WakePipe::new().map_err(RunError::Machine)?;
        // The thread is started first: without it the run is not adopted.
        let (sender, adopted) = channel::<(Run, Request, LockFiles, Arc<Control>)>();
        let (rescuer, wake) = (self.clone(), wake.map(Arc::clone));
        let work = move || {
            // The channel is closed if another process was first.
            let Ok((run, request, files, control)) = adopted.recv() else { return };
            rescuer.complete_adopted(run, request, files, found, &control);
            if let Some(wake) = wake {
                wake.wake();
            }
        };
        let thread =
            thread::Builder::new().name("adopted".to_owned()).spawn(work).map_err(RunError::Machine)?;
        // Move the log before the adoption is recorded.
        if let Err(error) = reusable_log::rescue(self.runs.folder(), &run.id, &self.runs.folder_of(&run.id)) {
            self.events.warn(format!("cannot keep what {} wrote: {error}", run.id));
        }
        // If this worker dies, the next rescuer looks for a start record of this worker.
        self.start_records.set(None, &run.id, run.claim() + 1).map_err(RunError::Machine)?;
        let gone = run.worker().cloned();
        let Some((run, request)) = self.runs.adopt(run, &self.worker.id)? else { return Ok(None) };
        let files = match found {
            // Its lock files are on that machine.
            Found::Elsewhere => Ok(LockFiles::default()),
            Found::Dead(_) | Found::Silent => {
                let folder = self.runs.folder_of(&run.id);
                self.formats.adopt(&request, &run, gone.as_ref(), &self.worker, &folder)
            }
        };
        let files = files.unwrap_or_else(|error| {
            self.events.warn(format!("cannot take over the lock files of {}: {error}", run.id));
            LockFiles::default()
        });
        self.events.publish(&WorkerEvent::Adopted(run.clone()), None);
        let shared = self.session.as_ref().map(|_| &request);
        let control = self.active.add(&run, shared, Arc::new(pipe));
        self.output.began();
        sender.send((run, request, files, control)).expect("the thread waits for it");
        Ok(Some(thread))
    }

    /// Waits until the command of an adopted run has ended, and until its end is written.
    fn complete_adopted(
        &self,
        run: Run,
        request: Request,
        files: LockFiles,
        found: Found,
        control: &Control,
    ) {
        let renewed = RenewedFiles::begin(files);
        let mut seen_at = None;
        let outcome = if !run.status().is_active() {
            Outcome::Recorded
        } else {
            match found {
                Found::Elsewhere => Outcome::Observed(AttemptOutcome::Vanished),
                Found::Silent => Outcome::Observed(AttemptOutcome::Replaced),
                Found::Dead(command) => {
                    match self.events.catch_panic(&run.id, || self.wait_for_end(&run, command, control)) {
                        Some(Ok((outcome, seen))) => {
                            seen_at = seen.and_then(|(_, at)| at).map(|at| self.stamp(at));
                            outcome
                        }
                        failed => {
                            if let Some(Err(error)) = failed {
                                self.events.warn(format!("cannot look after {}: {error}", run.id));
                            }
                            Outcome::Observed(AttemptOutcome::Vanished)
                        }
                    }
                }
            }
        };
        // The end is written when no process of the run is left. A signal alone is not enough.
        let is_over = outcome == Outcome::Superseded || self.end_processes(&run);
        let ended_at = seen_at.unwrap_or_else(|| self.runs.now());
        let files = renewed.end();
        let end = AttemptResult { run, request, outcome, ended_at };
        self.completer.complete(Finished { files, is_over, ..Finished::of(end) });
    }

    /// Waits until the command of a run has ended or has to be ended. Returns the outcome, and the end of the command if it is
    /// known.
    fn wait_for_end(
        &self,
        run: &Run,
        command: Option<ProcessRef>,
        control: &Control,
    ) -> io::Result<(Outcome, Option<SeenEnd>)> {
        let observed = |outcome| Outcome::Observed(outcome);
        let Some(process) = run.process() else { return Ok((observed(AttemptOutcome::Vanished), None)) };
        let life = self.leases.probe().liveness_file();
        let known = || end_records::look(self.runs.folder(), process.holder);
        let held = life.look(process.holder) == LockState::Held;
        let exit = match command.map(process::watch) {
            Some(Watch::Exit(exit)) => Some(exit),
            Some(Watch::Unavailable) if held => None,
            // The command is alive, although its process cannot be found: its guardian waits for it.
            Some(Watch::Gone | Watch::Unavailable) | None if held && known() == Known::Guarded => None,
            Some(Watch::Gone | Watch::Unavailable) | None => {
                let seen = self.seen_end(process.holder, None);
                let outcome =
                    seen.map_or(AttemptOutcome::Vanished, |seen| end_records::outcome(&self.runs, run, seen));
                return Ok((observed(outcome), seen));
            }
        };
        let times_out_at = run.times_out_at().map(|at| self.runs.local_moment(at));
        let is_overdue = || times_out_at.is_some_and(|at| at <= clock::now());
        loop {
            match control.take() {
                None => {}
                Some(Stop::Canceled) => return Ok((observed(AttemptOutcome::Stopped(None)), None)),
                Some(Stop::Recorded) => return Ok((Outcome::Recorded, None)),
                Some(Stop::Superseded) => return Ok((Outcome::Superseded, None)),
            }
            let ended = match &exit {
                Some(exit) => poll::wait(&[exit.as_fd()], Some(Duration::ZERO))?.any(),
                None => life.look(process.holder) != LockState::Held || matches!(known(), Known::Ended(_)),
            };
            if ended {
                let seen = self.seen_end(process.holder, exit.as_deref().zip(command));
                let outcome = match seen {
                    Some(seen) => end_records::outcome(&self.runs, run, seen),
                    None if is_overdue() => AttemptOutcome::TimedOut(None),
                    None => AttemptOutcome::Vanished,
                };
                return Ok((observed(outcome), seen));
            }
            if is_overdue() {
                return Ok((observed(AttemptOutcome::TimedOut(None)), None));
            }
            if self.session.as_ref().is_some_and(|session| !session.is_valid()) {
                return Ok((observed(AttemptOutcome::Replaced), None));
            }
            let lock_watch =
                if exit.is_none() { self.leases.probe().watch_lock(process.holder) } else { None };
            let mut descriptors: Vec<BorrowedFd<'_>> = vec![control.as_fd()];
            descriptors.extend(exit.as_ref().map(AsFd::as_fd));
            descriptors.extend(lock_watch.as_ref().map(|lock_watch| lock_watch.as_fd()));
            let limit = times_out_at.map(|at| at.since(clock::now()));
            // Processes that the command left may hold the lock after its end.
            let again = exit.is_none().then_some(COMMAND_POLL_INTERVAL);
            let session = self.session.as_ref().and_then(|session| session.look_at());
            let session = session.map(|at| at.since(clock::now()));
            poll::wait(&descriptors, [limit, again, session].into_iter().flatten().min())?;
        }
    }

    /// How a command ended: its guardian has written it, or the system shows it.
    fn seen_end(&self, holder: HolderId, exit: Option<(&OwnedFd, ProcessRef)>) -> Option<SeenEnd> {
        let until = clock::now().after(GUARDIAN_TIMEOUT);
        loop {
            let known = end_records::look(self.runs.folder(), holder);
            if let Known::Ended(seen) = known {
                return Some(seen);
            }
            if let Some(status) = exit.and_then(|(exit, command)| process::exit_status(exit, command)) {
                return Some((Ending::from_wait(status).into(), Some(clock::now())));
            }
            if known != Known::Guarded || until <= clock::now() {
                return None;
            }
            thread::sleep(END_POLL_INTERVAL);
        }
    }

    /// A moment of this machine's clock as a time of the store.
    fn stamp(&self, at: Moment) -> Stamp {
        let (now, ago) = (self.runs.now(), clock::now().since(at));
        let micros = i64::try_from(ago.as_micros()).unwrap_or(0);
        Stamp {
            moment: Moment::from_micros(now.moment.as_micros() - micros),
            unix_micros: now.unix_micros - micros,
        }
    }

    /// Ends all processes of a run. Returns false if this worker has to end before they are gone.
    fn end_processes(&self, run: &Run) -> bool {
        // Workers hold the liveness locks of their runs, too: one that is silent is not a process of the run.
        let workers = persist(&self.events, "list the workers", || self.runs.worker_processes());
        let Some(workers) = workers else { return false };
        let (leases, events) = (&*self.leases, &*self.events);
        RunProcesses { leases, events, grace: self.grace, workers }.end_all(run, &mut None)
    }
}
