//! Execution of one group: acquires its lease, then runs its agents, `max_concurrent` at a time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{Name, Owner, RequestId};
use lockkeeper_core::lease::{self, Outcome, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::record::{Claim, Lease, Priority};
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::{Ttl, format_span};
use lockkeeper_platform::poll;

use super::agents::AgentCommand;
use super::{PhaseEvent, StageError};
use crate::runs::RunError;
use crate::work::{ClaimResult, Worker, why};
use crate::{Acquired, AtEnd, WaitOptions};

/// How often a wait for a run of another worker checks whether everything is stopped.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// The TTL of the ticket. It matters only when nothing is known about this process: a live process keeps its ticket.
const TICKET_TTL: Duration = Duration::from_secs(120);

/// How long after its grace a canceled run may take to end.
const CANCEL_TIME: Duration = Duration::from_secs(5);
const TICKET_REMOVED: &str = "its ticket was removed";

/// A group that is to be executed.
pub(super) struct GroupExecution<'t> {
    pub(super) worker: &'t Worker,
    /// The group's index in the plan.
    pub(super) index: usize,
    pub(super) owner: Owner,
    pub(super) name: Name,
    pub(super) paths: Vec<Pattern>,
    pub(super) agents: &'t [AgentCommand],
    pub(super) ids: Vec<RequestId>,
    pub(super) at_once: usize,
    pub(super) dir: &'t str,
    pub(super) env: Vec<(String, String)>,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Option<Duration>,
    /// How long to wait for the lease, at each try.
    pub(super) lease_timeout: Duration,
    /// Waits for the lease after which a rule may apply, the shortest first.
    pub(super) report_after: Vec<Duration>,
    pub(super) lease_retries: u64,
    pub(super) control: &'t Control,
}

/// Stop flag that all groups share, and the runs to cancel.
pub(super) struct Control {
    stop: AtomicBool,
    /// The read end of a pipe. It becomes readable when all groups have to stop.
    stopped: OwnedFd,
    stopper: Mutex<Option<OwnedFd>>,
    /// Whether groups ignore `lease_timeout`. Set when a rule makes groups run one by one.
    pub(super) wait_without_limit: AtomicBool,
    /// Runs that are being executed.
    active: Mutex<Vec<lockkeeper_core::id::RunId>>,
}

impl Control {
    pub(super) fn new() -> Result<Self, RunError> {
        let (stopped, stopper) = lockkeeper_platform::pipe::nonblocking().map_err(RunError::Machine)?;
        Ok(Self {
            stop: AtomicBool::new(false),
            stopped,
            stopper: Mutex::new(Some(stopper)),
            wait_without_limit: AtomicBool::new(false),
            active: Mutex::default(),
        })
    }

