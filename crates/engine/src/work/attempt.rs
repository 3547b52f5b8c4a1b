//! Executes the command of one claimed run and reports how it ended. It reads and writes no records of the store.
//!
//! The command inherits the liveness lock of its run, so that any process can see after the end of this one whether the
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

use super::completer_message::{CompleterMessage, Finished, Started};
use super::control::{Control, Stop};
use super::events::{Events, WorkerEvent};
use super::guardian::GuardianHandle;
use super::processes::{RunProcesses, process_mark};
use super::session::WorkerSession;
use super::start_records::StartRecords;
use crate::Engine;
use crate::runs::completing::{AttemptResult, Outcome};
use crate::runs::{RunFolder, Runs, environment};
use lockkeeper_platform::clock;
use lockkeeper_platform::exec::{Running, StartError, start_cached};
use lockkeeper_platform::wall_clock::WallTime;

/// A command that runs longer than this is reported as started. Most commands of a busy queue are over before.
const SHORT: Duration = Duration::from_millis(20);

/// What all attempts of one worker share.
pub(super) struct AttemptContext {
    pub(super) settings: Settings,
    /// The store of runs, for its clock and for where the project is on this machine.
    pub(super) runs: Arc<Runs>,
    /// The state folder.
    pub(super) state: PathBuf,
    pub(super) worker: WorkerId,
    /// The process of the worker.
    pub(super) process: ProcessRef,
    /// Liveness locks and leases.
    pub(super) leases: Arc<Engine>,
    pub(super) events: Arc<Events>,
    pub(super) messages: Sender<CompleterMessage>,
    /// Records which commands may have begun.
    pub(super) start_records: Arc<StartRecords>,
    /// Starts the commands.
    pub(super) guardian: GuardianHandle,
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
    /// Whether the completer was told of the start: only of commands that are not [`SHORT`].
    is_reported: bool,
    /// False if the worker had to end before the processes of the run were gone. Then no end is written.
    is_over: bool,
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
        Self { context, slot, claimed, control, folder, started_at: None, is_reported: false, is_over: true }
    }

    /// Runs the command to its end, then ends the processes that it left.
    pub(super) fn run(mut self) -> Finished {
        let context = self.context;
        let id = self.claimed.run.id.clone();
        let outcome = context.events.catch_panic(&id, || self.execute()).unwrap_or_else(|| {
            self.end_all();
            Outcome::Observed(AttemptOutcome::Vanished)
        });
        let ended_at = context.runs.now();
        let Claimed { run, request, lock, lease, files, .. } = self.claimed;
        // From here on only processes that the command left can hold the liveness lock.
        drop(lock);
        context.processes().end_leftovers(&run);
        Finished {
            end: AttemptResult { run, request, outcome, ended_at },
            lease,
            files,
            started_at: self.started_at.filter(|_| !self.is_reported),
            is_reported: self.is_reported,
            is_over: self.is_over,
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
        let (connection, number) = (self.slot.connection(self.context), self.slot.number);
        let guarded = connection.zip(self.context.start_records.note(number, run));
        // A guardian writes the start record by itself.
        let noted = if guarded.is_some() {
            Ok(())
        } else {
            self.context.start_records.set(number, &run.id, run.claim())
        };
        if let Err(error) = noted {
            self.keep_log(log);
            let why = format!("cannot note that it begins: {error}");
            return Outcome::Observed(AttemptOutcome::NotStarted(126, why));
        }
        let via = guarded.as_ref().map(|(connection, note)| (connection, note));
        let running = match start_cached(&spec, self.claimed.lock.as_ref(), &mut self.slot.programs, via) {
            Ok(running) => running,
            Err(error @ StartError::Lost { .. }) => {
                self.context.events.warn(format!("{}: {error}", run.id));
                self.end_all();
                self.keep_log(log);
                return Outcome::Observed(AttemptOutcome::Vanished);
            }
            Err(error) => {
                self.keep_log(log);
                let why = command::why_not_started(&error, &dir);
                return Outcome::Observed(AttemptOutcome::NotStarted(error.exit_code(), why));
            }
        };
        // With a lease the worker keeps its copy until the release: otherwise another process could reap the lease in between.
        if self.claimed.lease.is_none() {
            // The command holds the lock now. A copy kept here would leak into other commands between fork and exec.
            self.claimed.lock = None;
        }
        self.started_at = Some(WallTime::now());
        self.context.events.notify(&WorkerEvent::Started(self.claimed.run.clone()));
        self.supervise(running, log).unwrap_or_else(|error| {
            self.context.events.warn(format!("cannot supervise {}: {error}", self.claimed.run.id));
            self.end_all();
            Outcome::Observed(AttemptOutcome::Vanished)
        })
    }

    /// The variables besides those of the request. On a store that several machines share, a request has no variables that describe
    /// a place: the worker adds its own, unless the request has them.
    fn variables<'v>(&self, own: &'v [(String, String)]) -> Cow<'v, [(String, String)]> {
        if !self.context.runs.is_shared() {
            return Cow::Borrowed(own);
        }
        let is_named =
            |name: &str| self.claimed.request.env.iter().chain(own).any(|(known, _)| known == name);
        let here = environment::of_this_machine(std::env::vars_os());
        Cow::Owned(here.into_iter().filter(|(name, _)| !is_named(name)).chain(own.iter().cloned()).collect())
    }

    /// Ends all processes of the run, and waits for those that this process may not end.
    fn end_all(&mut self) {
        self.is_over = self.context.processes().end_all(&self.claimed.run, &mut self.claimed.lock);
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
            self.context.events.warn(format!("cannot keep what {} writes: {error}", self.claimed.run.id));
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
        let mark = process_mark(&self.claimed.run.id);
        let ending = running.supervise_marked(&extra, Some(&mark), &mut |event| supervision.on_event(event));
        let (ending, left) = match ending {
            Ok(ending) => (Some(ending), None),
            Err(error) if supervision.is_stopping() => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let (outcome, log) = supervision.outcome(ending);
        if let Some(error) = left {
            self.context.events.warn(format!("{}: {error}", self.claimed.run.id));
            self.end_all();
        }
        self.keep_log(log);
        Ok(outcome)
    }

    /// The log of the attempt. A run without lease and retries uses the slot's log, if the slot's last command was short.
    fn make_log(&mut self) -> io::Result<AttemptLog> {
        let Claimed { run, request, lease, .. } = &self.claimed;
        let (attempt, limit) = (run.attempt(), self.context.settings.output_limit);
        // If the log of the slot cannot be used, the run gets a log of its own.
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
                self.context.events.warn(format!("cannot keep what {} wrote: {error}", self.claimed.run.id));
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
        // The send fails only if the completer has panicked.
        self.is_reported = self.context.messages.send(CompleterMessage::Started(Box::new(started))).is_ok();
    }
}
