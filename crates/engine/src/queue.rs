//! Auto-run: executes the queued requests one by one, under the queue lock.

mod selection;
mod stop;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{Owner, RequestId, RunId};
use lockkeeper_core::lease::{self, Outcome};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::queue::{Limits, Selection, Stop, ends};
use lockkeeper_core::record::{Claim, Lease, Priority};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Ttl;
use lockkeeper_formats::aiflow::{self, AiflowLock, Subject};
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::runs::{AutoRun, AutoRunChange};

use crate::Engine;
use crate::runs::{RunError, Runs};
use crate::work::{ClaimResult, ControlListener, Settings, Worker};
pub use selection::{explain, forecast, selection};
pub use stop::{FailedCheck, QueueStop};

/// The name of the queue lock.
pub const QUEUE: &str = "queue";
/// How often a wait for a retry checks whether it has to stop.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Holder of the queue lock that executes queued requests. Dropping it releases the lock, also after a panic.
pub struct QueueRunner {
    worker: Arc<Worker>,
    listener: ControlListener,
    lease: Lease,
    file: Option<AiflowLock>,
}

/// Another process holds the queue lock.
#[derive(Clone, Debug)]
pub struct QueueBusy {
    /// The holder of the lock.
    pub holder: String,
    /// The auto-run of the holder, if it is known.
    pub auto_run: Option<AutoRun>,
    /// Whether another program holds the lock file of the queue. `holder` is its run, if the file names one.
    pub is_foreign: bool,
}

impl QueueBusy {
    /// The run that is executed now, if it is known.
    pub fn current_run(&self) -> Option<&str> {
        let foreign = Some(self.holder.as_str()).filter(|run| self.is_foreign && !run.is_empty());
        foreign.or_else(|| self.auto_run.as_ref()?.current.as_ref().map(RunId::as_str))
    }
}

/// The result of one step.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was selected, and what was passed over.
    pub selection: Selection,
    /// The run after its end; none if no request was ready.
    pub run: Option<Run>,
}

/// The result of an auto-run.
#[derive(Clone, Debug)]
pub struct AutoRunEnd {
    /// Why it ended.
    pub stop: Stop,
    /// The executed runs.
    pub runs: Vec<Run>,
    /// The last selection.
    pub selection: Selection,
    /// The check that failed, if it ended for that.
    pub check: Option<FailedCheck>,
}

/// Examines the machine before each request. A check that fails stops the queue.
pub type Doctor<'d> = &'d mut dyn FnMut() -> Option<FailedCheck>;

impl QueueRunner {
    /// Acquires the queue lock, or returns its holder. Never waits.
    pub fn lock(
        worker: &Arc<Worker>,
        listener: ControlListener,
        aiflow: Option<&aiflow::Aiflow>,
    ) -> Result<Result<Self, QueueBusy>, RunError> {
        let lease = match worker.leases().acquire(&lease_request(worker))? {
            Outcome::Granted(grant) => grant.lease,
            Outcome::Held(blockers) => {
                let holder = blockers.first().and_then(|blocker| blocker.leases.first());
                let holder = holder.map_or_else(String::new, |found| found.record.claim.owner.to_string());
                return Ok(Err(busy(worker.runs(), holder)?));
            }
            Outcome::Waiting(_) | Outcome::Deadlock(_) | Outcome::Gone => {
                return Ok(Err(busy(worker.runs(), String::new())?));
            }
        };
        let mut runner = Self { worker: Arc::clone(worker), listener, lease, file: None };
        if let Some(aiflow) = aiflow {
            let ttl = Ttl::new(aiflow::DEFAULT_TTL).expect("half an hour is a TTL");
            let terms = aiflow::Terms { run_id: None, pid: worker.record().process.pid, ttl };
            match aiflow.lock(&Subject::Queue, terms, WallTime::now()) {
                Ok(aiflow::Attempt::Locked { lock, recovered }) => {
                    runner.file = Some(lock);
                    if let Some(old) = recovered {
                        let who = old.state.run_id().unwrap_or("another program");
                        let code = aiflow::Recovered::REASON_CODE;
                        worker.warn(format!(
                            "{code}: took over the lock of {who} on the queue, which had expired"
                        ));
                    }
                }
                Ok(aiflow::Attempt::Busy(standing)) => {
                    let holder = standing.record.and_then(|record| record.run_id).unwrap_or_default();
                    // We hold the lease of the queue, so an executor of this store that had the file is gone.
                    let adopted = is_own_run(worker.runs(), &holder)
                        .then(|| aiflow.adopt(&Subject::Queue, &holder, terms, WallTime::now()));
                    match adopted.transpose() {
                        Ok(Some(Some(lock))) => runner.file = Some(lock),
                        Ok(Some(None) | None) => {
                            return Ok(Err(QueueBusy { holder, auto_run: None, is_foreign: true }));
                        }
                        Err(error) => return Err(RunError::Machine(std::io::Error::other(error))),
                    }
                }
                Err(error) => return Err(RunError::Machine(std::io::Error::other(error))),
            }
        }
        worker.runs().store().change_auto_run(&AutoRunChange::Start { worker: worker.id() })?;
        Ok(Ok(runner))
    }

