//! Working through the queue one request at a time, under the queue's lock.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{Owner, RequestId};
use lockkeeper_core::lease::{self, Outcome};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::queue::{Candidate, Limits, PassedOver, Selection, Stop, ends, select};
use lockkeeper_core::record::{Claim, Lease, Priority};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Ttl;

use super::runs::{RunError, Runs};
use super::work::{Attendant, Executor, Taken};
use lockkeeper_formats::aiflow::{self, AiflowLock, Subject};
use lockkeeper_platform::clock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::runs::AutoRun;

/// The name that the queue's lease is on.
pub const QUEUE: &str = "queue";
/// So many requests that can be next are looked at, beside those that are known to be held by others.
const LOOK_AT: usize = 100;
/// So many of each other state are named.
const NAMED: usize = 100;
/// How often the lock is looked at while a retry is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The right to work through the queue. It is given back when this is dropped, also by a panic.
pub struct QueueTurn {
    executor: Arc<Executor>,
    attendant: Attendant,
    lease: Lease,
    file: Option<AiflowLock>,
}

/// Somebody else works through the queue.
#[derive(Clone, Debug)]
pub struct QueueBusy {
    /// Who.
    pub holder: String,
    /// What it has come to, where that is known.
    pub auto_run: Option<AutoRun>,
}

/// What one step did.
#[derive(Clone, Debug)]
pub struct Step {
    /// The choice that was made.
    pub selection: Selection,
    /// The run that was executed, as it ended; none when there was nothing to do.
    pub run: Option<Run>,
}

/// What an auto-run did.
#[derive(Clone, Debug)]
pub struct AutoRunEnd {
    /// Why it ended.
    pub stop: Stop,
    /// What was executed.
    pub runs: Vec<Run>,
    /// The last choice.
    pub selection: Selection,
}

impl QueueTurn {
    /// Takes the queue's lock, or says who has it. Never waits.
    pub fn take(
        executor: &Arc<Executor>,
        attendant: Attendant,
        aiflow: Option<&aiflow::Aiflow>,
    ) -> Result<Result<Self, QueueBusy>, RunError> {
        let lease = match executor.leases().acquire(&order(executor))? {
            Outcome::Granted(grant) => grant.lease,
            Outcome::Held(jams) => {
                let holder = jams.first().and_then(|jam| jam.leases.first());
                let holder = holder.map_or_else(String::new, |found| found.record.claim.owner.to_string());
                return Ok(Err(busy(executor.runs(), holder)?));
            }
            Outcome::Waiting(_) | Outcome::Deadlock(_) | Outcome::Gone => {
                return Ok(Err(busy(executor.runs(), String::new())?));
            }
        };
        let mut turn = Self { executor: Arc::clone(executor), attendant, lease, file: None };
        if let Some(aiflow) = aiflow {
            let ttl = Ttl::new(aiflow::DEFAULT_TTL).expect("half an hour is a TTL");
            let terms = aiflow::Terms { run_id: None, pid: executor.record().process.pid, ttl };
            match aiflow.lock(&Subject::Queue, terms, WallTime::now()) {
                Ok(aiflow::Attempt::Locked { lock, .. }) => turn.file = Some(lock),
                Ok(aiflow::Attempt::Busy(standing)) => {
                    let holder = standing.record.and_then(|record| record.run_id).unwrap_or_default();
                    return Ok(Err(busy(executor.runs(), holder)?));
                }
                Err(error) => return Err(RunError::Machine(std::io::Error::other(error))),
            }
        }
        let worker = executor.worker().clone();
        executor.runs().store().note(|tables| tables.begin_auto_run(&worker))?;
        Ok(Ok(turn))
    }

    /// Executes the next request.
    pub fn run_next(&mut self) -> Result<Step, RunError> {
        let mut locked: Vec<RequestId> = Vec::new();
        loop {
            let selection = selection(self.executor.runs(), &locked)?;
            let Some(next) = &selection.next else { return Ok(Step { selection, run: None }) };
            let latest = self.executor.runs().store().read(|tables| tables.latest_run(next))?;
            let Some(latest) = latest else {
                locked.push(next.clone());
                continue;
            };
            match self.executor.take(&latest.id)? {
                Taken::Job(job) => {
                    self.move_on(next, job.run())?;
                    let done = self.executor.execute(*job);
                    let id = done.run().id.clone();
                    self.executor.conclude(done, None)?;
                    let run = self.see_through(&id)?;
                    return Ok(Step { selection, run: Some(run) });
                }
                // Somebody else was faster, or holds what it needs: the next one may go.
                Taken::Held(_) | Taken::Lost => locked.push(next.clone()),
            }
        }
    }