    /// Stops all groups: no agent starts any more, and running agents are canceled.
    pub(super) fn stop(&self, worker: &Worker, why: &str) {
        self.stop.store(true, Ordering::SeqCst);
        drop(locked(&self.stopper).take());
        for run in locked(&self.active).iter() {
            // A run that has ended cannot be canceled.
            let _ = worker.runs().cancel(run, Some(why));
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How a group ended.
pub(super) enum End {
    Succeeded,
    Failed(String),
    Stopped,
}

/// A message from a group to the executor.
pub(super) enum GroupMessage {
    Event(PhaseEvent),
    /// The group has waited for its lease for this long. It continues when the sender is used or dropped.
    LockTimeout(Duration, Sender<()>),
    /// Others hold what the group needs, so it waits.
    Blocked,
}

impl GroupExecution<'_> {
    /// Acquires the lease, runs all agents, and releases the lease.
    pub(super) fn execute(&self, send: &(dyn Fn(GroupMessage) + Sync)) -> Result<End, StageError> {
        let begun = Instant::now();
        let lease = match self.acquire(send)? {
            Ok(lease) => lease,
            Err(_) if self.control.is_stopped() => return Ok(End::Stopped),
            Err(why) => return Ok(End::Failed(why)),
        };
        send(GroupMessage::Event(PhaseEvent::GroupStarted { group: self.index, waited: begun.elapsed() }));
        let ended = self.run_agents(send);
        // If the release fails, the end of this process frees the lease.
        let _ = self.worker.leases().release(lease.id, Some(lease.token));
        ended
    }

    /// Waits for the lease. The inner error says why the group did not get it.
    fn acquire(&self, send: &(dyn Fn(GroupMessage) + Sync)) -> Result<Result<Lease, String>, StageError> {
        let leases = self.worker.leases();
        let waker = leases.store().waker().map_err(RunError::from)?;
        let stays = Ttl::new(TICKET_TTL).expect("two minutes are a TTL");
        let terms = WaitTerms { waker: Some(waker.id()), stays };
        let mut waiting = match leases.acquire(&self.lease_request(terms)).map_err(RunError::from)? {
            Outcome::Granted(grant) => return Ok(Ok(grant.lease)),
            Outcome::Waiting(waiting) => waiting,
            Outcome::Deadlock(_) => return Ok(Err("waiting for its lease would be a deadlock".to_owned())),
            Outcome::Held(blockers) => return Ok(Err(why(&blockers))),
            Outcome::Gone => return Ok(Err(TICKET_REMOVED.to_owned())),
        };
        send(GroupMessage::Blocked);
        let event = PhaseEvent::GroupWaiting { group: self.index, why: why(&waiting.blockers) };
        send(GroupMessage::Event(event));
        let begun = Instant::now();
        let mut report_after = self.report_after.iter().copied().peekable();
        let mut timeouts: u32 = 0;
        loop {
            let ticket = waiting.ticket.clone();
            let limit = self.lease_timeout.saturating_mul(timeouts.saturating_add(1));
            let next = report_after.peek().map_or(limit, |after| limit.min(*after));
            let interrupts = [self.control.stopped.as_fd()];
            let until = begun.checked_add(next);
            let options = WaitOptions { until, interrupts: &interrupts, grace: Duration::ZERO, tick: None };
            let waited = leases.wait(waiting, &*waker, &options, AtEnd::Stay, &mut |_| {});
            match waited.map_err(RunError::from)? {
                Acquired::Granted(grant) => return Ok(Ok(grant.lease)),
                Acquired::Gone | Acquired::Held(_) | Acquired::Deadlock(_) => {
                    return Ok(Err(TICKET_REMOVED.to_owned()));
                }
                Acquired::Interrupted(_) => {
                    leases.give_up(&ticket).map_err(RunError::from)?;
                    return Ok(Err("everything was ended".to_owned()));
                }
                Acquired::Waiting(still) => {
                    while report_after.next_if(|after| *after <= next).is_some() {}
                    self.report_timeout(next, send);
                    timeouts += u32::from(next >= limit);
                    let no_retry_left = u64::from(timeouts) > self.lease_retries;
                    if no_retry_left && !self.control.wait_without_limit.load(Ordering::SeqCst) {
                        leases.give_up(&ticket).map_err(RunError::from)?;
                        let waited = format_span(begun.elapsed());
                        return Ok(Err(format!(
                            "it did not get its lease within {waited}: {}",
                            why(&still.blockers)
                        )));
                    }
                    waiting = still;
                }
            }
        }
    }

    /// Reports a timeout, and waits until the executor has applied its rules.
    fn report_timeout(&self, waited: Duration, send: &(dyn Fn(GroupMessage) + Sync)) {
        let (sender, handled) = channel();
        send(GroupMessage::LockTimeout(waited, sender));
        while handled.recv_timeout(CHECK_EVERY) == Err(RecvTimeoutError::Timeout)
            && !self.control.is_stopped()
        {}
    }

    fn run_agents(&self, send: &(dyn Fn(GroupMessage) + Sync)) -> Result<End, StageError> {
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<String>> = Mutex::new(None);
        let broken: Mutex<Option<StageError>> = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..self.at_once.clamp(1, self.agents.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::SeqCst);
                        let has_failed = locked(&failed).is_some() || locked(&broken).is_some();
                        let Some(agent) =
                            self.agents.get(index).filter(|_| !has_failed && !self.control.is_stopped())
                        else {
                            return;
                        };
                        match self.run_agent(agent, &self.ids[index]) {
                            Ok(Some(run)) => {
                                if RequestStatus::from(&run) != RequestStatus::Done {
                                    let reason = run.reason.map_or("", |reason| reason.as_str());
                                    let why = format!("agent {}: {} {reason}", agent.agent, run.status);
                                    locked(&failed).get_or_insert(why.trim_end().to_owned());
                                }
                                let (group, agent) = (self.index, agent.agent.clone());
                                let event = PhaseEvent::AgentEnded { group, agent, run: Box::new(run) };
                                send(GroupMessage::Event(event));
                            }
                            Ok(None) => return,
                            Err(error) => {
                                locked(&broken).get_or_insert(error);
                                return;
                            }
                        }
                    }
                });
            }
        });
        if let Some(error) = broken.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            return Err(error);
        }
        let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(match failed {
            _ if self.control.is_stopped() => End::Stopped,
            Some(why) => End::Failed(why),
            None => End::Succeeded,
        })
    }

    /// Runs the request of one agent to its end. Returns none if everything was stopped before.
    fn run_agent(&self, agent: &AgentCommand, id: &RequestId) -> Result<Option<Run>, StageError> {
        let runs = self.worker.runs();
        let known = runs.store().read(|tables| tables.request(id)).map_err(RunError::from)?;
        let mut run = match known {
            None => runs.submit(&self.request(agent, id), None)?.run,
            Some(known) if known.request.origin.as_deref() != Some(self.owner.as_str()) => {
                return Err(StageError::NotOurs(id.clone()));
            }
            Some(known) if known.status == RequestStatus::Done => {
                return Ok(Some(runs.find(id.as_str())?));
            }
            Some(_) => runs.find(id.as_str())?.id,
        };
        let mut is_first = true;
        loop {
            let found = runs.find(run.as_str())?;
            if found.status.is_terminal() {
                // A resumed execution retries a run that failed earlier, once.
                let failed_earlier = is_first && RequestStatus::from(&found) != RequestStatus::Done;
                if !failed_earlier || self.control.is_stopped() {
                    return Ok(Some(found));
                }
                run = runs.run_again(id)?;
            }
            is_first = false;
            if self.control.is_stopped() {
                let _ = runs.cancel(&run, Some("everything was ended"));
                // An adopted run has processes, which take some time to end.
                let until = Instant::now().checked_add(self.worker.grace().saturating_add(CANCEL_TIME));
                runs.wait(&run, until, None)?;
                return Ok(None);
            }
            match self.worker.claim(&run)? {
                ClaimResult::Claimed(claimed) => {
                    locked(&self.control.active).push(run.clone());
                    // The stop may have come before the run was in the list.
                    if self.control.is_stopped() {
                        let _ = runs.cancel(&run, Some("everything was ended"));
                    }
                    self.worker.execute(*claimed)?;
                    locked(&self.control.active).retain(|active| *active != run);
                }
                // Somebody broke the group's lease, and another owner has it now. Try again later.
                ClaimResult::Held(_) => {
                    let stopped = [self.control.stopped.as_fd()];
                    poll::wait(&stopped, Some(CHECK_EVERY)).map_err(RunError::Machine)?;
                }
                ClaimResult::Lost => {
                    let until = Instant::now() + CHECK_EVERY;
                    runs.wait(&run, Some(until), Some(self.control.stopped.as_fd()))?;
                }
            }
        }
    }

    fn request(&self, agent: &AgentCommand, id: &RequestId) -> Request {
        let mut env = self.env.clone();
        env.push(("LOCKKEEPER_AGENT".to_owned(), agent.agent.clone()));
        env.push(("LOCKKEEPER_TASK".to_owned(), agent.task.clone().unwrap_or_default()));
        let title = match &agent.task {
            Some(task) => format!("{}: {}: {task}", self.name, agent.agent),
            None => format!("{}: {}", self.name, agent.agent),
        };
        Request {
            title,
            env,
            locks: vec![self.name.clone()],
            paths: self.paths.clone(),
            timeout: self.timeout,
            retry: self.retry.clone(),
            origin: Some(self.owner.to_string()),
            ..Request::new(id.clone(), agent.command.clone(), self.dir.to_owned())
        }
    }

    fn lease_request(&self, terms: WaitTerms) -> lease::Request {
        let names = std::iter::once(Target::Name(self.name.clone()));
        let targets = names.chain(self.paths.iter().cloned().map(Target::Path));
        let resources = targets.map(|target| Resource { target, mode: Mode::Exclusive }).collect();
        let worker = self.worker.record();
        let voucher = Voucher::KernelLock { holder: worker.holder, process: worker.process };
        let claim = Claim {
            owner: self.owner.clone(),
            resources,
            proof: Proof { origin: worker.origin.clone(), voucher },
            contract: Contract::Strict,
            ttl: None,
            reason: Some(format!("group {}", self.name)),
            ticket: None,
            agent: None,
        };
        let priority = Priority::new(0).expect("zero is a priority");
        lease::Request { claim, priority, under: Vec::new(), wait: Some(terms), join: false }
    }
}
