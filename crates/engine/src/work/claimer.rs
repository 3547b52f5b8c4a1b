//! Claims runs for this worker: takes the lease that a run needs, then moves it from queued, or from waiting for a retry, to
//! running by compare-and-set.
//!
//! In this order a crash leaves nothing behind: the lease names a liveness lock of this run, which the worker holds and the
//! command inherits, and the claim names the same lock. If the worker dies before the claim, the kernel frees the lock, and with
//! it the lease.

mod dispatch;
mod tickets;

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

use self::tickets::Tickets;
use super::completer::persist;
use super::events::{Events, WorkerEvent};
use super::lock_files::{LockFiles, LockFormats, NotLocked};
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
    /// The liveness lock of the run. Held here until the command has inherited it.
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

    /// Lets the command inherit a descriptor, such as a locked file: the lock then lasts until its processes have ended, also
    /// if this process is killed.
    #[must_use]
    pub fn inheriting(self, descriptor: Option<OwnedFd>) -> Self {
        Self { inherit: descriptor, ..self }
    }
}

/// The result of an attempt to claim one run.
#[derive(Debug)]
pub enum ClaimResult {
    /// This worker has claimed it and has to execute it.
    Claimed(Box<Claimed>),
    /// Other owners hold what it needs.
    Held(Vec<Blocker>),
    /// Another program holds its lock file. No wake-up comes when the file becomes free.
    FileHeld,
    /// Another worker has claimed it, it has ended, or it is not due yet.
    NotClaimable,
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
        let Some((run, request)) = self.runs.run_with_request(id)? else {
            return Ok(ClaimResult::NotClaimable);
        };
        self.claim_known(&run, request, &mut Tickets::default())
    }

    /// Whether the session of this worker is valid, if it has one, and the store lets anybody claim. Without a session, other machines
    /// could take the run.
    fn may_claim(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.is_valid()) && !self.runs.is_silent()
    }

    /// Claims the first queued run that needs no lease and no lock file. By now it may be another one than `run`.
    fn claim_plain(
        &self,
        run: &Run,
        request: Request,
        tickets: &mut Tickets,
    ) -> Result<Option<Claimed>, RunError> {
        if run.status() != Status::Queued {
            return self.claim_with(run, request, None, tickets);
        }
        let lock = self.lock_for_next(tickets)?;
        let claimed = match self.runs.claim_plain(&self.worker.id, lock) {
            Ok(claimed) => claimed,
            Err(error) => Some(self.claimed_with(lock).ok_or(error)?),
        };
        Ok(claimed.map(|(run, request)| Claimed {
            run,
            request,
            lock: tickets.lock.take(),
            lease: None,
            files: LockFiles::default(),
            inherit: None,
        }))
    }

    fn claim_known(
        &self,
        run: &Run,
        request: Request,
        tickets: &mut Tickets,
    ) -> Result<ClaimResult, RunError> {
        if !request.missing_labels(&self.worker.labels).is_empty() {
            return Ok(ClaimResult::Held(Vec::new()));
        }
        let lease = if request.needs_lease() {
            match self.leases.acquire(&self.lease_request(run, &request, None, tickets)?)? {
                Outcome::Granted(grant) => Some(grant.lease),
                Outcome::Held(blockers) => return Ok(ClaimResult::Held(blockers)),
                Outcome::Deadlock(_) | Outcome::Waiting(_) | Outcome::Gone => {
                    return Ok(ClaimResult::Held(Vec::new()));
                }
            }
        } else {
            None
        };
        Ok(match self.claim_with(run, request, lease, tickets)? {
            Some(claimed) => ClaimResult::Claimed(Box::new(claimed)),
            None if tickets.file_held.contains(&run.id) => ClaimResult::FileHeld,
            None => ClaimResult::NotClaimable,
        })
    }

    /// Claims a run whose lease this worker has acquired, if it needs one. Releases the lease if another worker was first.
    fn claim_with(
        &self,
        run: &Run,
        request: Request,
        lease: Option<Lease>,
        tickets: &mut Tickets,
    ) -> Result<Option<Claimed>, RunError> {
        let held = lease.as_ref().map(|lease| (lease.id, lease.token));
        let files = match self.formats.lock(&request, run, &self.worker, &self.runs.folder_of(&run.id)) {
            Ok(files) => files,
            Err(NotLocked::Held(why)) => {
                self.release(held)?;
                tickets.file_held.insert(run.id.clone());
                self.publish_wait(run, why);
                return Ok(None);
            }
            Err(NotLocked::Ended(ended)) => {
                self.release(held)?;
                if let Some(run) = self.runs.end_elsewhere(run, &self.worker.id, ended)? {
                    self.events.publish(&WorkerEvent::Ended(run), Some(&request));
                }
                return Ok(None);
            }
        };
        let recovered = files.recovered();
        if let Some(recovered) = &recovered {
            self.events.warn(format!("{}: {recovered}", request.id));
        }
        let lock = self.lock_for_next(tickets)?;
        let claimant = Claimant { worker: self.worker.id.clone(), holder: Some(lock), lease: held };
        let (claimed, error) = match self.runs.claim_for(run, &claimant, recovered.as_deref()) {
            Ok(claimed) => (claimed, None),
            Err(error) => (self.claimed_with(lock).map(|(run, _)| run), Some(error)),
        };
        if let Some(run) = claimed {
            locked(&self.published).remove(&run.id);
            return Ok(Some(Claimed {
                run,
                request,
                lock: tickets.lock.take(),
                lease,
                files,
                inherit: None,
            }));
        }
        self.release(held)?;
        if let Err(error) = files.release() {
            self.events.warn(format!("cannot release the lock files of {}: {error}", run.id));
        }
        error.map_or(Ok(None), |error| Err(error.into()))
    }

    /// The run that was claimed with this liveness lock. The commit may have succeeded although the call failed.
    fn claimed_with(&self, lock: HolderId) -> Option<(Run, Request)> {
        persist(&self.events, "see whether a run was claimed", || self.runs.claimed_with(lock)).flatten()
    }

    fn release(&self, held: Option<(LeaseId, Token)>) -> Result<(), RunError> {
        if let Some((id, token)) = held {
            let _ = self.leases.release(id, Some(token))?;
        }
        Ok(())
    }

    /// The liveness lock for the next run, which is made if there is none.
    fn lock_for_next(&self, tickets: &mut Tickets) -> Result<HolderId, RunError> {
        if tickets.lock.is_none() {
            tickets.lock = Some(make_lock(&self.leases).map_err(RunError::Machine)?);
        }
        Ok(tickets.lock.as_ref().expect("it was made just now").holder())
    }

    fn lease_request(
        &self,
        run: &Run,
        request: &Request,
        wait: Option<WaitTerms>,
        tickets: &mut Tickets,
    ) -> Result<lease::AcquireRequest, RunError> {
        let holder = self.lock_for_next(tickets)?;
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
        Ok(lease::AcquireRequest { claim, priority: request.priority, under: Vec::new(), wait, join: false })
    }

    /// Publishes what a run waits for, once for each reason.
    fn publish_wait(&self, run: &Run, why: String) {
        let before = locked(&self.published).insert(run.id.clone(), why.clone());
        if before.as_ref() != Some(&why) {
            self.events.publish(&WorkerEvent::Waiting(run.clone(), why), None);
        }
    }
}

/// Takes a liveness lock with a new number.
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

/// The owner of a run's lease: the run itself, or the stage group that it belongs to.
fn owner(run: &Run, request: &Request) -> Owner {
    let own = || format!("run:{}", run.id).parse().expect("an id is never empty");
    request.conductor().and_then(|group| group.parse().ok()).unwrap_or_else(own)
}

fn run_of(owner: &Owner) -> Option<RunId> {
    owner.as_str().strip_prefix("run:")?.parse().ok()
}
