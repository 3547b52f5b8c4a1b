//! `RunStore`: stores requests, runs, their events and the workers. This page is the contract that every backend fulfils.
//!
//! A run changes by compare-and-set. The engine reads a run from a snapshot ([`RunStore::snapshot`]), a pure function of
//! [`lockkeeper_core::run::transition`] computes the next record, and [`RunStore::move_runs`] writes it if the run still has the
//! version that was read. Otherwise the store returns the current record, and the engine decides again. Two decisions need facts
//! that only a write transaction has: submission ([`RunStore::submit`], [`RunStore::replace`]) and [`RunStore::claim`]. There the
//! store calls the pure function itself, in the transaction.
//!
//! # Contract
//!
//! - **Atomic.** Each call of a function that writes is one transaction. Other users see all of it or nothing, also if a process
//!   dies at any point. A run, its event, the status of its request and the readiness of the requests that depend on it change
//!   together.
//! - **Compare-and-set.** A transition applies to a run whose version is one less than that of the new record. So no update is
//!   lost, and each version of a run has exactly one event. Transitions of one call apply in the order of the list, so one run
//!   can move twice. A transition that does not apply changes nothing, and does not keep the others from applying.
//! - **Durable.** What a function wrote is visible to others when it returns. It survives a power cut when [`RunStore::sync`] has
//!   returned afterwards. Before that, a power cut may lose the newest transactions. It never loses
//!   a transaction and keeps a later one.
//! - **Events.** The events of a run count from 1 without gaps. Positions grow strictly in the order in which transactions become
//!   visible: when a reader has seen a position, no event with a smaller position appears later. Positions are never used
//!   twice, also not after a prune. There may be gaps between them.
//! - **Order.** Runs are claimed by priority, then by age. A run whose next attempt is due comes before queued runs of the
//!   same priority. A run is not claimed before all requests that its request depends on are done. A run of a stage is claimed
//!   by its id only.
//! - **Time.** [`RunStore::now`] and [`RunRecords::now`] are the store's clock. It is one clock for all users. Every timestamp in
//!   a record comes from it. After a reboot the store moves the timestamps of open runs onto the new clock. `now` neither waits
//!   nor fails, because a worker needs it while the store cannot be reached. A backend whose server is on another machine
//!   measures how far its clock is ahead of the clock of this machine, when it opens and with every transaction.
//! - **Changes.** A process that subscribes, then reads, then sleeps on the signal is woken by every change that is committed
//!   after the read. A signal may come without a reason, and a little before the change is visible.
//! - **Strict.** An impossible record is reported as [`StoreError::Damaged`], and never replaced.
//! - **Sessions.** A store that several machines share keeps the time of each worker's last heartbeat. A renewal is a
//!   compare-and-set on the number of the last heartbeat, so that only one of two copies of a worker can continue.
//! - **Import.** [`RunStore::import`] copies everything that a snapshot of another store shows: requests, runs, events with their
//!   positions, the order of the queue, the last auto-run. It is one transaction: all of it was read back and compared when it is
//!   committed, and until then other users see an empty store. Moments of open runs are moved onto the clock of this store.
//!   Workers are not copied. A store that has records is refused with [`StoreError::NotEmpty`], unless they are to be replaced.
//! - **Moved.** When [`RunStore::set_moved_to`] has returned, nothing can be submitted, moved, claimed or registered any more, by
//!   any process: that fails with [`StoreError::Moved`]. Snapshots and [`RunStore::import`] still work.
//! - **Unknown outcome.** If a store cannot tell whether it committed, it fails with [`StoreError::InDoubt`]. The caller reads
//!   the runs again: a run that has the new record was moved, and a run that was claimed has the liveness lock of the claim
//!   ([`RunRecords::run_with_lock`]). The same transitions can be tried again, because they cannot apply twice. A store that
//!   cannot be reached fails with [`StoreError::Unreachable`], and has changed nothing.
//!
//! The cases in `tests/conformance_runs/` hold every backend to all of it.

mod columns;
mod filter;
#[cfg(feature = "http")]
mod http;
mod import;
#[cfg(feature = "http")]
pub(crate) mod messages;
mod order;
mod output;
#[cfg(feature = "postgres")]
mod postgres;
mod prunable;
mod records;
mod spec;
mod sqlite;
#[cfg(feature = "http")]
mod wire;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use lockkeeper_core::id::{HolderId, RequestId, RunId, WorkerId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::admission::{Refusal, Submission, Submitted};
use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{Run, Stamp, Status};
use lockkeeper_core::time::{Moment, Ttl};

pub use filter::{Listing, RequestFilter, RunFilter};
#[cfg(feature = "http")]
pub use http::HttpRunStore;
pub use import::{Import, Imported};
pub use output::{KeptOutput, OutputChange, Piece};
#[cfg(feature = "postgres")]
pub use postgres::PostgresRunStore;
pub use records::{
    AutoRun, AutoRunChange, Match, Removed, Renewal, StoredEvent, StoredRequest, Timing, Worker,
};
#[cfg(feature = "http")]
pub(crate) use sqlite::ServedRuns;
pub use sqlite::SqliteRunStore;

use super::{Examination, StoreError};

/// A backend that stores requests and runs.
pub trait RunStore: Send + Sync {
    /// The time on the store's clock. It never waits for the store: see the contract.
    fn now(&self) -> Stamp;

