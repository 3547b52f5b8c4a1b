//! One group: its lease, then its agents, as many at once as it allows.

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

use super::agents::AgentCommand;
use super::{News, StageError};
use crate::runs::RunError;
use crate::work::{ClaimResult, Worker, why};
use crate::{Acquired, AtEnd, WaitOptions};
use lockkeeper_platform::poll;

/// How long a run that somebody else executes is waited for before looking whether everything is to end.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a place in line stays if this process is not heard of; it stays as long as the process lives.
const STAYS: Duration = Duration::from_secs(120);

/// A run that was called off ends within its grace and so long at most.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);
const GONE: &str = "its place in line was taken away";

/// A group that is to be executed.
pub(super) struct Task<'t> {
    pub(super) worker: &'t Worker,
    pub(super) place: usize,
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
    pub(super) patience: Duration,
    /// After how long of a wait it is told of, the shortest first.
    pub(super) tell_after: Vec<Duration>,
    pub(super) tries: u64,
    pub(super) control: &'t Control,
}

/// How all groups are told to end, or to go on waiting.
pub(super) struct Control {
    stop: AtomicBool,
    /// Readable once everything is to end.
    stopped: OwnedFd,
    stopper: Mutex<Option<OwnedFd>>,
    /// Whether groups wait for their leases for as long as it takes.
    pub(super) patient: AtomicBool,
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
            patient: AtomicBool::new(false),
            active: Mutex::default(),
        })
    }

    /// Ends everything: nothing new begins, and what runs is called off.
    pub(super) fn stop(&self, worker: &Worker, why: &str) {
        self.stop.store(true, Ordering::SeqCst);
        drop(locked(&self.stopper).take());
        for run in locked(&self.active).iter() {
            // It may have ended meanwhile.
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

/// What a group has to say while it goes on.
pub(super) enum Word {
    News(News),
    /// Its lease was waited for in vain, for so long altogether; it goes on once the sender is used or gone.
    LockTimeout(Duration, Sender<()>),
    /// Others held what it needs when it came.
    Met,
}

impl Task<'_> {
    /// Executes the group from its lease to its last agent.
    pub(super) fn execute(&self, say: &(dyn Fn(Word) + Sync)) -> Result<End, StageError> {
        let begun = Instant::now();
        let lease = match self.hold(say)? {
            Ok(lease) => lease,
            Err(_) if self.control.is_stopped() => return Ok(End::Stopped),
            Err(why) => return Ok(End::Failed(why)),
        };
        say(Word::News(News::Began { group: self.place, waited: begun.elapsed() }));
        let ended = self.run_agents(say);
        // The end of this process frees it all the same.
        let _ = self.worker.leases().release(lease.id, Some(lease.token));
        ended
    }

    /// Takes the lease, or says why not.
    fn hold(&self, say: &(dyn Fn(Word) + Sync)) -> Result<Result<Lease, String>, StageError> {
        let leases = self.worker.leases();
        let waker = leases.store().waker().map_err(RunError::from)?;
        let stays = Ttl::new(STAYS).expect("two minutes are a TTL");
        let terms = WaitTerms { waker: Some(waker.id()), stays };
        let mut waiting = match leases.acquire(&self.order(terms)).map_err(RunError::from)? {
            Outcome::Granted(grant) => return Ok(Ok(grant.lease)),
            Outcome::Waiting(waiting) => waiting,
            Outcome::Deadlock(_) => return Ok(Err("waiting for its lease would never end".to_owned())),
            Outcome::Held(blockers) => return Ok(Err(why(&blockers))),
            Outcome::Gone => return Ok(Err(GONE.to_owned())),
        };
        say(Word::Met);
        say(Word::News(News::Waits { group: self.place, why: why(&waiting.blockers) }));
        let begun = Instant::now();
        let mut tell_after = self.tell_after.iter().copied().peekable();
        let mut tries: u32 = 0;
        loop {
            let ticket = waiting.ticket.clone();
            let limit = self.patience.saturating_mul(tries.saturating_add(1));
            let next = tell_after.peek().map_or(limit, |after| limit.min(*after));
            let interrupts = [self.control.stopped.as_fd()];
            let until = begun.checked_add(next);
            let options = WaitOptions { until, interrupts: &interrupts, grace: Duration::ZERO, tick: None };
            let waited = leases.wait(waiting, &*waker, &options, AtEnd::Stay, &mut |_| {});
            match waited.map_err(RunError::from)? {
                Acquired::Granted(grant) => return Ok(Ok(grant.lease)),
                Acquired::Gone | Acquired::Held(_) | Acquired::Deadlock(_) => {
                    return Ok(Err(GONE.to_owned()));
                }
                Acquired::Interrupted(_) => {
                    leases.give_up(&ticket).map_err(RunError::from)?;
                    return Ok(Err("everything was ended".to_owned()));
                }
                Acquired::Waiting(still) => {
                    while tell_after.next_if(|after| *after <= next).is_some() {}
                    self.tell_timeout(next, say);
                    tries += u32::from(next >= limit);
                    let is_tried = u64::from(tries) > self.tries;
                    if is_tried && !self.control.patient.load(Ordering::SeqCst) {
                        leases.give_up(&ticket).map_err(RunError::from)?;
                        let waited = format_span(begun.elapsed());
                        return Ok(Err(format!(
                            "it waited {waited} for its lease in vain: {}",
                            why(&still.blockers)
                        )));
                    }
                    waiting = still;
                }
            }
        }
    }

    /// Tells that the lease was waited for in vain, and waits for what is done about it.
    fn tell_timeout(&self, waited: Duration, say: &(dyn Fn(Word) + Sync)) {
        let (answered, answer) = channel();
        say(Word::LockTimeout(waited, answered));
        while answer.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) && !self.control.is_stopped()
        {
        }
    }

    fn run_agents(&self, say: &(dyn Fn(Word) + Sync)) -> Result<End, StageError> {
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<String>> = Mutex::new(None);
        let broken: Mutex<Option<StageError>> = Mutex::new(None);
        thread::scope(|scope| {
            for _ in 0..self.at_once.clamp(1, self.agents.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::SeqCst);
                        let over = locked(&failed).is_some() || locked(&broken).is_some();
                        let Some(agent) =
                            self.agents.get(place).filter(|_| !over && !self.control.is_stopped())
                        else {
                            return;
                        };
                        match self.run_agent(agent, &self.ids[place]) {
                            Ok(Some(run)) => {
                                if RequestStatus::from(&run) != RequestStatus::Done {
                                    let reason = run.reason.map_or("", |reason| reason.as_str());
                                    let why = format!("agent {}: {} {reason}", agent.agent, run.status);
                                    locked(&failed).get_or_insert(why.trim_end().to_owned());
                                }
                                let (group, agent) = (self.place, agent.agent.clone());
                                say(Word::News(News::Agent { group, agent, run: Box::new(run) }));
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

    /// Brings one agent's request to its end; none when everything is to end before it began.
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
        let mut again = true;
        loop {
            let found = runs.find(run.as_str())?;
            if found.status.is_terminal() {
                // What an earlier execution left is tried once more.
                let left_over = again && RequestStatus::from(&found) != RequestStatus::Done;
                if !left_over || self.control.is_stopped() {
                    return Ok(Some(found));
                }
                run = runs.run_again(id)?;
            }
            again = false;
            if self.control.is_stopped() {
                let _ = runs.cancel(&run, Some("everything was ended"));
                // One that was adopted has processes that are being ended.
                let until = Instant::now().checked_add(self.worker.grace().saturating_add(SETTLES_WITHIN));
                runs.wait(&run, until, None)?;
                return Ok(None);
            }
            match self.worker.claim(&run)? {
                ClaimResult::Claimed(claimed) => {
                    locked(&self.control.active).push(run.clone());
                    // It may have been told to end just before that.
                    if self.control.is_stopped() {
                        let _ = runs.cancel(&run, Some("everything was ended"));
                    }
                    self.worker.execute(*claimed)?;
                    locked(&self.control.active).retain(|active| *active != run);
                }
                // Somebody broke the group's lease and took it: its turn will come again.
                ClaimResult::Held(_) => {
                    let stopped = [self.control.stopped.as_fd()];
                    poll::wait(&stopped, Some(LOOK_EVERY)).map_err(RunError::Machine)?;
                }
                ClaimResult::Lost => {
                    let until = Instant::now() + LOOK_EVERY;
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

    fn order(&self, terms: WaitTerms) -> lease::Request {
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
        };
        let priority = Priority::new(0).expect("zero is a priority");
        lease::Request { claim, priority, under: Vec::new(), wait: Some(terms), join: false }
    }
}
