//! Executing runs that were asked for over HTTP: on threads of their own, so that no request waits for them.
//!
//! The server is a worker only while it executes something: idle, it is none that others would wait for. Who drains
//! waits for what runs; who stops ends it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::queue::{Limits, Selection};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::waiting::Blocker;
use tokio::sync::mpsc;

use super::site::Site;
use lockkeeper_engine::doctor::{Pass, Status as Health};
use lockkeeper_engine::open::open_engine;
use lockkeeper_engine::queue::{self, QueueBusy, QueueTurn};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RunError, Runs};
use lockkeeper_engine::work::{ClaimResult, Claimed, ControlListener, Worker};
use lockkeeper_formats::status::StatusLog;
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;

/// Where runs are executed.
pub(super) struct Workshop {
    worker: Mutex<Weak<RunWorker>>,
    /// What is executed here.
    busy: Mutex<BTreeSet<RunId>>,
    /// Who works through the queue here.
    queue_worker: Mutex<Option<WorkerId>>,
    /// Cloned by every thread that executes something; none once the server ends.
    present: Mutex<Option<mpsc::Sender<()>>>,
    all_gone: tokio::sync::Mutex<mpsc::Receiver<()>>,
}

/// A worker that single runs are executed by, for as long as there are any.
struct RunWorker {
    // It listens for the worker, so that it is dropped first.
    _listener: ControlListener,
    worker: Arc<Worker>,
}

/// What became of the wish to run a request.
pub(super) enum Begun {
    /// It is executed.
    Run(Box<Run>),
    /// Others hold what it needs.
    Held(Vec<Blocker>),
}

/// What became of the wish to work through the queue.
pub(super) enum Turn {
    /// It is worked through.
    Begun(Selection),
    /// There is nothing to do.
    Nothing(Selection),
    /// Somebody else does.
    Busy(QueueBusy),
}

impl Workshop {
    pub(super) fn new() -> Self {
        let (present, all_gone) = mpsc::channel(1);
        Self {
            worker: Mutex::default(),
            busy: Mutex::default(),
            queue_worker: Mutex::default(),
            present: Mutex::new(Some(present)),
            all_gone: tokio::sync::Mutex::new(all_gone),
        }
    }

    /// Runs a request now: its queued run, or a new one when the last has ended.
    pub(super) fn run(&self, site: &Site, request: &RequestId) -> Result<Begun, Report> {
        let runs = site.runs();
        let entry = runs.request(request)?;
        let (id, is_new) = match entry.latest {
            Some(run) if run.status == Status::Queued => (run.id, false),
            Some(_) | None => (runs.run_again(request)?, true),
        };
        recover_quickly(site);
        let worker = self.worker(site)?;
        match worker.worker.claim(&id)? {
            ClaimResult::Claimed(claimed) => {
                let run = claimed.run().clone();
                self.execute(site, worker, *claimed)?;
                Ok(Begun::Run(Box::new(run)))
            }
            ClaimResult::Held(blockers) => {
                if is_new {
                    runs.cancel(&id, Some("others hold what it needs"))?;
                }
                Ok(Begun::Held(blockers))
            }
            ClaimResult::Lost => {
                let run = runs.show(&id)?.run;
                // A worker took what was queued here a moment ago: it is executed, as was asked.
                if is_new {
                    return Ok(Begun::Run(Box::new(run)));
                }
                Err(RunError::InProgress { request: request.clone(), run: run.id, status: run.status }.into())
            }
        }
    }

    /// Works through the queue: one request, or all of them one after the other.
    pub(super) fn work_through(&self, site: &Site, all: bool) -> Result<Turn, Report> {
        recover_quickly(site);
        let worker = Arc::new(begin_worker(site)?);
        let listener = ControlListener::begin(&worker, None)?;
        let mut turn = match QueueTurn::take(&worker, listener, site.settings().execution.aiflow.as_ref())? {
            Ok(turn) => turn,
            Err(busy) => return Ok(Turn::Busy(busy)),
        };
        let selection = queue::selection(site.runs(), &[])?;
        if selection.next.is_none() {
            return Ok(Turn::Nothing(selection));
        }
        *locked(&self.queue_worker) = Some(worker.id().clone());
        let here = site.clone();
        self.spawn("queue", move || {
            let ended = if all {
                let mut doctor = || here.examine(Pass::Quick).status() != Health::Fail;
                turn.auto(Limits::default(), &mut doctor, &mut |_| {}).map(drop)
            } else {
                turn.run_next().map(drop)
            };
            if let Err(error) = ended {
                tracing::error!(%error, "the queue ended");
            }
        })?;
        Ok(Turn::Begun(selection))
    }

