//! Claims queued runs for this worker: takes the lease that a run needs, then moves it from queued to running by
//! compare-and-set.
//!
//! In this order a crash leaves nothing behind: the lease stands on a kernel lock that only this run's processes will
//! share, and the claim names that lock. A worker that dies before the claim frees the lease.

mod dispatch;
mod waiting_line;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, Owner, RunId, Token};
use lockkeeper_core::lease::{self, Outcome, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::Claimant;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::waiting::Blocker;

use self::waiting_line::WaitingLine;
use super::completer::persist;
use super::events::{Events, WorkerEvent};
use super::lock_files::{LockFiles, LockFormats};
use super::locked;
use super::session::WorkerSession;
use crate::Engine;
use crate::runs::{RunError, Runs};
use lockkeeper_platform::liveness_lock::LivenessLock;
use lockkeeper_store::runs::Worker as WorkerRecord;

/// A run that this worker has claimed, with everything that it holds.
#[derive(Debug)]
pub struct Claimed {
    pub(super) run: Run,
    pub(super) request: Request,
    /// The kernel lock that its processes share, until only they have it.
    pub(super) lock: Option<LivenessLock>,
    pub(super) lease: Option<Lease>,
    pub(super) files: LockFiles,
    /// A descriptor that the command inherits.
    pub(super) inherit: Option<OwnedFd>,
}

impl Claimed {
    /// The run as it was claimed.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Lets the command inherit a descriptor, such as a locked file: the lock then lasts until its processes have ended, whatever
    /// happens to this one.
    #[must_use]
    pub fn inheriting(self, descriptor: Option<OwnedFd>) -> Self {
        Self { inherit: descriptor, ..self }
    }
}

/// The result of an attempt to claim one run.
#[derive(Debug)]
pub enum ClaimResult {
    /// It is to be executed now.
    Claimed(Box<Claimed>),
    /// Others hold what it needs.
    Held(Vec<Blocker>),
    /// Somebody else has it, or it does not wait to be executed.
    Lost,
}

/// Claims runs for one worker.
pub(super) struct Claimer {
    runs: Arc<Runs>,
    leases: Arc<Engine>,
    worker: Arc<WorkerRecord>,
    formats: LockFormats,
    events: Arc<Events>,
    grace: Duration,
    /// The session of the worker, on a store that several machines share.
    session: Option<Arc<WorkerSession>>,
    /// What was published about waiting runs.
    published: Mutex<HashMap<RunId, String>>,
}

impl Claimer {
    pub(super) fn new(
        runs: Arc<Runs>,
        leases: Arc<Engine>,
        worker: Arc<WorkerRecord>,
        formats: LockFormats,
        events: Arc<Events>,
        grace: Duration,
        session: Option<Arc<WorkerSession>>,
    ) -> Self {
        Self { runs, leases, worker, formats, events, grace, session, published: Mutex::default() }
    }

    /// Claims one run, if nobody else does and nobody holds what it needs. Never waits.
    pub(super) fn claim(&self, id: &RunId) -> Result<ClaimResult, RunError> {
        if self.session.as_ref().is_some_and(|session| session.is_taken()) {
            return Err(RunError::WorkerTaken(self.worker.id.clone()));
        }
        if !self.may_claim() {
            return Ok(ClaimResult::Held(Vec::new()));
        }
        let Some((run, request)) = self.runs.run_with_request(id)? else { return Ok(ClaimResult::Lost) };
        self.claim_known(&run, request, &mut WaitingLine::default())
    }

    /// Whether this worker is known to others: a claim without a session would not be protected.
    fn may_claim(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.is_valid())
    }

    /// Claims a run that needs nothing: this one, or whichever is the next of that kind by now.
    fn claim_plain(
        &self,
        run: &Run,
        request: Request,
        line: &mut WaitingLine,
    ) -> Result<Option<Claimed>, RunError> {
        if run.status() != Status::Queued {
            return self.claim_with(run, request, None, line);
        }
        let lock = self.lock_for_next(line)?;
        let claimed = match self.runs.claim_plain(&self.worker.id, lock) {
            Ok(claimed) => claimed,
            Err(error) => Some(self.claimed_with(lock).ok_or(error)?),
        };
        Ok(claimed.map(|(run, request)| Claimed {
            run,
            request,
            lock: line.lock.take(),
            lease: None,
            files: LockFiles::default(),
            inherit: None,
        }))
    }

    fn claim_known(
        &self,
        run: &Run,
        request: Request,
        line: &mut WaitingLine,
    ) -> Result<ClaimResult, RunError> {
        let lease = if request.needs_lease() {
            match self.leases.acquire(&self.lease_request(run, &request, None, line)?)? {
                Outcome::Granted(grant) => Some(grant.lease),
                Outcome::Held(blockers) => return Ok(ClaimResult::Held(blockers)),
                Outcome::Deadlock(_) | Outcome::Waiting(_) | Outcome::Gone => {
                    return Ok(ClaimResult::Held(Vec::new()));
                }
            }
        } else {
            None
        };
        let claimed = self.claim_with(run, request, lease, line)?;
        Ok(claimed.map_or(ClaimResult::Lost, |claimed| ClaimResult::Claimed(Box::new(claimed))))
    }

    /// Claims a run whose lease is held; releases the lease when somebody else was first.
    fn claim_with(
        &self,
        run: &Run,
        request: Request,
        lease: Option<Lease>,
        line: &mut WaitingLine,
    ) -> Result<Option<Claimed>, RunError> {
        let held = lease.as_ref().map(|lease| (lease.id, lease.token));
        let files = match self.formats.lock(&request, run, &self.worker) {
            Ok(files) => files,
            Err(why) => {
                self.release(held)?;
                line.file_held.insert(run.id.clone());
                self.publish_wait(run, why);
                return Ok(None);
            }
        };
        let lock = self.lock_for_next(line)?;
        let claimant = Claimant { worker: self.worker.id.clone(), holder: Some(lock), lease: held };
        let (claimed, error) = match self.runs.claim_for(run, &claimant) {
            Ok(claimed) => (claimed, None),
            Err(error) => (self.claimed_with(lock).map(|(run, _)| run), Some(error)),
        };
        if let Some(run) = claimed {
            locked(&self.published).remove(&run.id);
            return Ok(Some(Claimed { run, request, lock: line.lock.take(), lease, files, inherit: None }));
        }
        self.release(held)?;
        if let Err(error) = files.release() {
            self.events.trouble(format!("cannot release the lock files of {}: {error}", run.id));
        }
        error.map_or(Ok(None), |error| Err(error.into()))
    }

    /// The run that was claimed with this kernel lock, after the claim failed: it may be in the store all the same.
    fn claimed_with(&self, lock: HolderId) -> Option<(Run, Request)> {
        persist(&self.events, "see whether a run was claimed", || self.runs.claimed_with(lock)).flatten()
    }

    fn release(&self, held: Option<(LeaseId, Token)>) -> Result<(), RunError> {
        if let Some((id, token)) = held {
            let _ = self.leases.release(id, Some(token))?;
        }
        Ok(())
    }

    /// The kernel lock for the next run, which is made if there is none.
    fn lock_for_next(&self, line: &mut WaitingLine) -> Result<HolderId, RunError> {
        if line.lock.is_none() {
            line.lock = Some(make_lock(&self.leases).map_err(RunError::Machine)?);
        }
        Ok(line.lock.as_ref().expect("it was made just now").holder())
    }

    fn lease_request(
        &self,
        run: &Run,
        request: &Request,
        wait: Option<WaitTerms>,
        line: &mut WaitingLine,
    ) -> Result<lease::Request, RunError> {
        let holder = self.lock_for_next(line)?;
        let voucher = Voucher::KernelLock { holder, process: self.worker.process };
        let claim = Claim {
            owner: owner(run, request),
            resources: request.resources(),
            proof: Proof { origin: self.worker.origin.clone(), voucher },
            contract: Contract::Strict,
            ttl: None,
            reason: Some(request.title.clone()),
            ticket: None,
            agent: None,
        };
        Ok(lease::Request { claim, priority: request.priority, under: Vec::new(), wait, join: false })
    }

    /// Publishes what a run waits for, once for each reason.
    fn publish_wait(&self, run: &Run, why: String) {
        let before = locked(&self.published).insert(run.id.clone(), why.clone());
        if before.as_ref() != Some(&why) {
            self.events.publish(&WorkerEvent::Waiting(run.clone(), why), None);
        }
    }
}

/// Takes a kernel lock with a new number.
pub(super) fn make_lock(leases: &Engine) -> std::io::Result<LivenessLock> {
    leases.probe().liveness_file().hold_new()
}

/// What a run waits for, and its position in line.
pub(crate) fn why(blockers: &[Blocker]) -> String {
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

/// The owner of a run's lease: the run itself, or the group that it is a part of.
fn owner(run: &Run, request: &Request) -> Owner {
    let own = || format!("run:{}", run.id).parse().expect("an id is never empty");
    request.conductor().and_then(|group| group.parse().ok()).unwrap_or_else(own)
}

fn run_of(owner: &Owner) -> Option<RunId> {
    owner.as_str().strip_prefix("run:")?.parse().ok()
}
