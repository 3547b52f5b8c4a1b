//! Execution of one group: acquires its lease, then runs its agents, `max_concurrent` at a time.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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
use lockkeeper_formats::group::{self, Folders, GroupId, GroupLock};
use lockkeeper_platform::flock::Waited;
use lockkeeper_platform::poll;
use lockkeeper_platform::wall_clock::epoch_seconds;

use super::agents::AgentCommand;
use super::patience::{Next, Patience};
use super::phase_control::{PhaseControl, locked};
use super::{PhaseEvent, StageError};
use crate::runs::{RunError, short_id};
use crate::work::{ClaimResult, Worker, why};
use crate::{Acquired, AtEnd, WaitOptions};

/// How often a wait for a run of another worker checks whether everything is stopped.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// The TTL of the ticket. It matters only when nothing is known about this process: a live process keeps its ticket.
const TICKET_TTL: Duration = Duration::from_secs(120);

/// How long after its grace a canceled run may take to end.
const CANCEL_TIME: Duration = Duration::from_secs(5);
const TICKET_REMOVED: &str = "its ticket was removed";
const STOPPED: &str = "everything was ended";

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
    /// How long to wait for the lease and the lock.
    pub(super) patience: Patience,
    /// The lock of the group in a lock folder, if one is named.
    pub(super) lock: Option<(&'t Folders, &'t GroupId)>,
    pub(super) control: &'t PhaseControl,
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
    /// Others hold these names and paths that the group needs, so it waits.
    Blocked(BTreeSet<String>),
}

/// The lock of a group, which this process and the commands of the group hold. Dropping it releases it.
struct HeldLock {
    lock: GroupLock,
    /// The process in the registry.
    pid: u32,
}

impl HeldLock {
    /// Registers the guardian: the shell scripts remove the lock of a process that is dead, and the commands go on if this
    /// process is killed.
    fn register(lock: GroupLock, worker: &Worker) -> Self {
        let pid = worker.guardian_pid().unwrap_or_else(std::process::id);
        // The lock does not depend on the registry.
        let _ = lock.register(pid, epoch_seconds());
        Self { lock, pid }
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // If this fails, the end of this process frees the lock.
        let _ = self.lock.release(self.pid, epoch_seconds());
    }
}

