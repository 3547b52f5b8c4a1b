//! Taking runs: the lease first, then the claim.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{HolderId, LeaseId, Owner, RunId};
use lockkeeper_core::lease::{self, Grant, Outcome, WaitTerms, Waiting};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::request::Request;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::run::life::{self, Taker};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Ttl;
use lockkeeper_core::waiting::Blocker;

use super::files::LockFiles;
use super::{Executor, Told};
use crate::engine::WaitOptions;
use crate::engine::runs::notes::for_hand;
use crate::engine::runs::{RunError, advance};
use crate::platform::liveness_lock::LivenessLock;
use crate::platform::random;
use crate::store::runs::Tables;
use crate::store::{StoreError, Waker};

/// So many different wishes are looked at for one that can be had.
const LOOK_AT: usize = 4096;
/// So many runs wait in line for their leases at once, for each worker.
const IN_LINE: usize = 16;
/// How long a place in line stays if this process is not heard of; it stays as long as the process lives.
const STAYS: Duration = Duration::from_secs(120);

/// A run that was taken, with everything that it holds.
#[derive(Debug)]
pub struct Job {
    pub(super) run: Run,
    pub(super) request: Request,
    /// The kernel lock that its processes share, until only they have it. One that was claimed with others has it from
    /// when it begins.
    pub(super) life: Option<LivenessLock>,
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
    Held(Vec<Blocker>),
    /// Somebody else has it, or it does not wait to be executed.
    Lost,
}

/// Places in line for the leases of runs that could begin otherwise.
#[derive(Default)]
pub struct Line {
    waker: Option<Box<dyn Waker>>,
    waiting: Vec<Waiting>,
    /// The kernel locks that the processes of those who wait will share.
    lives: HashMap<LeaseId, LivenessLock>,
    /// The kernel lock that the next run will share.
    life: Option<LivenessLock>,
    /// Which hand will execute it, if that is known.
    hand: u32,
    /// Whether something is held by a file, of whose end nobody tells.
    pub(super) look_again: bool,
    /// Whether others may have been granted what they wait for, together with the last one.
    unheard: bool,
    /// Whether some have no place, because there are so many.
    crowded: bool,
    /// Who was told to be waiting for what.
    told: HashMap<RunId, String>,
}

impl Line {
    /// Nobody waits in it: a hand takes from it what its runs need.
    pub(super) fn of_hand(number: u32) -> Self {
        Self { hand: number, ..Self::default() }
    }

    /// The kernel lock, for the run that it was made for.
    pub(super) fn take_life(&mut self) -> Option<LivenessLock> {
        self.life.take()
    }

