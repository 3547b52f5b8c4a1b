//! Taking runs: the lease first, then the claim.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{Owner, RunId};
use lockkeeper_core::lease::{self, Grant, Outcome, WaitTerms, Waiting};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::request::Request;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::run::life::{self, Taker};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Ttl;
use lockkeeper_core::waiting::Jam;

use super::files::LockFiles;
use super::{Executor, Told};
use crate::engine::Patience;
use crate::engine::runs::{RunError, advance};
use crate::platform::life::LifeLock;
use crate::platform::random;
use crate::store::runs::Tables;
use crate::store::{Bell, StoreError};

/// So many queued runs are looked at for one that can begin.
const LOOK_AT: usize = 512;
/// So many runs wait in line for their leases at once, for each worker.
const IN_LINE: usize = 32;
/// How long a place in line stays if this process is not heard of; it stays as long as the process lives.
const STAYS: Duration = Duration::from_secs(120);

/// A run that was taken, with everything that it holds.
#[derive(Debug)]
pub struct Job {
    pub(super) run: Run,
    pub(super) request: Request,
    pub(super) life: LifeLock,
    pub(super) lease: Option<Lease>,
    pub(super) files: LockFiles,
}

impl Job {
    /// The run as it was taken.
    pub fn run(&self) -> &Run {
        &self.run
    }
}

/// What became of the wish to take one run.
#[derive(Debug)]
pub enum Taken {
    /// It is to be executed now.
    Job(Box<Job>),
    /// Others hold what it needs.
    Held(Vec<Jam>),
    /// Somebody else has it, or it does not wait to be executed.
    Lost,
}

/// Places in line for the leases of runs that could begin otherwise.
#[derive(Default)]
pub struct Line {
    bell: Option<Box<dyn Bell>>,
    waiting: Vec<Waiting>,
    /// The kernel lock that the next run will share.
    life: Option<LifeLock>,
    /// Whether something is held by a file, of whose end nobody tells.
    pub(super) look_again: bool,
    /// Who was told to be waiting for what.
    told: HashSet<(RunId, String)>,
}

impl Line {
    /// The kernel lock, for the run that it was made for.
    pub(super) fn take_life(&mut self) -> Option<LifeLock> {
        self.life.take()
    }