    /// Executes request after request until there is a reason to end. `doctor` says whether all is well before each.
    pub fn auto(
        &mut self,
        limits: Limits,
        doctor: &mut dyn FnMut() -> bool,
        on_end: &mut dyn FnMut(&Run),
    ) -> Result<AutoRunEnd, RunError> {
        let began = clock::now();
        let mut runs: Vec<Run> = Vec::new();
        let mut last = Selection::default();
        let stop = loop {
            if self.is_asked_to_end()? {
                break Stop::Asked;
            }
            if !self.is_ours()? {
                break Stop::LockLost;
            }
            if !doctor() {
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
        let worker = self.executor.worker().clone();
        self.executor.runs().store().note(|tables| tables.end_auto_run(&worker, stop.as_str()))?;
        Ok(AutoRunEnd { stop, runs, selection: last })
    }

    /// Keeps the lock and says what it has come to.
    fn move_on(&mut self, request: &RequestId, run: &Run) -> Result<(), RunError> {
        if let Some(file) = &mut self.file {
            let moved = file.set_current(request.as_str(), run.id.as_str(), WallTime::now());
            moved.map_err(|error| RunError::Machine(std::io::Error::other(error)))?;
        }
        let worker = self.executor.worker().clone();
        Ok(self.executor.runs().store().note(|tables| tables.count_auto_run(&worker, &run.id))?)
    }

    /// Makes the further attempts at a run that failed, when they are due.
    fn see_through(&mut self, id: &lockkeeper_core::id::RunId) -> Result<Run, RunError> {
        loop {
            let run = self.executor.runs().show(id)?.run;
            let Some(retry_at) = run.retry_at.filter(|_| run.waits_for_retry()) else { return Ok(run) };
            let wait = retry_at.since(clock::now());
            if !wait.is_zero() {
                if self.is_asked_to_end()? {
                    return Ok(self.executor.runs().cancel(id, Some("the queue was stopped"))?.run);
                }
                thread::sleep(wait.min(LOOK_EVERY));
                continue;
            }
            match self.executor.take(id)? {
                Taken::Job(job) => {
                    let done = self.executor.execute(*job);
                    self.executor.conclude(done, None)?;
                }
                Taken::Held(_) => thread::sleep(LOOK_EVERY),
                Taken::Lost => {
                    let until = Instant::now() + LOOK_EVERY;
                    self.executor.runs().wait(id, Some(until), None)?;
                }
            }
        }
    }

    fn is_asked_to_end(&self) -> Result<bool, RunError> {
        let auto = self.executor.runs().store().read(|tables| tables.auto_run())?;
        let ours = auto.filter(|auto| auto.worker == *self.executor.worker());
        Ok(self.attendant.is_asked_to_end() || ours.is_none_or(|auto| auto.stop))
    }

    fn is_ours(&mut self) -> Result<bool, RunError> {
        if let Some(file) = &mut self.file
            && !file.heartbeat(WallTime::now()).unwrap_or(true)
        {
            return Ok(false);
        }
        Ok(self.executor.leases().loss(self.lease.id, self.lease.token)?.is_none())
    }
}

impl Drop for QueueTurn {
    fn drop(&mut self) {
        // The end of this process frees it all the same.
        let _ = self.executor.leases().release(self.lease.id, Some(self.lease.token));
    }
}

/// Asks whoever works through the queue to end after the present run; false when nobody does.
pub fn stop(runs: &Runs, leases: &super::Engine) -> Result<bool, RunError> {
    let running = is_running(leases)?;
    if running {
        runs.store().write(|tables| tables.stop_auto_run())?;
    }
    Ok(running)
}

/// Whether somebody works through the queue.
pub fn is_running(leases: &super::Engine) -> Result<bool, RunError> {
    let target = Target::Name(QUEUE.parse().expect("it is a name"));
    let held =
        leases.listing()?.holders.into_iter().any(|holder| {
            holder.lease.claim.targets().any(|one| *one == target) && !holder.verdict.is_free()
        });
    Ok(held)
}

/// What would be next, and why the others are not; `locked` are known to be held by others.
pub fn selection(runs: &Runs, locked: &[RequestId]) -> Result<Selection, RunError> {
    let open = runs.store().read(|tables| tables.open_requests(LOOK_AT + locked.len(), NAMED))?;
    let open = open.into_iter().filter(|stored| stored.request.conductor().is_none());
    Ok(select(open.map(|stored| Candidate {
        locked: locked.contains(&stored.request.id),
        id: stored.request.id,
        status: stored.status,
        unmet: stored.unmet,
    })))
}

/// Why a request was passed over, in words.
pub const fn explain(reason: PassedOver) -> &'static str {
    match reason {
        PassedOver::NotReady => "it ended and nobody asked for it again",
        PassedOver::DependsNotDone => "something that it comes after is not done",
        PassedOver::RequestLocked => "it is being executed, or others hold what it needs",
        PassedOver::LatestRunNeedsInput => "it waits for somebody's answer",
    }
}

fn busy(runs: &Runs, holder: String) -> Result<QueueBusy, RunError> {
    let auto_run = runs.store().read(|tables| tables.auto_run())?;
    Ok(QueueBusy { holder, auto_run })
}

fn order(executor: &Executor) -> lease::Request {
    let worker = executor.record();
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
    };
    let priority = Priority::new(0).expect("zero is a priority");
    lease::Request { claim, priority, under: Vec::new(), wait: None, join: false }
}