    /// Asks the doctor before a single request. A check that fails is recorded as the reason why the queue stopped.
    pub fn ask(&self, doctor: Doctor<'_>) -> Result<Option<FailedCheck>, RunError> {
        let check = doctor();
        if check.is_some() {
            self.record_stop(Stop::DoctorFailed, check.as_ref())?;
        }
        Ok(check)
    }

    /// Executes the next request, and records whether a person is needed now.
    pub fn run_one(&mut self) -> Result<Step, RunError> {
        let step = self.run_next()?;
        let unlimited = Limits { runs: u32::MAX, span: Duration::MAX };
        let status = step.run.as_ref().map(RequestStatus::from);
        if let Some(reason) = status.and_then(|status| ends(status, 1, Duration::ZERO, unlimited)) {
            self.record_stop(reason, None)?;
        }
        Ok(step)
    }

    /// Executes the next request.
    pub fn run_next(&mut self) -> Result<Step, RunError> {
        if let Some(step) = self.run_returned()? {
            return Ok(step);
        }
        let mut locked: Vec<RequestId> = Vec::new();
        loop {
            let selection = selection(self.worker.runs(), &self.worker.record().labels, &locked)?;
            let Some(next) = &selection.next else { return Ok(Step { selection, run: None }) };
            let latest = self.worker.runs().latest_run(next)?;
            let Some(latest) = latest else {
                locked.push(next.clone());
                continue;
            };
            match self.worker.claim(&latest.id)? {
                ClaimResult::Claimed(claimed) => {
                    let id = claimed.run().id.clone();
                    self.record_current(next, claimed.run())?;
                    self.worker.execute(*claimed)?;
                    let run = self.finish_retries(&id)?;
                    return Ok(Step { selection, run: Some(run) });
                }
                // Another worker has claimed it, or another owner holds what it needs. Try the next one.
                ClaimResult::Held(_) | ClaimResult::FileHeld | ClaimResult::NotClaimable => {
                    locked.push(next.clone());
                }
            }
        }
    }

    /// Executes a run whose worker died before the command began, if there is one.
    fn run_returned(&mut self) -> Result<Option<Step>, RunError> {
        for run in self.worker.runs().waiting_attempts()?.into_iter().filter(Run::was_returned) {
            if let ClaimResult::Claimed(claimed) = self.worker.claim(&run.id)? {
                let selection = selection(self.worker.runs(), &self.worker.record().labels, &[])?;
                self.record_current(&run.request, claimed.run())?;
                self.worker.execute(*claimed)?;
                let run = self.finish_retries(&run.id)?;
                return Ok(Some(Step { selection, run: Some(run) }));
            }
        }
        Ok(None)
    }

    /// Executes requests until there is a reason to stop.
    pub fn auto(
        &mut self,
        limits: Limits,
        doctor: Doctor<'_>,
        on_end: &mut dyn FnMut(&Run),
    ) -> Result<AutoRunEnd, RunError> {
        let began = clock::now();
        let mut runs: Vec<Run> = Vec::new();
        let mut last = Selection::default();
        let mut check = None;
        let stop = loop {
            if self.has_to_stop()? {
                break Stop::Asked;
            }
            if !self.has_lock()? {
                break Stop::LockLost;
            }
            check = doctor();
            if check.is_some() {
                break Stop::DoctorFailed;
            }
            let step = self.run_next()?;
            last = step.selection;
            let Some(run) = step.run else { break Stop::NothingLeft };
            on_end(&run);
            let status = RequestStatus::from(&run);
            runs.push(run);
            let count = u32::try_from(runs.len()).unwrap_or(u32::MAX);
            if let Some(stop) = ends(status, count, clock::now().since(began), limits) {
                break stop;
            }
        };
        self.record_stop(stop, check.as_ref())?;
        Ok(AutoRunEnd { stop, runs, selection: last, check })
    }

    /// Records why the queue stops.
    fn record_stop(&self, reason: Stop, check: Option<&FailedCheck>) -> Result<(), RunError> {
        let runs = self.worker.runs();
        let why = stop::to_text(reason, runs.now().unix_micros, check);
        let end = AutoRunChange::End { worker: self.worker.id(), why: &why };
        Ok(runs.store().change_auto_run(&end)?)
    }

    /// Records the current request and run, in the lock file and in the run store.
    fn record_current(&mut self, request: &RequestId, run: &Run) -> Result<(), RunError> {
        if let Some(file) = &mut self.file {
            let moved = file.set_current(request.as_str(), run.id.as_str(), WallTime::now());
            moved.map_err(|error| RunError::Machine(std::io::Error::other(error)))?;
        }
        let worker = &self.worker;
        let count = AutoRunChange::CountRun { worker: worker.id(), run: &run.id };
        Ok(worker.runs().store().change_auto_run(&count)?)
    }

