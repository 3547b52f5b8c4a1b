//! Executes the command of one claimed run and reports how it ended. Of the store it knows only the clock.
//!
//! The command inherits the kernel lock of its run, so that any process can see after the end of this one whether the
//! command still lives. It writes to its log by itself: it does not notice when its worker dies.

mod command;
mod log;
pub(super) mod reusable_log;
mod slot;
mod supervision;

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::run::transition::AttemptOutcome;

use self::log::AttemptLog;
pub(super) use self::slot::Slot;
use self::supervision::{LeaseWatch, Supervision, outcome_of_short};
use super::Settings;
use super::claimer::Claimed;

use super::control::{Control, Stop};
use super::events::{Events, WorkerEvent};
use super::guardian::GuardianOffice;
use super::processes::{RunProcesses, mark};
use super::report::{Finished, Report, Started};
use super::session::WorkerSession;
use super::start_marks::StartMarks;
use crate::Engine;
use crate::runs::completing::{End, Outcome};
use crate::runs::{RunFolder, Runs, environment};
use lockkeeper_platform::clock;
use lockkeeper_platform::exec::{Running, StartError, start_cached};
use lockkeeper_platform::wall_clock::WallTime;

/// A command that runs longer than this is reported as started. Most commands of a busy queue are over before.
const SHORT: Duration = Duration::from_millis(20);

/// What all attempts of one worker share.
pub(super) struct AttemptContext {
    pub(super) settings: Settings,
    /// The store of runs, for its clock.
    pub(super) runs: Arc<Runs>,
    /// The state folder.
    pub(super) state: PathBuf,
    pub(super) worker: WorkerId,
    /// The process of the worker.
    pub(super) process: ProcessRef,
    /// Kernel locks, and what is known of leases.
    pub(super) leases: Arc<Engine>,
    pub(super) events: Arc<Events>,
    pub(super) reports: Sender<Report>,
    /// Notes which commands may have begun.
    pub(super) marks: Arc<StartMarks>,
    /// Starts the commands.
    pub(super) guardian: GuardianOffice,
    /// The session of the worker, on a store that several machines share.
    pub(super) session: Option<Arc<WorkerSession>>,
}

impl AttemptContext {
    pub(super) fn processes(&self) -> RunProcesses<'_> {
        RunProcesses {
            leases: &self.leases,
            events: &self.events,
            grace: self.settings.grace,
            workers: vec![self.process],
        }
    }
}

/// One command, from its start to its end.
pub(super) struct Attempt<'a> {
    context: &'a AttemptContext,
    slot: &'a mut Slot,
    claimed: Claimed,
    control: Arc<Control>,
    folder: RunFolder,
    /// When the command was started.
    started_at: Option<WallTime>,
    /// Whether the start was reported.
    is_reported: bool,
}

impl<'a> Attempt<'a> {
    /// An attempt at a claimed run, which can be stopped by `control`.
    pub(super) fn new(
        context: &'a AttemptContext,
        slot: &'a mut Slot,
        claimed: Claimed,
        control: Arc<Control>,
    ) -> Self {
        let folder = RunFolder::new(&context.state, &claimed.run.id);
        Self { context, slot, claimed, control, folder, started_at: None, is_reported: false }
    }

    /// Blocks until the command and all that it started is gone.
    pub(super) fn run(mut self) -> Finished {
        let context = self.context;
        let id = self.claimed.run.id.clone();
        let outcome = context.events.catch_panic(&id, || self.execute()).unwrap_or_else(|| {
            context.processes().end_all(&self.claimed.run);
            Outcome::Observed(AttemptOutcome::Vanished)
        });
        let ended_at = context.runs.now();
        let Claimed { run, request, lock, lease, files, .. } = self.claimed;
        // From here on only what the command left running can have the kernel lock.
        drop(lock);
        context.processes().end_leftovers(&run);
        Finished {
            end: End { run, request, outcome, ended_at },
            lease,
            files,
            started_at: self.started_at.filter(|_| !self.is_reported),
            is_reported: self.is_reported,
            wants_next: false,
        }
    }