    /// How long a worker of another machine lives after its last heartbeat. None if the store is that of one machine.
    fn session(&self) -> Option<Ttl> {
        None
    }

    /// The records of one moment, read-only. A snapshot blocks nobody, and nobody blocks it.
    fn snapshot(&self) -> Result<Box<dyn RunRecords + '_>, StoreError>;

    /// Submits requests as [`lockkeeper_core::run::admission::admit`] decides, in one transaction.
    fn submit(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError>;

    /// Submits requests whose ids may be in use, as [`lockkeeper_core::run::admission::replace`] decides, in one transaction.
    ///
    /// The store reads [`lockkeeper_core::run::admission::Existing`] in this transaction, so that no run begins and no
    /// dependency changes in between. It writes each replacement in the order of the list: it applies the transition that
    /// cancels a queued run; it inserts the request, or replaces its whole definition with title, priority, key and
    /// dependencies, as if it were submitted now; it inserts the new run, which becomes the latest one. Earlier runs and
    /// their events stay, and requests that depend on it wait for the new run. A refusal writes nothing.
    fn replace(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError>;

    /// Queues new runs of requests that exist. Each answer says whether it was queued: it is not if the latest run of its
    /// request is another one than expected.
    fn requeue(&self, runs: &[Requeue]) -> Result<Vec<bool>, StoreError>;

    /// Writes transitions, then claims runs, all in one transaction. The claims see the transitions.
    fn move_and_claim(
        &self,
        transitions: &[Transition],
        claims: Option<&Claims<'_>>,
    ) -> Result<MovedAndClaimed, StoreError>;

    /// Writes transitions in one transaction. Returns one answer for each.
    fn move_runs(&self, transitions: &[Transition]) -> Result<Vec<Moved>, StoreError> {
        self.move_and_claim(transitions, None).map(|done| done.moved)
    }

    /// Claims runs of the queue in one transaction. Returns them with their requests.
    fn claim(&self, claims: &Claims<'_>) -> Result<Vec<(Run, Request)>, StoreError> {
        self.move_and_claim(&[], Some(claims)).map(|done| done.claimed)
    }

    /// Records that no process of an ended run lives: clears its process and its lease. It is no event.
    fn clear_processes(&self, run: &Run) -> Result<(), StoreError>;

    /// Registers a worker. When it started is also the number of its first heartbeat.
    fn register_worker(&self, worker: &Worker) -> Result<(), StoreError>;

    /// Renews the session of a worker, on the store's clock, by compare-and-set: its last heartbeat must have one of the
    /// numbers `expected`, and gets the number `beat`. Only a store that several machines share has sessions. On
    /// [`StoreError::InDoubt`] the heartbeat may have been written, and the next call expects both numbers.
    fn renew_worker(&self, _id: &WorkerId, _expected: &[i64], _beat: i64) -> Result<Renewal, StoreError> {
        Ok(Renewal::Gone)
    }

    /// Until when nothing can be claimed, as far as this process knows: the store may have lost claims, and workers write again what they
    /// execute. Until then claims return no run, and transitions that claim a run conflict.
    fn silent_until(&self) -> Option<Moment> {
        None
    }

    /// Removes a worker.
    fn remove_worker(&self, id: &WorkerId) -> Result<(), StoreError>;

    /// Changes the record of the auto-run.
    fn change_auto_run(&self, change: &AutoRunChange<'_>) -> Result<(), StoreError>;

    /// Changes the priority of a request and of its queued run. False if there is no such request. It is no event.
    fn set_priority(&self, request: &RequestId, priority: Priority) -> Result<bool, StoreError>;

    /// Removes the requests that [`RunRecords::prunable`] lists, with their runs and events.
    fn prune(&self, before_unix_micros: i64) -> Result<Vec<Removed>, StoreError>;

    /// Copies the records of another store into this one. See the contract.
    fn import(&self, import: &Import<'_>) -> Result<Imported, StoreError>;

    /// The store that this one was moved to.
    fn moved_to(&self) -> Result<Option<String>, StoreError>;

    /// Marks this store as moved to another one, or as not moved.
    fn set_moved_to(&self, to: Option<&str>) -> Result<(), StoreError>;

    /// Keeps parts of the output of runs for readers of other machines, in one transaction. Only a store that several machines share
    /// does. If it fails, the changes may have been made; a call that removes all pieces first can follow. It is no event.
    fn keep_output(&self, _changes: &[OutputChange<'_>]) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns when everything that was written so far survives a power cut (group commit).
    fn sync(&self) -> Result<(), StoreError>;

    /// Subscribes to all changes from now on, of all processes.
    fn subscribe(&self) -> Result<Box<dyn ChangeSignal>, StoreError>;

    /// Looks for damage without changing anything. `thorough` checks every record and its references.
    fn examine(&self, thorough: bool) -> Result<Examination, StoreError>;

    /// Whether nothing can be written here.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Where the store is, for people.
    fn address(&self) -> String;
}

/// The requests and runs of one moment.
pub trait RunRecords {
    /// When the snapshot was taken, on the store's clock.
    fn now(&self) -> Stamp;

    /// One run.
    fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError>;

    /// The latest run of a request that was not rejected.
    fn latest_run(&self, request: &RequestId) -> Result<Option<Run>, StoreError>;

    /// Runs whose id ends with this text, or whose last part has ten letters and begins with it; two at most.
    fn runs_by_part(&self, text: &str) -> Result<Vec<Run>, StoreError>;

    /// The runs that match, the latest first.
    fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError>;

    /// The runs that match with their requests, the latest first.
    fn runs_with_requests(&self, filter: &RunFilter) -> Result<Vec<(Run, StoredRequest)>, StoreError> {
        let mut found = Vec::new();
        for run in self.runs(filter)? {
            if let Some(request) = self.request(&run.request)? {
                found.push((run, request));
            }
        }
        Ok(found)
    }

    /// When the oldest run of the queue entered it, in microseconds since 1970; none if the queue is empty.
    fn oldest_queued_at(&self) -> Result<Option<i64>, StoreError> {
        let queued = RunFilter { statuses: vec![Status::Queued], limit: usize::MAX, ..RunFilter::default() };
        Ok(self.runs(&queued)?.last().map(|run| run.queued_at.unix_micros))
    }

    /// How many runs have each status. A status that no run has is left out.
    fn run_counts(&self) -> Result<Vec<(Status, u64)>, StoreError>;

    /// The timestamps of all runs that were submitted since then, the oldest first.
    fn timings(&self, since_unix_micros: i64) -> Result<Vec<Timing>, StoreError>;

    /// One request.
    fn request(&self, id: &RequestId) -> Result<Option<StoredRequest>, StoreError>;

    /// The requests that match, the latest first.
    fn requests(&self, filter: &RequestFilter) -> Result<Vec<StoredRequest>, StoreError>;

    /// The requests that match with their latest runs, the latest first. The run is none where all were rejected.
    fn requests_with_runs(
        &self,
        filter: &RequestFilter,
    ) -> Result<Vec<(StoredRequest, Option<Run>)>, StoreError> {
        let mut found = Vec::new();
        for request in self.requests(filter)? {
            let run = match &request.latest {
                Some(run) => self.run(run)?,
                None => None,
            };
            found.push((request, run));
        }
        Ok(found)
    }

    /// Requests in the order in which they were submitted, the oldest first: those after this one.
    fn requests_in_order(
        &self,
        after: Option<&RequestId>,
        limit: usize,
    ) -> Result<Vec<StoredRequest>, StoreError>;

    /// Runs with their requests in the order in which they were queued, the oldest first: those after this one.
    fn runs_in_order(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<(Run, Request)>, StoreError>;

    /// The ids of the requests that match, the latest first.
    fn matching(&self, filter: &RequestFilter) -> Result<Vec<Match>, StoreError>;

    /// How many requests match, by the status of their latest run. The status is none where all runs were rejected. The limit
    /// of the filter does not count.
    fn count_matching(&self, filter: &RequestFilter) -> Result<Vec<(Option<Status>, u64)>, StoreError>;

    /// How many requests have each status. A status that no request has is left out.
    fn request_counts(&self) -> Result<Vec<(RequestStatus, u64)>, StoreError>;

    /// Requests that are not done: first at most `next` that can run now, in the order of the queue (priority, age, id);
    /// then the latest of each other status, at most `others` of each.
    fn open_requests(&self, next: usize, others: usize) -> Result<Vec<StoredRequest>, StoreError>;

    /// The dependencies of a request that are not done.
    fn unmet(&self, id: &RequestId) -> Result<Vec<RequestId>, StoreError>;

    /// Requests whose runs all ended before this time. A request is left out if a process of it may live, if an open request
    /// depends on it, or if it is not done and a request that stays depends on it.
    fn prunable(&self, before_unix_micros: i64) -> Result<Vec<RequestId>, StoreError>;

    /// Runs that can be claimed now, with their requests, in the order of the queue.
    fn claimable(&self, listing: Listing, limit: usize) -> Result<Vec<(Run, Request)>, StoreError>;

    /// Whether any run can be claimed, now or when its next attempt is due.
    fn has_work(&self) -> Result<bool, StoreError>;

    /// The ids of the first queued runs that can be claimed, in the order of the queue.
    fn queue_head(&self, limit: usize) -> Result<Vec<RunId>, StoreError>;

    /// How many queued runs are before this one.
    fn queue_position(&self, run: &RunId) -> Result<u64, StoreError>;

    /// Queued runs that timed out, at most `limit`, and runs of executors outside of Lockkeeper whose attempt timed out. A
    /// worker watches the timeouts of its own runs.
    fn overdue(&self, limit: usize) -> Result<Vec<Run>, StoreError>;

    /// When the next queued run times out, an attempt becomes due, or an attempt of an executor outside of Lockkeeper times
    /// out. Attempts that were due at `looked_at` are left out: they do not wait for time.
    fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError>;

    /// Queued runs of stages, the oldest first. Only the executor of their stage claims them.
    fn queued_in_stages(&self) -> Result<Vec<Run>, StoreError>;

    /// Runs that a worker executes, and ended runs whose processes may live.
    fn active_runs(&self) -> Result<Vec<Run>, StoreError>;

    /// That run of [`RunRecords::active_runs`] whose processes share this liveness lock.
    fn run_with_lock(&self, holder: HolderId) -> Result<Option<Run>, StoreError>;

    /// All registered workers, the oldest first.
    fn workers(&self) -> Result<Vec<Worker>, StoreError>;

    /// The machines that execute or executed these runs, as far as they are known. Only a store that several machines share
    /// keeps them.
    fn hosts(&self, _runs: &[&RunId]) -> Result<HashMap<RunId, String>, StoreError> {
        Ok(HashMap::new())
    }

    /// What the store keeps of the output of an attempt, with the pieces that end after `from`. None if it keeps nothing.
    fn output(&self, _run: &RunId, _attempt: u32, _from: u64) -> Result<Option<KeptOutput>, StoreError> {
        Ok(None)
    }

    /// The last auto-run.
    fn auto_run(&self) -> Result<Option<AutoRun>, StoreError>;

    /// The events of a run after the event with this number.
    fn events_of(&self, run: &RunId, after: u32, limit: usize) -> Result<Vec<StoredEvent>, StoreError>;

    /// The events of all runs after this position, in the order of their positions.
    fn events_after(&self, position: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError>;

    /// The position of the latest event; 0 if there is none.
    fn last_position(&self) -> Result<u64, StoreError>;
}

/// What happened to a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Moved {
    /// It was written.
    Applied,
    /// The run has another version, and this is its record; none if there is no such run. Nothing was written.
    Conflict(Option<Box<Run>>),
}

/// What [`RunStore::move_and_claim`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct MovedAndClaimed {
    /// One answer for each transition, in their order.
    pub moved: Vec<Moved>,
    /// The runs that were claimed, with their requests.
    pub claimed: Vec<(Run, Request)>,
}

/// A worker that claims runs.
#[derive(Clone, Copy, Debug)]
pub struct Claims<'c> {
    /// The worker.
    pub worker: &'c WorkerId,
    /// One liveness lock for each run that it can start. The worker holds them, and the commands will share them.
    pub locks: &'c [HolderId],
    /// Which runs it claims.
    pub order: ClaimOrder,
}

/// Which runs a worker claims. It claims no run that needs a lease or a swarm's lock file: only the claimer of the engine can get
/// those. With aiflow only the claimer may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOrder {
    /// The first of the queue. It stops at the first run that needs a lease or a lock file.
    Strict,
    /// The first queued runs that need neither. It skips all others.
    SkipLeased,
}

/// A new run of a request that exists.
#[derive(Clone, Debug)]
pub struct Requeue {
    /// The run and its first event.
    pub first: Transition,
    /// The latest run that the request must have. It has ended, so that it cannot change.
    pub expected: Option<RunId>,
}

/// A descriptor that becomes readable after a change of the store.
pub trait ChangeSignal: Send + Sync {
    /// The descriptor; none if the system cannot signal changes. Then the caller has to poll.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Forgets the changes so far.
    fn drain(&self);
}