    /// Executes the retries of a failed run when they are due. Returns the run after its end.
    fn finish_retries(&mut self, id: &RunId) -> Result<Run, RunError> {
        loop {
            let run = self.worker.runs().show(id)?.run;
            let Some(retry_at) = run.retry_at().filter(|_| run.waits_for_retry()) else { return Ok(run) };
            let wait = retry_at.since(self.worker.runs().now().moment);
            if !wait.is_zero() {
                if self.has_to_stop()? {
                    return Ok(self.worker.runs().cancel(id, Some("the queue was stopped"))?.run);
                }
                thread::sleep(wait.min(CHECK_EVERY));
                continue;
            }
            match self.worker.claim(id)? {
                ClaimResult::Claimed(claimed) => self.worker.execute(*claimed)?,
                ClaimResult::Held(_) | ClaimResult::FileHeld => thread::sleep(CHECK_EVERY),
                ClaimResult::NotClaimable => {
                    let until = Instant::now() + CHECK_EVERY;
                    self.worker.runs().wait(id, Some(until), None)?;
                }
            }
        }
    }

    fn has_to_stop(&self) -> Result<bool, RunError> {
        let auto = self.worker.runs().auto_run()?;
        let ours = auto.filter(|auto| auto.worker == *self.worker.id());
        Ok(self.listener.is_asked_to_end() || ours.is_none_or(|auto| auto.stop))
    }

    /// Whether the lock is still held. Renews the lock file.
    fn has_lock(&mut self) -> Result<bool, RunError> {
        if let Some(file) = &mut self.file
            && !file.heartbeat(WallTime::now()).unwrap_or(true)
        {
            return Ok(false);
        }
        Ok(self.worker.leases().loss(self.lease.id, self.lease.token)?.is_none())
    }
}

impl Drop for QueueRunner {
    fn drop(&mut self) {
        // If the release fails, the end of this process frees the lease.
        let _ = self.worker.leases().release(self.lease.id, Some(self.lease.token));
    }
}

/// Asks the auto-run to stop after the current run. Returns false if there is none.
pub fn stop(runs: &Runs, leases: &Engine) -> Result<bool, RunError> {
    let running = is_running(leases)?;
    if running {
        runs.store().change_auto_run(&AutoRunChange::RequestStop { worker: None })?;
        runs.store().sync()?;
    }
    Ok(running)
}

/// The auto-run that is under way, or why the last one stopped.
pub fn state(runs: &Runs, leases: &Engine) -> Result<(Option<AutoRun>, Option<QueueStop>), RunError> {
    let last = runs.auto_run()?;
    if is_running(leases)? {
        return Ok((last, None));
    }
    Ok((None, last.as_ref().and_then(QueueStop::of)))
}

/// Whether a run is one of this store.
fn is_own_run(runs: &Runs, run: &str) -> bool {
    run.parse().is_ok_and(|id| runs.run(&id).is_ok())
}

/// The other program that holds the lock file of the queue: its run, or else its process. None if the file is free, is not used,
/// or has a run of this store: then the lease of the queue counts.
pub fn lock_file_holder(runs: &Runs, settings: &Settings) -> Option<String> {
    // A file that cannot be read counts as held: run-next reports why.
    let state = settings.aiflow.as_ref()?.show(&Subject::Queue, WallTime::now()).transpose()?;
    let Ok(state) = state else { return Some(String::new()) };
    if state.verdict.is_stale() || state.run_id().is_some_and(|run| is_own_run(runs, run)) {
        return None;
    }
    let process = || Some(format!("process {}", state.record.as_ref()?.pid?));
    Some(state.run_id().map(str::to_owned).or_else(process).unwrap_or_default())
}

/// Whether a process holds the queue lock.
pub fn is_running(leases: &Engine) -> Result<bool, RunError> {
    let target = Target::Name(QUEUE.parse().expect("it is a name"));
    let held =
        leases.listing()?.holders.into_iter().any(|holder| {
            holder.lease.claim.targets().any(|one| *one == target) && !holder.verdict.is_free()
        });
    Ok(held)
}

fn busy(runs: &Runs, holder: String) -> Result<QueueBusy, RunError> {
    let auto_run = runs.auto_run()?;
    Ok(QueueBusy { holder, auto_run, is_foreign: false })
}

fn lease_request(worker: &Worker) -> lease::AcquireRequest {
    let worker = worker.record();
    let owner: Owner = format!("queue:{}", worker.id).parse().expect("an id is never empty");
    let target = Target::Name(QUEUE.parse().expect("it is a name"));
    let voucher = Voucher::KernelLock { holder: worker.holder, process: worker.process };
    let claim = Claim {
        owner,
        resources: vec![Resource { target, mode: Mode::Exclusive }],
        proof: Proof { origin: worker.origin.clone(), voucher },
        contract: Contract::Strict,
        ttl: None,
        reason: Some("working through the queue".to_owned()),
        ticket: None,
        agent: None,
    };
    let priority = Priority::new(0).expect("zero is a priority");
    lease::AcquireRequest { claim, priority, under: Vec::new(), wait: None, join: false }
}