    /// Whether any run has a place in line.
    pub(super) fn is_used(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Executor {
    /// Takes one run, if nobody else does and nobody holds what it needs.
    pub fn take(&self, id: &RunId) -> Result<Taken, RunError> {
        let found = self.runs.store().read(|tables| with_request(tables, tables.run(id)?))?;
        let Some((run, request)) = found else { return Ok(Taken::Lost) };
        let mut line = Line::default();
        self.take_known(&run, request, &mut line)
    }

    /// Takes the next run that can begin. Those that others are in the way of get a place in line.
    pub(super) fn take_next(&self, line: &mut Line) -> Result<Option<Job>, RunError> {
        line.look_again = false;
        let candidates = self.runs.store().read(candidates)?;
        let mut jammed: Vec<(Run, Request)> = Vec::new();
        let mut known: HashSet<String> = HashSet::new();
        for (run, request) in candidates {
            // Thousands may want the same: it is asked for once.
            let wish = wish(&request);
            if request.needs_lease() && known.contains(&wish) {
                continue;
            }
            match self.take_known(&run, request.clone(), line)? {
                Taken::Job(job) => {
                    self.leave_line(line)?;
                    return Ok(Some(*job));
                }
                Taken::Lost => {}
                Taken::Held(jams) => {
                    self.tell_waiting(&run, &jams, line);
                    known.insert(wish);
                    jammed.push((run, request));
                }
            }
        }
        for (run, request) in jammed.into_iter().take(IN_LINE) {
            if let Some(grant) = self.queue_up(&run, &request, line)?
                && let Some(job) = self.claim_with(&run, request, Some(grant.lease), line)?
            {
                self.leave_line(line)?;
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    /// Sleeps until a lease is granted that a run waits for, or one of `interrupts` can be read.
    pub(super) fn sleep_in_line(
        &self,
        line: &mut Line,
        interrupts: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> Result<Option<Job>, RunError> {
        let patience = Patience { until, interrupts, grace: self.settings.grace, tick: None };
        let Some(bell) = &line.bell else { return Ok(None) };
        let Some(grant) = self.leases.wait_any(&mut line.waiting, &**bell, &patience)? else {
            return Ok(None);
        };
        let id = run_of(&grant.lease.claim.owner);
        let found = match &id {
            Some(id) => self.runs.store().read(|tables| with_request(tables, tables.run(id)?))?,
            None => None,
        };
        let Some((run, request)) = found else {
            let _ = self.leases.release(grant.lease.id, Some(grant.lease.token))?;
            return Ok(None);
        };
        let job = self.claim_with(&run, request, Some(grant.lease), line)?;
        if job.is_some() {
            self.leave_line(line)?;
        }
        Ok(job)
    }

    /// Gives up all places in line.
    pub(super) fn leave_line(&self, line: &mut Line) -> Result<(), RunError> {
        for waiting in line.waiting.drain(..) {
            self.leases.give_up(&waiting.ticket)?;
        }
        Ok(())
    }

    /// Claims the next run in the transaction that is under way, if it needs no lease.
    pub(super) fn claim_first(
        &self,
        tables: &Tables<'_>,
        life: &LifeLock,
    ) -> Result<Option<(Run, Request)>, StoreError> {
        let now = tables.now();
        let mut first = tables.due_retries(now.moment, 1)?;
        if first.is_empty() {
            first = tables.ready(None, 1)?;
        }
        let Some((run, request)) = with_request(tables, first.pop())? else { return Ok(None) };
        if request.needs_lease()
            || self.needs_files(&request)
            || run.give_up_at.is_some_and(|at| at <= now.moment)
        {
            return Ok(None);
        }
        let taker = Taker { worker: self.worker.id.clone(), holder: Some(life.holder()), lease: None };
        match life::claim(&run, taker, now) {
            Ok(moved) => Ok(Some((advance(tables, &run, moved)?, request))),
            Err(_) => Ok(None),
        }
    }

    /// The kernel lock for the next run.
    pub(super) fn next_life<'l>(&self, line: &'l mut Line) -> Result<&'l LifeLock, RunError> {
        if line.life.is_none() {
            let holder = random::holder_id().map_err(RunError::Machine)?;
            line.life = Some(self.leases.senses().life().hold(holder).map_err(RunError::Machine)?);
        }
        Ok(line.life.as_ref().expect("it was made just now"))
    }

    fn take_known(&self, run: &Run, request: Request, line: &mut Line) -> Result<Taken, RunError> {
        let lease = if request.needs_lease() {
            match self.leases.acquire(&self.order(run, &request, None, line)?)? {
                Outcome::Granted(grant) => Some(grant.lease),
                Outcome::Held(jams) => return Ok(Taken::Held(jams)),
                Outcome::Deadlock(_) | Outcome::Waiting(_) | Outcome::Gone => {
                    return Ok(Taken::Held(Vec::new()));
                }
            }
        } else {
            None
        };
        let job = self.claim_with(run, request, lease, line)?;
        Ok(job.map_or(Taken::Lost, |job| Taken::Job(Box::new(job))))
    }

    /// Claims a run whose lease is held; gives the lease back when somebody else was first.
    fn claim_with(
        &self,
        run: &Run,
        request: Request,
        lease: Option<Lease>,
        line: &mut Line,
    ) -> Result<Option<Job>, RunError> {
        let files = match self.lock_files(&request, run) {
            Ok(files) => files,
            Err(why) => {
                if let Some(lease) = lease {
                    let _ = self.leases.release(lease.id, Some(lease.token))?;
                }
                line.look_again = true;
                self.tell_once(run, why, line);
                return Ok(None);
            }
        };
        let holder = Some(self.next_life(line)?.holder());
        let held = lease.as_ref().map(|lease| (lease.id, lease.token));
        let taker = Taker { worker: self.worker.id.clone(), holder, lease: held };
        let claimed = self.runs.store().write(|tables| {
            let Some(run) = tables.run(&run.id)? else { return Ok(None) };
            let now = tables.now();
            if run.status == Status::Queued && run.give_up_at.is_some_and(|at| at <= now.moment) {
                return Ok(None);
            }
            match life::claim(&run, taker, now) {
                Ok(moved) => advance(tables, &run, moved).map(Some),
                Err(_) => Ok(None),
            }
        });
        match claimed {
            Ok(Some(run)) => {
                let life = line.life.take().expect("it was made above");
                Ok(Some(Job { run, request, life, lease, files }))
            }
            lost => {
                if let Some((id, token)) = held {
                    let _ = self.leases.release(id, Some(token))?;
                }
                lost.map(|_| None).map_err(RunError::from)
            }
        }
    }

    /// Gets a place in line; the lease itself when it has become free meanwhile.
    fn queue_up(&self, run: &Run, request: &Request, line: &mut Line) -> Result<Option<Grant>, RunError> {
        let owner = owner(run);
        if line.waiting.iter().any(|waiting| waiting.ticket.claim.owner == owner) {
            return Ok(None);
        }
        if line.bell.is_none() {
            line.bell = Some(self.leases.store().bell()?);
        }
        let bell = line.bell.as_ref().map(|bell| bell.id());
        let stays = Ttl::new(STAYS).expect("two minutes are a TTL");
        let order = self.order(run, request, Some(WaitTerms { bell, stays }), line)?;
        match self.leases.acquire(&order)? {
            Outcome::Granted(grant) => return Ok(Some(grant)),
            Outcome::Waiting(waiting) => line.waiting.push(waiting),
            // It is asked for again whenever something changes.
            Outcome::Held(_) | Outcome::Deadlock(_) | Outcome::Gone => {}
        }
        Ok(None)
    }

    fn order(
        &self,
        run: &Run,
        request: &Request,
        wait: Option<WaitTerms>,
        line: &mut Line,
    ) -> Result<lease::Request, RunError> {
        let mode = if request.shared { Mode::Shared } else { Mode::Exclusive };
        let names = request.locks.iter().cloned().map(Target::Name);
        let paths = request.paths.iter().cloned().map(Target::Path);
        let resources = names.chain(paths).map(|target| Resource { target, mode }).collect();
        let holder = self.next_life(line)?.holder();
        let voucher = Voucher::KernelLock { holder, process: self.worker.process };
        let proof = Proof { origin: self.worker.origin.clone(), voucher };
        let claim = Claim {
            owner: owner(run),
            resources,
            proof,
            contract: Contract::Strict,
            ttl: None,
            reason: Some(request.title.clone()),
            ticket: None,
        };
        Ok(lease::Request { claim, priority: request.priority, under: Vec::new(), wait, join: false })
    }

    fn tell_waiting(&self, run: &Run, jams: &[Jam], line: &mut Line) {
        let why = jams.first().map_or_else(
            || "waiting would never end".to_owned(),
            |jam| {
                let holder = jam.leases.first().map(|found| &found.record.claim.owner);
                let ahead = jam.tickets.first().map(|found| &found.record.claim.owner);
                let target = &jam.resource.target;
                match (holder, ahead) {
                    (Some(holder), _) => format!("{target} is held by {holder}"),
                    (None, Some(ahead)) => format!("{ahead} is before it in line for {target}"),
                    (None, None) => format!("{target} is held"),
                }
            },
        );
        self.tell_once(run, why, line);
    }

    fn tell_once(&self, run: &Run, why: String, line: &mut Line) {
        if line.told.insert((run.id.clone(), why.clone())) {
            self.tell(&Told::Waiting(run.clone(), why), None);
        }
    }
}

/// Runs that could begin now, with their requests, the next one first.
fn candidates(tables: &Tables<'_>) -> Result<Vec<(Run, Request)>, StoreError> {
    let mut found = Vec::new();
    let due = tables.due_retries(tables.now().moment, LOOK_AT)?;
    for run in due.into_iter().chain(tables.ready(None, LOOK_AT)?) {
        found.extend(with_request(tables, Some(run))?);
    }
    Ok(found)
}

fn with_request(tables: &Tables<'_>, run: Option<Run>) -> Result<Option<(Run, Request)>, StoreError> {
    let Some(run) = run else { return Ok(None) };
    let request = tables.request(&run.request)?;
    Ok(request.map(|stored| (run, stored.request)))
}

/// Two requests with the same text want the same.
fn wish(request: &Request) -> String {
    let names = request.locks.iter().map(|name| format!("n{name}"));
    let paths = request.paths.iter().map(|path| format!("p{path}"));
    let mut all: Vec<String> = names.chain(paths).collect();
    all.sort();
    format!("{}\n{}", request.shared, all.join("\n"))
}

fn owner(run: &Run) -> Owner {
    format!("run:{}", run.id).parse().expect("an id is never empty")
}

fn run_of(owner: &Owner) -> Option<RunId> {
    owner.as_str().strip_prefix("run:")?.parse().ok()
}
