//! A registered worker: its identity, its heartbeat, and the other four types tied together.
//!
//! A worker executes single runs ([`Worker::claim`], [`Worker::execute`]), or the runs of the queue ([`Worker::run`]).

mod due;
mod listener;
mod pool;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::run::Run;

pub use self::listener::ControlListener;
use super::Settings;
use super::attempt::{Attempt, AttemptContext, Slot, reusable_log};
use super::claimer::{ClaimResult, Claimed, Claimer};
use super::completer::{Completer, persist};
use super::completer_message::{CompleterMessage, Finished};
use super::control::ActiveRuns;
use super::events::{Events, Listener};
use super::guardian::GuardianHandle;
use super::heartbeat::{self, Heartbeat, HeartbeatFile};
use super::lock_files::LockFormats;
use super::output_copier::OutputCopier;
use super::rescuer::Rescuer;
use super::session::WorkerSession;
use super::start_records::StartRecords;
use crate::Engine;
use crate::runs::completing::{AttemptResult, Outcome};
use crate::runs::{RunError, Runs, new_id};
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::liveness_lock::LivenessLock;
use lockkeeper_platform::{clock, process, tree};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Worker as WorkerRecord;

/// A registered worker. Dropping it removes the registration.
pub struct Worker {
    record: Arc<WorkerRecord>,
    /// Shows other processes that this one lives.
    _lock: LivenessLock,
    heartbeat: HeartbeatFile,
    runs: Arc<Runs>,
    leases: Arc<Engine>,
    active: Arc<ActiveRuns>,
    events: Arc<Events>,
    claimer: Claimer,
    rescuer: Rescuer,
    context: AttemptContext,
    messages: Sender<CompleterMessage>,
    completer: Arc<Completer>,
    /// Shows other machines that this worker lives, on a store that several machines share.
    session: Option<Arc<WorkerSession>>,
    /// The thread of the completer.
    publishing: Option<JoinHandle<()>>,
}

impl Worker {
    /// Registers a worker for `jobs` queued runs at once; 0 for one that executes single runs only.
    pub fn begin(
        runs: Runs,
        leases: Engine,
        settings: Settings,
        jobs: u32,
        status: Option<StatusLog>,
        listener: Box<Listener>,
    ) -> Result<Self, RunError> {
        tree::become_subreaper().map_err(RunError::Machine)?;
        let lock = leases.probe().liveness_file().hold_new().map_err(RunError::Machine)?;
        let holder = lock.holder();
        let started_at = runs.now();
        let origin = leases.probe().origin().clone();
        let heartbeat_at = origin.session.map(|_| started_at.moment);
        let started_at = started_at.unix_micros;
        let record = WorkerRecord {
            id: new_id::<WorkerId>("W", started_at)?,
            holder,
            origin,
            process: process::current().map_err(RunError::Machine)?,
            jobs,
            labels: settings.labels.clone(),
            started_at,
            heartbeat_at,
        };
        let sent_at = clock::now();
        runs.register_worker(&record)?;
        let heartbeat = HeartbeatFile::make(runs.folder(), &record.id, settings.heartbeat);
        let failed = |error| StoreError::io("write to", runs.folder(), error);
        let heartbeat = heartbeat.map_err(failed)?;
        let start_records = StartRecords::make(runs.folder(), &record.id, jobs).map_err(failed)?;
        let start_records = Arc::new(start_records);
        let events = Arc::new(Events::new(record.id.clone(), listener, status));
        let (runs, leases, record) = (Arc::new(runs), Arc::new(leases), Arc::new(record));
        let active = Arc::<ActiveRuns>::default();
        let (messages, receiver) = channel();
        let grace = settings.grace;
        let session = WorkerSession::begin(&runs, &record, (&active, &events), sent_at, grace);
        let session = session.map_err(RunError::Machine)?;
        let output = OutputCopier::start(&runs, &active, &record.origin.host);
        let output = Arc::new(output.map_err(RunError::Machine)?);
        let completer = Completer::new(
            Arc::clone(&runs),
            Arc::clone(&leases),
            Arc::clone(&record),
            Arc::clone(&active),
            Arc::clone(&events),
            grace,
            messages.clone(),
        );
        let completer = Arc::new(completer.sharing(session.clone(), Arc::clone(&output)));
        let formats = LockFormats { aiflow: settings.aiflow.clone(), swarm: settings.swarm.clone() };
        let rescuer = Rescuer {
            runs: Arc::clone(&runs),
            leases: Arc::clone(&leases),
            worker: Arc::clone(&record),
            active: Arc::clone(&active),
            events: Arc::clone(&events),
            grace,
            heartbeat: settings.heartbeat,
            completer: Arc::clone(&completer),
            start_records: Arc::clone(&start_records),
            formats: formats.clone(),
            session: session.clone(),
            output: Arc::clone(&output),
        };
        rescuer.remove_stray_files()?;
        let claimer = Claimer::new(
            Arc::clone(&runs),
            Arc::clone(&leases),
            Arc::clone(&record),
            formats,
            Arc::clone(&events),
            grace,
            session.clone(),
        );
        let context = AttemptContext {
            settings,
            runs: Arc::clone(&runs),
            state: runs.folder().to_owned(),
            worker: record.id.clone(),
            process: record.process,
            leases: Arc::clone(&leases),
            events: Arc::clone(&events),
            messages: messages.clone(),
            start_records,
            guardian: GuardianHandle::default(),
            session: session.clone(),
        };
        let body = Arc::clone(&completer);
        let publishing = thread::Builder::new().name("completer".to_owned());
        let publishing = publishing.spawn(move || body.run(&receiver)).map_err(RunError::Machine)?;
        Ok(Self {
            record,
            _lock: lock,
            heartbeat,
            runs,
            leases,
            active,
            events,
            claimer,
            rescuer,
            context,
            messages,
            completer,
            session,
            publishing: Some(publishing),
        })
    }

