//! Change watcher: the thread that reads the store when something may have changed, and publishes the differences.

use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::liveness::Voucher;
use lockkeeper_engine::location::Location;
use lockkeeper_engine::runs::{AutoRun, Runs};
use lockkeeper_engine::{Engine, Listing};
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::poll;
use lockkeeper_platform::process::{self, Watch};

use super::Shared;
use super::executions::Executions;
use super::lease_changes::LastListing;
use super::message::Message;

/// The shortest pause between two reads, so that a burst of changes is read once.
const SETTLE_TIME: Duration = Duration::from_millis(50);
/// How often the store is read where the system cannot report changed files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the store is read in any case while something is held: some holders cannot be watched.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);
/// How many events of runs are published in one step. The rest follows in the next step.
const EVENTS_PER_STEP: usize = 500;
/// How many processes are watched. The fallback interval is for the rest.
const MAX_WATCHED_PROCESSES: usize = 256;

/// Watches leases, runs, the queue and executions of stages.
pub(super) struct Watcher {
    leases: Arc<Engine>,
    /// Changed files of the store.
    changes: Changes,
    executions: Executions,
    /// Readable when a client subscribed; closed when the thread has to end.
    wake_receiver: PipeReader,
    shared: Arc<Shared>,
    last_listing: LastListing,
    runs: Runs,
    /// The position of the last event of a run that was published.
    position: u64,
    /// The auto-run at the last read.
    auto_run: Option<AutoRun>,
}

impl Watcher {
    pub(super) fn new(
        leases: Arc<Engine>,
        location: &Location,
        wake_receiver: PipeReader,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        // On a store that several machines share no file tells of changes: it is read again and again.
        let changes =
            if location.shared.is_some() { Changes::disabled() } else { Changes::watch(&location.state)? };
        let mut last_listing = LastListing::default();
        // What exists at the start is not a change. An error here appears again at the first read.
        if let Ok(listing) = leases.listing() {
            last_listing.replace(&listing);
        }
        let runs = Runs::at(location).map_err(io::Error::other)?;
        let position = runs.last_position().map_err(io::Error::other)?;
        let executions = Executions::new(&location.state);
        let auto_run = None;
        Ok(Self {
            leases,
            changes,
            executions,
            wake_receiver,
            shared,
            last_listing,
            runs,
            position,
            auto_run,
        })
    }

    /// The position of the last event of a run that was published.
    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Runs until the waker is closed.
    pub(super) fn run(mut self) {
        loop {
            let slept = if self.shared.has_subscribers() {
                self.publish_and_sleep()
            } else {
                self.sleep_until_woken()
            };
            match slept {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::error!(%error, "event streams receive no more events"),
            }
        }
    }

    /// Publishes what changed, then sleeps until there is a reason to read again; false when the thread has to end.
    fn publish_and_sleep(&mut self) -> io::Result<bool> {
        self.changes.drain();
        let listing = match self.leases.listing() {
            Ok(listing) => listing,
            Err(error) => {
                tracing::warn!(%error, "cannot read the leases");
                return self.sleep(&[], Some(FALLBACK_INTERVAL));
            }
        };
        let mut messages = self.last_listing.replace(&listing);
        let run_changes = self.run_changes();
        let has_more = run_changes.len() >= EVENTS_PER_STEP;
        messages.extend(run_changes);
        messages.extend(self.executions.changes());
        self.shared.publish(messages);
        match self.watched_processes(&listing) {
            Some(processes) if !has_more => {
                self.sleep(&processes, timeout(&listing, self.changes.as_fd().is_some()))
            }
            Some(_) | None => self.sleep(&[], Some(Duration::ZERO)),
        }
    }

    /// The events of runs and the change of the auto-run since the last read.
    fn run_changes(&mut self) -> Vec<Message> {
        let changes = match self.runs.changes_after(self.position, EVENTS_PER_STEP) {
            Ok(changes) => changes,
            Err(error) => {
                tracing::warn!(%error, "cannot read the runs");
                return Vec::new();
            }
        };
        self.position = changes.events.last().map_or(self.position, |event| event.position);
        let mut messages: Vec<Message> = changes.events.iter().map(Message::run).collect();
        if changes.auto_run != self.auto_run {
            messages.push(Message::queue(changes.auto_run.as_ref()));
            self.auto_run = changes.auto_run;
        }
        messages
    }