    /// Begins nothing new, and asks a queue that is worked through here to end after the present run.
    pub(super) fn drain(&self, site: &Site) {
        locked(&self.present).take();
        if let Some(worker) = locked(&self.worker).upgrade() {
            tracing::info!(worker = %worker.worker.id(), "waiting for what runs to end");
        }
        let ours = locked(&self.queue_worker).take();
        let stopped = site.runs().store().write(|tables| {
            let is_ours = tables.auto_run()?.is_some_and(|auto| ours.as_ref() == Some(&auto.worker));
            if is_ours { tables.stop_auto_run() } else { Ok(()) }
        });
        if let Err(error) = stopped {
            tracing::warn!(%error, "cannot ask the queue to end");
        }
    }

    /// Returns when nothing is executed any more.
    pub(super) async fn ended(&self) {
        self.all_gone.lock().await.recv().await;
    }

    /// Ends what is executed.
    pub(super) fn stop(&self, runs: &Runs) {
        for id in locked(&self.busy).iter() {
            // It may have ended meanwhile.
            let _ = runs.cancel(id, Some("the server was stopped"));
        }
    }

    /// Executes a run to its end, further attempts included.
    fn execute(&self, site: &Site, worker: Arc<RunWorker>, claimed: Claimed) -> Result<(), Report> {
        let (id, here) = (claimed.run().id.clone(), site.clone());
        locked(&self.busy).insert(id.clone());
        self.spawn("run", move || {
            if let Err(error) = execute_all_attempts(&worker.worker, claimed) {
                tracing::error!(%error, "a run cannot be looked after");
            }
            locked(&here.workshop().busy).remove(&id);
        })
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Report> {
        let present = locked(&self.present).clone().ok_or_else(|| {
            Report::new(
                lockkeeper_engine::report::Exit::Unreachable,
                "SHUTTING_DOWN",
                "the server is about to end",
            )
            .with_hint("ask again once it was started again")
        })?;
        let work = move || {
            work();
            drop(present);
        };
        thread::Builder::new().name(name.to_owned()).spawn(work).map_err(RunError::Machine)?;
        Ok(())
    }

    fn worker(&self, site: &Site) -> Result<Arc<RunWorker>, Report> {
        let mut known = locked(&self.worker);
        if let Some(worker) = known.upgrade() {
            return Ok(worker);
        }
        let worker = Arc::new(begin_worker(site)?);
        let begun = Arc::new(RunWorker { _listener: ControlListener::begin(&worker, None)?, worker });
        *known = Arc::downgrade(&begun);
        Ok(begun)
    }
}

fn begin_worker(site: &Site) -> Result<Worker, Report> {
    let settings = site.settings();
    let runs = Runs::open(site.state_folder())?;
    let leases = open_engine(site.state_folder())?;
    let status = settings.status_dir.as_deref().map(StatusLog::open).transpose()?;
    Ok(Worker::begin(runs, leases, settings.execution.clone(), 1, status, site.worker_listener())?)
}

/// Executes a claimed run, and makes its further attempts when they are due.
fn execute_all_attempts(worker: &Worker, claimed: Claimed) -> Result<(), RunError> {
    let id = claimed.run().id.clone();
    let mut claimed = claimed;
    loop {
        worker.execute(claimed)?;
        claimed = loop {
            let run = worker.runs().show(&id)?.run;
            let Some(retry_at) = run.retry_at.filter(|_| run.waits_for_retry()) else { return Ok(()) };
            let until = Instant::now().checked_add(retry_at.since(clock::now()));
            if worker.runs().wait(&id, until, None)?.status.is_terminal() {
                return Ok(());
            }
            match worker.claim(&id)? {
                ClaimResult::Claimed(next) => break *next,
                // Another worker may have been faster, or holds what is needed: then it is looked at again.
                ClaimResult::Held(_) | ClaimResult::Lost => {
                    let again = Instant::now().checked_add(std::time::Duration::from_secs(1));
                    worker.runs().wait(&id, again, None)?;
                }
            }
        };
    }
}

/// Before each run, lock files whose time is up are put away.
fn recover_quickly(site: &Site) {
    let Some(aiflow) = &site.settings().execution.aiflow else { return };
    match aiflow.recover(Pass::Quick, WallTime::now()) {
        Ok(recovery) => {
            for recovered in &recovery.recovered {
                tracing::warn!(reason_code = "LOCK_STALE_RECOVERED", subject = ?recovered.subject, "recovered");
            }
        }
        Err(error) => tracing::warn!(%error, "stale lock files cannot be put away"),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