impl GroupExecution<'_> {
    /// Acquires the lease and the group's lock, runs all agents, and releases both.
    pub(super) fn execute(&self, send: &(dyn Fn(GroupMessage) + Sync)) -> Result<End, StageError> {
        let begun = Instant::now();
        let mut patience = self.patience.clone();
        let failed = |why| if self.control.is_stopped() { End::Stopped } else { End::Failed(why) };
        let lease = match self.acquire(&mut patience, begun, send)? {
            Ok(lease) => lease,
            Err(why) => return Ok(failed(why)),
        };
        // If the release fails, the end of this process frees the lease.
        let release = || drop(self.worker.leases().release(lease.id, Some(lease.token)));
        if self.lock.is_some()
            && let Err(error) = self.wait_for_adopted()
        {
            release();
            return Err(error);
        }
        let lock =
            match self.lock.map(|(folders, id)| self.take_lock(folders, id, &mut patience, begun, send)) {
                None => None,
                Some(Ok(Ok(lock))) => Some(lock),
                Some(Ok(Err(why))) => {
                    release();
                    return Ok(failed(why));
                }
                Some(Err(error)) => {
                    release();
                    return Err(error);
                }
            };
        send(GroupMessage::Event(PhaseEvent::GroupStarted { group: self.index, waited: begun.elapsed() }));
        let ended = self.run_agents(lock.as_ref(), send);
        drop(lock);
        release();
        ended
    }

    /// Waits for agents that still run from the execution that this one resumes: they share the group's lock.
    fn wait_for_adopted(&self) -> Result<(), StageError> {
        let runs = self.worker.runs();
        for id in &self.ids {
            // A run whose command had not begun goes back to the queue, and one that waits for its next attempt has no process.
            while !self.control.is_stopped()
                && runs.stored_request(id)?.is_some_and(|known| known.status == RequestStatus::Running)
            {
                let (run, until) = (runs.find(id.as_str())?, Instant::now() + CHECK_EVERY);
                if run.process().is_none() {
                    break;
                }
                runs.wait(&run.id, Some(until), Some(self.control.stopped.as_fd()))?;
            }
        }
        Ok(())
    }

    /// Waits for the lock of the group in the lock folder. The inner error says why the group did not get it.
    fn take_lock(
        &self,
        folders: &Folders,
        id: &GroupId,
        patience: &mut Patience,
        begun: Instant,
        send: &(dyn Fn(GroupMessage) + Sync),
    ) -> Result<Result<HeldLock, String>, StageError> {
        let mut lock = GroupLock::open(folders, id)?;
        if lock.try_acquire(folders)? {
            return Ok(Ok(HeldLock::register(lock, self.worker)));
        }
        let since = epoch_seconds();
        let why = format!("the lock of group {id} is held by {}", lock.held_by());
        self.report_wait(BTreeSet::from([format!("group {id}")]), why, send);
        loop {
            let interrupts = [self.control.stopped.as_fd()];
            let mut nothing = |_: &GroupLock| {};
            let until = patience.until(begun);
            let after = (Duration::MAX, &mut nothing as &mut dyn FnMut(&GroupLock));
            match lock.acquire(folders, group::WaitOptions { until, interrupts: &interrupts, after })? {
                Waited::Locked => return Ok(Ok(HeldLock::register(lock, self.worker))),
                Waited::Interrupted => return Ok(Err(STOPPED.to_owned())),
                Waited::TimedOut => {
                    if self.must_give_up(patience, send) {
                        // The registry is for people: locks work without it.
                        let _ = lock.register_timeout(std::process::id(), since, epoch_seconds());
                        let waited = format_span(begun.elapsed());
                        let holder = lock.held_by();
                        return Ok(Err(format!(
                            "it did not get its lock within {waited}: {id} is held by {holder}"
                        )));
                    }
                }
            }
        }
    }

    /// Reports that others hold what the group needs.
    fn report_wait(&self, held: BTreeSet<String>, why: String, send: &(dyn Fn(GroupMessage) + Sync)) {
        send(GroupMessage::Blocked(held));
        let is_limited = !self.control.wait_without_limit.load(Ordering::SeqCst);
        let limit = is_limited.then(|| self.patience.limit());
        send(GroupMessage::Event(PhaseEvent::GroupWaiting { group: self.index, why, limit }));
    }

    /// Reports a timeout, so that rules can apply. Returns whether the group gives up.
    fn must_give_up(&self, patience: &mut Patience, send: &(dyn Fn(GroupMessage) + Sync)) -> bool {
        self.report_timeout(patience.next(), send);
        patience.waited() == Next::GiveUp && !self.control.wait_without_limit.load(Ordering::SeqCst)
    }

    /// Waits for the lease. The inner error says why the group did not get it.
    fn acquire(
        &self,
        patience: &mut Patience,
        begun: Instant,
        send: &(dyn Fn(GroupMessage) + Sync),
    ) -> Result<Result<Lease, String>, StageError> {
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
        let obstacles = waiting.blockers.iter().flat_map(|blocker| &blocker.leases);
        let held = obstacles.map(|found| found.witness.clone()).collect();
        self.report_wait(held, why(&waiting.blockers), send);
        loop {
            let ticket = waiting.ticket.clone();
            let interrupts = [self.control.stopped.as_fd()];
            let until = patience.until(begun);
            let options = WaitOptions { until, interrupts: &interrupts, grace: Duration::ZERO, tick: None };
            let waited = leases.wait(waiting, &*waker, &options, AtEnd::Stay, &mut |_| {});
            match waited.map_err(RunError::from)? {
                Acquired::Granted(grant) => return Ok(Ok(grant.lease)),
                Acquired::Gone | Acquired::Held(_) | Acquired::Deadlock(_) => {
                    return Ok(Err(TICKET_REMOVED.to_owned()));
                }
                Acquired::Interrupted(_) => {
                    leases.give_up(&ticket).map_err(RunError::from)?;
                    return Ok(Err(STOPPED.to_owned()));
                }
                Acquired::Waiting(still) => {
                    if self.must_give_up(patience, send) {
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

    /// Why the run of an agent is not done: the reason with the exit code, the last line of its output, and where to read more.
    fn why_failed(&self, agent: &str, run: &Run) -> String {
        let mut why = format!("agent {agent}: {}", run.status());
        why.extend(run.reason().map(|reason| format!(" {reason}")));
        why.extend(run.ending().map(|ending| format!(" {}", ending.exit_code())));
        let said = run.message().map(str::to_owned);
        let said = said.or_else(|| self.worker.runs().folder_of(&run.id).last_line());
        why.extend(said.map(|said| format!(": {said}")));
        format!("{why} (`lockkeeper run logs {}`)", short_id(run.id.as_str()))
    }

    /// The commands inherit the lock, so that it lasts as long as they run, also if this process is killed.
    fn run_agents(
        &self,
        lock: Option<&HeldLock>,
        send: &(dyn Fn(GroupMessage) + Sync),
    ) -> Result<End, StageError> {
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
                        match self.run_agent(agent, &self.ids[index], lock) {
                            Ok(Some(run)) => {
                                if RequestStatus::from(&run) != RequestStatus::Done {
                                    locked(&failed)
                                        .get_or_insert_with(|| self.why_failed(&agent.agent, &run));
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
    fn run_agent(
        &self,
        agent: &AgentCommand,
        id: &RequestId,
        lock: Option<&HeldLock>,
    ) -> Result<Option<Run>, StageError> {
        let runs = self.worker.runs();
        let known = runs.stored_request(id)?;
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
            if found.status().is_terminal() {
                // A resumed execution retries a run that failed earlier, once.
                let failed_earlier = is_first && RequestStatus::from(&found) != RequestStatus::Done;
                if !failed_earlier || self.control.is_stopped() {
                    return Ok(Some(found));
                }
                run = runs.run_again(id)?;
            }
            is_first = false;
            if self.control.is_stopped() {
                let _ = runs.cancel(&run, Some(STOPPED));
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
                        let _ = runs.cancel(&run, Some(STOPPED));
                    }
                    let shared = lock.map(|held| held.lock.shared()).transpose()?;
                    self.worker.execute(claimed.inheriting(shared))?;
                    locked(&self.control.active).retain(|active| *active != run);
                }
                // A user broke the group's lease, and another owner has it now. Try again later.
                ClaimResult::Held(_) | ClaimResult::FileHeld => {
                    let stopped = [self.control.stopped.as_fd()];
                    poll::wait(&stopped, Some(CHECK_EVERY)).map_err(RunError::Machine)?;
                }
                ClaimResult::NotClaimable => {
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

    fn lease_request(&self, terms: WaitTerms) -> lease::AcquireRequest {
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
        lease::AcquireRequest { claim, priority, under: Vec::new(), wait: Some(terms), join: false }
    }
}