    /// Whether any run has a place in line.
    pub(super) fn is_used(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether any run waits that would not be told of its turn.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    fn has(&self, owner: &Owner) -> bool {
        self.waiting.iter().any(|waiting| waiting.ticket.claim.owner == *owner)
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
        let candidates = self.runs.store().read(|tables| self.candidates(tables))?;
        let mut jammed: Vec<(Run, Request)> = Vec::new();
        let mut known: HashSet<String> = HashSet::new();
        for (run, request) in candidates {
            if !request.needs_lease() && !self.needs_files(&request) {
                if let Some(job) = self.take_free(&run, request, line)? {
                    return Ok(Some(job));
                }
                continue;
            }
            // Thousands may want the same: it is asked for once.
            if known.contains(&request.wish()) {
                continue;
            }
            // Whoever has a place is told of its turn.
            if line.has(&owner(&run, &request)) {
                known.insert(request.wish());
                jammed.push((run, request));
                continue;
            }
            match self.take_known(&run, request.clone(), line)? {
                Taken::Job(job) => return Ok(Some(*job)),
                Taken::Lost => {}
                Taken::Held(blockers) => {
                    self.tell_waiting(&run, &blockers, line);
                    known.insert(request.wish());
                    jammed.push((run, request));
                }
            }
        }
        self.leave_places(line, |owner_of| {
            jammed.iter().any(|(run, request)| owner(run, request) == *owner_of)
        })?;
        line.told.retain(|id, _| jammed.iter().any(|(run, _)| run.id == *id));
        line.crowded = jammed.len() > IN_LINE;
        for (run, request) in jammed.into_iter().take(IN_LINE) {
            if let Some(grant) = self.queue_up(&run, &request, line)?
                && let Some(job) = self.claim_with(&run, request, Some(grant.lease), line)?
            {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    /// Runs that could begin now, with their requests, the next one first. Of those that want the same lease, the first
    /// is enough; where requests are locked by files, each may be free.
    fn candidates(&self, tables: &Tables<'_>) -> Result<Vec<(Run, Request)>, StoreError> {
        let ready = match self.settings.aiflow {
            Some(_) => tables.ready(None, LOOK_AT)?,
            None => tables.ready_by_wish(LOOK_AT)?,
        };
        let due = tables.due_retries(tables.now().moment, LOOK_AT)?;
        in_order(tables, due, with_requests(tables, ready)?)
    }

    /// Takes a run that needs no lease: this one, or whichever of its kind is the next by now.
    fn take_free(&self, run: &Run, request: Request, line: &mut Line) -> Result<Option<Job>, RunError> {
        if run.status != Status::Queued {
            return self.claim_with(run, request, None, line);
        }
        let holder = self.next_life(line)?.holder();
        let claimed = self.runs.store().write(|tables| match with_request(tables, tables.ready_for("")?)? {
            Some((run, request)) => self.claim_in(tables, &run, request, holder),
            None => Ok(None),
        });
        let claimed = match claimed {
            Ok(claimed) => claimed,
            Err(error) => match self.was_taken(holder) {
                Some(taken) => Some(taken),
                None => return Err(error.into()),
            },
        };
        Ok(claimed.map(|(run, request)| Job {
            run,
            request,
            life: line.life.take(),
            lease: None,
            files: LockFiles::default(),
        }))
    }

    /// Whether a run was taken for this kernel lock after all: what failed may have been only that the disk was not told.
    fn was_taken(&self, holder: HolderId) -> Option<(Run, Request)> {
        self.insist("see whether a run was taken", || {
            self.runs.store().read(|tables| with_request(tables, tables.run_of_holder(holder)?))
        })
    }

    /// Sleeps until a lease is granted that a run waits for, or one of `interrupts` can be read.
    pub(super) fn sleep_in_line(
        &self,
        line: &mut Line,
        interrupts: &[BorrowedFd<'_>],
        until: Option<Instant>,
    ) -> Result<Option<Job>, RunError> {
        let options = WaitOptions { until, interrupts, grace: self.settings.grace, tick: None };
        let Some(waker) = &line.waker else { return Ok(None) };
        let look_first = std::mem::take(&mut line.unheard);
        let Some(grant) = self.leases.wait_any(&mut line.waiting, &**waker, &options, look_first)? else {
            return Ok(None);
        };
        line.unheard = true;
        if let Some(life) = line.lives.remove(&grant.lease.id) {
            line.life = Some(life);
        }
        let id = run_of(&grant.lease.claim.owner);
        let found = match &id {
            Some(id) => self.runs.store().read(|tables| with_request(tables, tables.run(id)?))?,
            None => None,
        };
        let Some((run, request)) = found else {
            let _ = self.leases.release(grant.lease.id, Some(grant.lease.token))?;
            return Ok(None);
        };
        self.claim_with(&run, request, Some(grant.lease), line)
    }

    /// Gives up all places in line.
    pub(super) fn leave_line(&self, line: &mut Line) -> Result<(), RunError> {
        self.leave_places(line, |_| false)
    }

    /// Gives up the places of all but some.
    fn leave_places(&self, line: &mut Line, keep: impl Fn(&Owner) -> bool) -> Result<(), RunError> {
        let mut place = 0;
        while place < line.waiting.len() {
            if keep(&line.waiting[place].ticket.claim.owner) {
                place += 1;
                continue;
            }
            self.leases.give_up(&line.waiting[place].ticket)?;
            let left = line.waiting.remove(place);
            line.lives.remove(&left.ticket.id);
        }
        line.lives.retain(|id, _| line.waiting.iter().any(|waiting| waiting.ticket.id == *id));
        Ok(())
    }

    /// Claims the next run in the transaction that is under way, if it needs no lease.
    pub(super) fn claim_first(
        &self,
        tables: &Tables<'_>,
        life: &LivenessLock,
    ) -> Result<Option<(Run, Request)>, StoreError> {
        let Some((run, request)) = self.next_runs(tables, 1)?.pop() else { return Ok(None) };
        if request.needs_lease() || self.needs_files(&request) {
            return Ok(None);
        }
        self.claim_in(tables, &run, request, life.holder())
    }

    /// The next runs that could begin, so many at most, the first one first.
    pub(super) fn next_runs(
        &self,
        tables: &Tables<'_>,
        limit: usize,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let due = tables.due_retries(tables.now().moment, limit)?;
        let mut next = in_order(tables, due, tables.ready_with_requests(limit)?)?;
        next.truncate(limit);
        Ok(next)
    }

    pub(super) fn claim_in(
        &self,
        tables: &Tables<'_>,
        run: &Run,
        request: Request,
        holder: HolderId,
    ) -> Result<Option<(Run, Request)>, StoreError> {
        let now = tables.now();
        if run.status == Status::Queued && run.give_up_at.is_some_and(|at| at <= now.moment) {
            return Ok(None);
        }
        let taker = Taker { worker: self.worker.id.clone(), holder: Some(holder), lease: None };
        match life::claim(run, taker, now) {
            Ok(moved) => Ok(Some((advance(tables, run, moved)?, request))),
            Err(_) => Ok(None),
        }
    }

    /// The kernel lock for the next run.
    pub(super) fn next_life<'l>(&self, line: &'l mut Line) -> Result<&'l LivenessLock, RunError> {
        if line.life.is_none() {
            let random = random::holder_id().map_err(RunError::Machine)?;
            let holder = for_hand(random, line.hand);
            line.life = Some(self.leases.probe().liveness_file().hold(holder).map_err(RunError::Machine)?);
        }
        Ok(line.life.as_ref().expect("it was made just now"))
    }

    fn take_known(&self, run: &Run, request: Request, line: &mut Line) -> Result<Taken, RunError> {
        let lease = if request.needs_lease() {
            match self.leases.acquire(&self.order(run, &request, None, line)?)? {
                Outcome::Granted(grant) => Some(grant.lease),
                Outcome::Held(blockers) => return Ok(Taken::Held(blockers)),
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
        let holder = self.next_life(line)?.holder();
        let held = lease.as_ref().map(|lease| (lease.id, lease.token));
        let taker = Taker { worker: self.worker.id.clone(), holder: Some(holder), lease: held };
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
        let (claimed, error) = match claimed {
            Ok(claimed) => (claimed, None),
            Err(error) => (self.was_taken(holder).map(|(run, _)| run), Some(error)),
        };
        if let Some(run) = claimed {
            return Ok(Some(Job { run, request, life: line.life.take(), lease, files }));
        }
        if let Some((id, token)) = held {
            let _ = self.leases.release(id, Some(token))?;
        }
        error.map_or(Ok(None), |error| Err(error.into()))
    }

    /// Gets a place in line; the lease itself when it has become free meanwhile.
    fn queue_up(&self, run: &Run, request: &Request, line: &mut Line) -> Result<Option<Grant>, RunError> {
        if line.has(&owner(run, request)) {
            return Ok(None);
        }
        if line.waker.is_none() {
            line.waker = Some(self.leases.store().waker()?);
        }
        let waker = line.waker.as_ref().map(|waker| waker.id());
        let stays = Ttl::new(STAYS).expect("two minutes are a TTL");
        let order = self.order(run, request, Some(WaitTerms { waker, stays }), line)?;
        match self.leases.acquire(&order)? {
            Outcome::Granted(grant) => return Ok(Some(grant)),
            Outcome::Waiting(waiting) => {
                let life = line.life.take().expect("the order names it");
                line.lives.insert(waiting.ticket.id, life);
                self.tell_waiting(run, &waiting.blockers, line);
                line.waiting.push(waiting);
            }
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
            owner: owner(run, request),
            resources,
            proof,
            contract: Contract::Strict,
            ttl: None,
            reason: Some(request.title.clone()),
            ticket: None,
        };
        Ok(lease::Request { claim, priority: request.priority, under: Vec::new(), wait, join: false })
    }

    fn tell_waiting(&self, run: &Run, blockers: &[Blocker], line: &mut Line) {
        self.tell_once(run, why(blockers), line);
    }

    fn tell_once(&self, run: &Run, why: String, line: &mut Line) {
        if line.told.get(&run.id) != Some(&why) {
            line.told.insert(run.id.clone(), why.clone());
            self.tell(&Told::Waiting(run.clone(), why), None);
        }
    }
}

/// What a run waits for, and how many are before it.
pub(in crate::engine) fn why(blockers: &[Blocker]) -> String {
    let Some(blocker) = blockers.first() else { return "waiting would never end".to_owned() };
    let holder = blocker.leases.first().map(|found| &found.record.claim.owner);
    let ahead = blocker.tickets.first().map(|found| &found.record.claim.owner);
    let target = &blocker.resource.target;
    let position = blockers.iter().map(|blocker| blocker.tickets.len()).max().unwrap_or(0) + 1;
    match (holder, ahead) {
        (Some(holder), _) => format!("{target} is held by {holder}, position {position}"),
        (None, Some(ahead)) => format!("{ahead} is before it in line for {target}, position {position}"),
        (None, None) => format!("{target} is held"),
    }
}

pub(super) fn with_request(
    tables: &Tables<'_>,
    run: Option<Run>,
) -> Result<Option<(Run, Request)>, StoreError> {
    let Some(run) = run else { return Ok(None) };
    let request = tables.request(&run.request)?;
    Ok(request.map(|stored| (run, stored.request)))
}

/// Those whose next attempt is due and those that have not begun, with their requests: by priority, and among equals
/// those first that had their turn before.
fn in_order(
    tables: &Tables<'_>,
    due: Vec<Run>,
    ready: Vec<(Run, Request)>,
) -> Result<Vec<(Run, Request)>, StoreError> {
    if due.is_empty() {
        return Ok(ready);
    }
    let mut all = with_requests(tables, due)?;
    all.extend(ready);
    all.sort_by_key(|(_, request)| Reverse(request.priority.get()));
    Ok(all)
}

fn with_requests(tables: &Tables<'_>, runs: Vec<Run>) -> Result<Vec<(Run, Request)>, StoreError> {
    let mut found = Vec::new();
    for run in runs {
        found.extend(with_request(tables, Some(run))?);
    }
    Ok(found)
}

/// Who holds what a run needs: the run itself, or the group that it is a part of.
fn owner(run: &Run, request: &Request) -> Owner {
    let own = || format!("run:{}", run.id).parse().expect("an id is never empty");
    request.conductor().and_then(|group| group.parse().ok()).unwrap_or_else(own)
}

fn run_of(owner: &Owner) -> Option<RunId> {
    owner.as_str().strip_prefix("run:")?.parse().ok()
}