    fn execute(&mut self) -> Outcome {
        match self.control.take() {
            None => {}
            Some(Stop::Canceled) => return Outcome::Observed(AttemptOutcome::Stopped(None)),
            Some(Stop::Recorded) => return Outcome::Recorded,
            Some(Stop::Superseded) => return Outcome::Superseded,
        }
        let log = match self.make_log() {
            Ok(log) => log,
            Err(error) => {
                let why = format!("cannot write to {}: {error}", self.folder.path().display());
                return Outcome::Observed(AttemptOutcome::NotStarted(126, why));
            }
        };
        let AttemptContext { settings, state, leases, .. } = self.context;
        let stores = (state.as_path(), leases.store_id());
        let dir = self.context.runs.local_dir(&self.claimed.request.dir);
        let variables = self.variables(&settings.variables);
        let places = (dir.clone(), log.path());
        let spec = command::spec(&mut self.claimed, &variables, (stores.0, &stores.1), places);
        let run = &self.claimed.run;
        let (line, number) = (self.slot.line(self.context), self.slot.number);
        let guarded = line.zip(self.context.marks.note(number, run));
        // A guardian does it by itself.
        let noted =
            if guarded.is_some() { Ok(()) } else { self.context.marks.set(number, &run.id, run.claim()) };
        if let Err(error) = noted {
            self.keep_log(log);
            let why = format!("cannot note that it begins: {error}");
            return Outcome::Observed(AttemptOutcome::NotStarted(126, why));
        }
        let via = guarded.as_ref().map(|(line, note)| (line, note));
        let running = match start_cached(&spec, self.claimed.lock.as_ref(), &mut self.slot.programs, via) {
            Ok(running) => running,
            Err(error @ StartError::Lost { .. }) => {
                self.context.events.trouble(format!("{}: {error}", run.id));
                self.context.processes().end_all(run);
                self.keep_log(log);
                return Outcome::Observed(AttemptOutcome::Vanished);
            }
            Err(error) => {
                self.keep_log(log);
                let why = command::why_not_started(&error, &dir);
                return Outcome::Observed(AttemptOutcome::NotStarted(error.exit_code(), why));
            }
        };
        if self.claimed.lease.is_none() {
            // The command has it. What is open here, others have as well until they begin.
            self.claimed.lock = None;
        }
        self.started_at = Some(WallTime::now());
        self.context.events.notify(&WorkerEvent::Started(self.claimed.run.clone()));
        self.supervise(running, log).unwrap_or_else(|error| {
            let run = &self.claimed.run;
            self.context.events.trouble(format!("cannot supervise {}: {error}", run.id));
            self.context.processes().end_all(run);
            Outcome::Observed(AttemptOutcome::Vanished)
        })
    }

    /// The variables besides those of the request. On a store that several machines share the request has none that describe a
    /// place: they are those of this worker, unless the request names them.
    fn variables<'v>(&self, own: &'v [(String, String)]) -> Cow<'v, [(String, String)]> {
        if !self.context.runs.is_shared() {
            return Cow::Borrowed(own);
        }
        let is_named =
            |name: &str| self.claimed.request.env.iter().chain(own).any(|(known, _)| known == name);
        let here = environment::of_this_machine(std::env::vars_os());
        Cow::Owned(here.into_iter().filter(|(name, _)| !is_named(name)).chain(own.iter().cloned()).collect())
    }

    fn supervise(&mut self, mut running: Running, mut log: AttemptLog) -> io::Result<Outcome> {
        let times_out_at = self.claimed.run.times_out_at().map(|at| self.context.runs.local_moment(at));
        let until = clock::now().after(SHORT);
        let until = times_out_at.map_or(until, |at| at.min(until));
        let ended = running.supervise_until(until)?;
        self.slot.was_short = ended.is_some();
        if let Some(ending) = ended {
            self.keep_log(log);
            return Ok(outcome_of_short(&self.control, ending));
        }
        if let Err(error) = log.move_to_run() {
            self.context.events.trouble(format!("cannot keep what {} writes: {error}", self.claimed.run.id));
        }
        self.report_start(running.process().ok());
        let lease = self.claimed.lease.as_ref().map(|lease| LeaseWatch::new(lease, &self.context.leases));
        let mut extra: Vec<BorrowedFd<'_>> = vec![self.control.as_fd()];
        extra.extend(lease.as_ref().and_then(LeaseWatch::as_fd));
        let mut supervision = Supervision::new(
            &mut self.claimed.files,
            &self.control,
            lease.as_ref(),
            self.context.session.as_deref(),
            log,
            self.context.settings.grace,
            times_out_at,
        );
        let mark = mark(&self.claimed.run.id);
        let ending =
            running.supervise_marked(&extra, Some(&mark), &mut |event| supervision.on_event(event))?;
        let (outcome, log) = supervision.outcome(ending);
        self.keep_log(log);
        Ok(outcome)
    }

    /// The log of the attempt. A run that holds nothing and can make only one attempt uses the log of the slot.
    fn make_log(&mut self) -> io::Result<AttemptLog> {
        let Claimed { run, request, lease, .. } = &self.claimed;
        let (attempt, limit) = (run.attempt(), self.context.settings.output_limit);
        // What is in the way of a log that is used again is no reason to fail: the run gets a log of its own.
        if attempt == 1
            && request.retry.limit == 0
            && lease.is_none()
            && let Some(Ok(log)) = self.slot.take_log(self.context, &run.id)
        {
            return Ok(AttemptLog::reuse(log, &self.folder, limit));
        }
        AttemptLog::make(&self.folder, attempt, limit)
    }

    /// Keeps the log of a command that has ended: for the run, or for the next run of the slot if nothing is in it.
    fn keep_log(&mut self, log: AttemptLog) {
        match log.finish() {
            Ok(log) => self.slot.log = log,
            Err(error) => {
                self.context
                    .events
                    .trouble(format!("cannot keep what {} wrote: {error}", self.claimed.run.id));
            }
        }
    }

    fn report_start(&mut self, process: Option<ProcessRef>) {
        let Claimed { run, request, lease, .. } = &self.claimed;
        let started = Started {
            run: run.clone(),
            request: request.clone(),
            lease: lease.clone(),
            process,
            at: self.started_at.unwrap_or_else(WallTime::now),
        };
        // Only a completer that has panicked receives nothing.
        self.is_reported = self.context.reports.send(Report::Started(Box::new(started))).is_ok();
    }
}