    /// Sleeps until a client subscribes; false when the thread has to end.
    fn sleep_until_woken(&mut self) -> io::Result<bool> {
        poll::wait(&[self.wake_receiver.as_fd()], None)?;
        self.take_wakes()
    }

    /// Sleeps until there is a reason to read again; false when the thread has to end.
    fn sleep(&mut self, processes: &[Arc<OwnedFd>], timeout: Option<Duration>) -> io::Result<bool> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.wake_receiver.as_fd()];
        descriptors.extend(self.changes.as_fd());
        descriptors.extend(self.executions.as_fd());
        descriptors.extend(processes.iter().map(AsFd::as_fd));
        let mut ready = poll::wait(&descriptors, timeout)?;
        if !ready.contains(0) {
            // Changes that belong together are read together. Only a new subscriber cuts this short.
            ready = poll::wait(&[self.wake_receiver.as_fd()], Some(SETTLE_TIME))?;
        }
        if ready.contains(0) { self.take_wakes() } else { Ok(true) }
    }

    /// The processes whose exit changes the listing; none when one exited since the listing was made.
    fn watched_processes(&self, listing: &Listing) -> Option<Vec<Arc<OwnedFd>>> {
        let holders = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
        let waiters = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
        let claims = holders.map(|holder| &holder.lease.claim);
        let claims = claims.chain(waiters.map(|waiter| &waiter.ticket.claim));
        let probe = self.leases.probe();
        let local = claims.filter(|claim| probe.shares_pids_with(&claim.proof.origin));
        let mut processes = Vec::new();
        for proof in local.map(|claim| &claim.proof).take(MAX_WATCHED_PROCESSES) {
            match (&proof.voucher, proof.process().map(process::watch)) {
                (_, Some(Watch::Exit(descriptor))) => processes.push(descriptor),
                (Voucher::Process(_), Some(Watch::Gone)) => return None,
                // The process is gone but its command may still hold the liveness lock: the fallback interval finds out.
                (
                    Voucher::KernelLock { .. } | Voucher::Time | Voucher::TimeFor(_) | Voucher::Process(_),
                    _,
                ) => {}
            }
        }
        Some(processes)
    }

    /// Empties the wake pipe; false when it was closed.
    fn take_wakes(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 64];
        Ok(io::Read::read(&mut self.wake_receiver, &mut bytes)? > 0)
    }
}

/// How long the listing stays valid unless something is written; forever when nothing is held.
fn timeout(listing: &Listing, files_are_watched: bool) -> Option<Duration> {
    if !files_are_watched {
        return Some(POLL_INTERVAL);
    }
    if listing.holders.is_empty() && listing.waiters.is_empty() {
        return None;
    }
    let ends = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
    let ends = ends.filter_map(|holder| holder.lease.expires_at()).filter(|end| *end > listing.now);
    let next = ends.map(|end| end.since(listing.now) + Duration::from_millis(1)).min();
    Some(next.unwrap_or(FALLBACK_INTERVAL).min(FALLBACK_INTERVAL))
}

#[cfg(test)]
mod tests {
    use lockkeeper_core::request::Request;
    use lockkeeper_engine::location::LocationSource;
    use lockkeeper_engine::open::open_engine;
    use lockkeeper_engine::runs::Runs;
    use tokio::sync::broadcast::error::RecvError;

    use super::*;
    use crate::broadcast::Broadcaster;

    #[test]
    fn more_events_than_one_step_publishes_follow_without_another_change() {
        let count = EVENTS_PER_STEP + 50;
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs::open(folder.path()).unwrap();
        let leases = Arc::new(open_engine(folder.path()).unwrap());
        let broadcaster = Broadcaster::new();
        let location = Location {
            state: folder.path().to_owned(),
            root: folder.path().to_owned(),
            source: LocationSource::Named,
            shared: None,
        };
        let thread = broadcaster.start(&leases, &location).unwrap();
        let requests: Vec<Request> = (0..count)
            .map(|number| {
                let id = format!("RQ-{number}").parse().unwrap();
                Request::new(id, vec!["true".to_owned()], "/".to_owned())
            })
            .collect();
        // All events are in one transaction, and nobody subscribes before it is committed.
        runs.submit_all(&requests, None).unwrap();
        let mut receiver = broadcaster.subscribe(None).receiver;
        let last = async {
            loop {
                match receiver.recv().await {
                    Ok(event) if event.number >= count as u64 => return,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => panic!("the broadcaster closed"),
                }
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(30), last).await })
            .expect("the last event is published");
        thread.stop();
    }
}