    /// The id of this worker.
    pub fn id(&self) -> &WorkerId {
        &self.record.id
    }

    /// Publishes a warning.
    pub(crate) fn warn(&self, what: String) {
        self.context.events.warn(what);
    }

    /// Requests and runs.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Leases.
    pub fn leases(&self) -> &Engine {
        &self.leases
    }

    /// The rescuer of this worker.
    pub fn rescuer(&self) -> &Rescuer {
        &self.rescuer
    }

    /// The process of the guardian, which lives as long as this worker and all commands that it started. None if there is no
    /// guardian.
    pub(crate) fn guardian_pid(&self) -> Option<u32> {
        self.context.guardian.pid(&self.context.start_records)
    }

    /// Sends attempts what happened to their runs in the store.
    pub(crate) fn forward(&self) -> Result<(), RunError> {
        let ours = self.rescuer.survey()?.ours;
        self.active.forward(&ours, &self.runs)
    }

    /// Kills the processes of all runs that it executes, which were canceled before: their grace is over.
    pub(crate) fn kill_all(&self) {
        self.active.kill_all(&self.events);
    }

    /// Whether it executes any run, or has adopted one that has not ended.
    pub(super) fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Adopts those unattended runs that are wanted, and sends attempts what happened to their runs. Returns whether a wanted run
    /// is not adopted yet.
    pub(super) fn adopt_unattended(&self, wanted: &impl Fn(&Run) -> bool) -> Result<bool, RunError> {
        let survey = self.rescuer.survey()?;
        self.active.forward(&survey.ours, &self.runs)?;
        let mut is_left = survey.out_of_reach.iter().map(|one| &one.run).chain(survey.theirs()).any(wanted);
        for one in survey.unattended.iter().filter(|one| wanted(&one.run)) {
            is_left = true;
            self.rescuer.rescue_one(one, None)?;
        }
        Ok(is_left)
    }

    /// Shows other workers of this machine that this one is not frozen, until the result is dropped.
    pub(super) fn start_heartbeat(&self) -> std::io::Result<Heartbeat> {
        self.heartbeat.start()
    }

    /// The record of this worker in the store.
    pub(crate) fn record(&self) -> &WorkerRecord {
        &self.record
    }

    /// From this time on, leaves runs that cannot be ended or written to the next worker.
    pub(crate) fn set_deadline(&self, at: Instant) {
        self.events.set_deadline(at);
    }

    /// How long a command may take to end by itself after it was asked to.
    pub(crate) fn grace(&self) -> Duration {
        self.context.settings.grace
    }

    /// Claims one run, if nobody else does and nobody holds what it needs. Never waits.
    pub fn claim(&self, id: &RunId) -> Result<ClaimResult, RunError> {
        self.claimer.claim(id)
    }

    /// Executes a claimed run. Returns when its end is on the disk and everything that it held is released.
    pub fn execute(&self, claimed: Claimed) -> Result<(), RunError> {
        let finished = self.attempt(claimed, &mut Slot::new(None).map_err(RunError::Machine)?);
        self.completer.complete(finished);
        Ok(())
    }

    /// Executes the command of a claimed run on this thread.
    fn attempt(&self, claimed: Claimed, slot: &mut Slot) -> Finished {
        let request = self.session.as_ref().map(|_| &claimed.request);
        let control = self.active.add(&claimed.run, request, Arc::clone(&slot.pipe));
        if self.may_be_superseded(&claimed) {
            let run = &claimed.run;
            let what = format!("see whether {} is still claimed here", run.id);
            if persist(&self.events, &what, || self.runs.is_current(run)) != Some(true) {
                let Claimed { run, request, lease, files, .. } = claimed;
                let ended_at = self.runs.now();
                let end = AttemptResult { run, request, outcome: Outcome::Superseded, ended_at };
                return Finished { lease, files, ..Finished::of(end) };
            }
        }
        Attempt::new(&self.context, slot, claimed, control).run()
    }

    /// Whether this worker may have been frozen since the claim, long enough for another worker to replace it.
    fn may_be_superseded(&self, claimed: &Claimed) -> bool {
        let now = self.runs.now();
        let since = claimed.run.started_at().map(|at| now.moment.since(at.moment));
        since.is_some_and(|since| since >= self.context.settings.heartbeat)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.messages.send(CompleterMessage::Shutdown);
        if let Some(publishing) = self.publishing.take() {
            let _ = publishing.join();
        }
        if self.events.has_given_up() {
            // The next worker looks for the ends of its runs in these files.
            return;
        }
        if self.session.is_some() && self.is_active() {
            // The session guardian of this process adopts the runs. Other machines leave them alone while this worker is
            // registered.
            return;
        }
        if let Some(session) = &self.session {
            session.end();
        }
        // If these calls fail, other workers still find that this worker is gone.
        let _ = self.runs.remove_worker(&self.record.id);
        heartbeat::remove(self.runs.folder(), &self.record.id);
        reusable_log::remove(self.runs.folder(), &self.record.id);
    }
}
