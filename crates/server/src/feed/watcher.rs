//! The thread that looks at the store when something can have happened, and says what is different.

use std::collections::BTreeMap;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::liveness::Voucher;
use lockkeeper_core::time::Moment;
use serde_json::{Value, json};

use super::Shared;
use super::executions::Executions;
use lockkeeper_engine::Engine;
use lockkeeper_engine::evidence::verdict_word;
use lockkeeper_engine::runs::{Runs, shape};
use lockkeeper_engine::shape::{LeaseShape, TicketShape};
use lockkeeper_engine::{HolderEntry, Listing, WaiterEntry};
use lockkeeper_platform::changes::Changes;
use lockkeeper_platform::poll;
use lockkeeper_platform::process::{self, Watch};
use lockkeeper_store::runs::{AutoRun, Tables};

/// A storm of changes is told of this often at the most.
const BREATHER: Duration = Duration::from_millis(50);
/// How often to look where nobody tells of changes.
const LOOK: Duration = Duration::from_secs(1);
/// Below the kernel's word on changes and deaths there is a net, for holders whose end cannot be watched.
const NET: Duration = Duration::from_secs(5);
/// So many events of runs are told at once; the rest a moment later.
const AT_ONCE: usize = 500;
/// So many processes are watched at the most; the net is for the rest.
const WATCHED: usize = 256;

/// Looks, compares, tells.
pub(super) struct Watcher {
    leases: Arc<Engine>,
    changes: Changes,
    executions: Executions,
    doorbell: PipeReader,
    shared: Arc<Shared>,
    known: Known,
    runs: Runs,
    /// The latest event of a run that was told.
    position: u64,
    /// How the queue was worked through at the last look.
    auto_run: Option<AutoRun>,
}

impl Watcher {
    pub(super) fn new(
        leases: Arc<Engine>,
        folder: &Path,
        doorbell: PipeReader,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let changes = Changes::watch(folder)?;
        let mut known = Known::default();
        // What is there now is no news. Whoever cannot look will say so once somebody listens.
        if let Ok(listing) = leases.listing() {
            known.compare(&listing);
        }
        let runs = Runs::open(folder).map_err(io::Error::other)?;
        let position = runs.store().read(|tables| tables.last_position()).map_err(io::Error::other)?;
        let (auto_run, executions) = (None, Executions::new(folder));
        Ok(Self { leases, changes, executions, doorbell, shared, known, runs, position, auto_run })
    }

    /// Goes on until the doorbell is gone.
    pub(super) fn run(mut self) {
        loop {
            if !self.shared.has_listeners() {
                match self.sleep_until_rung() {
                    Ok(true) => continue,
                    Ok(false) => return,
                    Err(error) => return tracing::error!(%error, "events are not told any more"),
                }
            }
            self.changes.drain();
            let (sentries, timeout) = match self.leases.listing() {
                Ok(listing) => {
                    let mut happened = self.known.compare(&listing);
                    happened.extend(self.news_of_runs());
                    happened.extend(self.executions.news());
                    self.shared.publish(happened);
                    match self.sentries(&listing) {
                        Some(sentries) => (sentries, timeout(&listing, self.changes.as_fd().is_some())),
                        None => (Vec::new(), Some(Duration::ZERO)),
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot look at the store");
                    (Vec::new(), Some(NET))
                }
            };
            match self.sleep(&sentries, timeout) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::error!(%error, "events are not told any more"),
            }
        }
    }

    /// What happened to runs and to the queue since the last look.
    fn news_of_runs(&mut self) -> Vec<(&'static str, Value)> {
        let look =
            |tables: &Tables<'_>| Ok((tables.events_after(self.position, AT_ONCE)?, tables.auto_run()?));
        let (events, auto_run) = match self.runs.store().read(look) {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(%error, "cannot look at the runs");
                return Vec::new();
            }
        };
        self.position = events.last().map_or(self.position, |event| event.position);
        let mut happened: Vec<(&'static str, Value)> = events
            .iter()
            .map(|event| {
                ("run", json!({ "type": format!("run.{}", event.kind), "event": shape::event(event) }))
            })
            .collect();
        if auto_run != self.auto_run {
            let shown = auto_run.as_ref().map(|auto| {
                let current = auto.current.as_ref().map(|run| run.as_str());
                json!({ "worker": auto.worker.as_str(), "runs": auto.runs, "current_run_id": current,
                        "stopping": auto.stop, "ended": auto.ended })
            });
            happened.push(("queue", json!({ "type": "queue.changed", "auto_run": shown })));
            self.auto_run = auto_run;
        }
        happened
    }

    /// Sleeps until somebody comes to listen; false when nobody will any more.
    fn sleep_until_rung(&mut self) -> io::Result<bool> {
        poll::wait(&[self.doorbell.as_fd()], None)?;
        self.answer_the_door()
    }

    /// Sleeps until there is a reason to look; false when nobody will listen any more.
    fn sleep(&mut self, sentries: &[Arc<OwnedFd>], timeout: Option<Duration>) -> io::Result<bool> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.doorbell.as_fd()];
        descriptors.extend(self.changes.as_fd());
        descriptors.extend(self.executions.as_fd());
        descriptors.extend(sentries.iter().map(AsFd::as_fd));
        let mut ready = poll::wait(&descriptors, timeout)?;
        if !ready.contains(0) {
            // What belongs together may arrive together, unless somebody is at the door.
            ready = poll::wait(&[self.doorbell.as_fd()], Some(BREATHER))?;
        }
        if ready.contains(0) { self.answer_the_door() } else { Ok(true) }
    }

    /// The processes whose end changes the picture; none when one ended since it was looked at.
    fn sentries(&self, listing: &Listing) -> Option<Vec<Arc<OwnedFd>>> {
        let holders = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
        let waiters = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
        let claims = holders.map(|holder| &holder.lease.claim);
        let claims = claims.chain(waiters.map(|waiter| &waiter.ticket.claim));
        let probe = self.leases.probe();
        let near = claims.filter(|claim| probe.shares_pids_with(&claim.proof.origin));
        let mut sentries = Vec::new();
        for proof in near.map(|claim| &claim.proof).take(WATCHED) {
            match (&proof.voucher, proof.process().map(process::watch)) {
                (_, Some(Watch::Exit(descriptor))) => sentries.push(descriptor),
                (Voucher::Process(_), Some(Watch::Gone)) => return None,
                // The command of a process that is gone may hold on; the net is for those.
                (Voucher::KernelLock { .. } | Voucher::Time | Voucher::Process(_), _) => {}
            }
        }
        Some(sentries)
    }

    fn answer_the_door(&mut self) -> io::Result<bool> {
        let mut rings = [0; 64];
        Ok(io::Read::read(&mut self.doorbell, &mut rings)? > 0)
    }
}

/// When time alone changes the picture; never, when nothing is held.
fn timeout(listing: &Listing, is_told: bool) -> Option<Duration> {
    if !is_told {
        return Some(LOOK);
    }
    if listing.holders.is_empty() && listing.waiters.is_empty() {
        return None;
    }
    let ends = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
    let ends = ends.filter_map(|holder| holder.lease.expires_at()).filter(|end| *end > listing.now);
    let next = ends.map(|end| end.since(listing.now) + Duration::from_millis(1)).min();
    Some(next.unwrap_or(NET).min(NET))
}

/// What was there at the last look.
#[derive(Default)]
struct Known {
    leases: BTreeMap<LeaseId, (LeaseMark, Value)>,
    tickets: BTreeMap<LeaseId, (TicketMark, Value)>,
}

/// What makes two looks at a lease different.
#[derive(Clone, PartialEq)]
struct LeaseMark {
    token: Token,
    heartbeat_at: Moment,
    expires_at: Option<Moment>,
    state: &'static str,
    revoked: bool,
}

/// What makes two looks at a ticket different.
#[derive(Clone, PartialEq)]
struct TicketMark {
    position: usize,
    in_the_way: Vec<LeaseId>,
    state: &'static str,
}

impl Known {
    /// What is different from the last look, and keeps the new picture.
    fn compare(&mut self, listing: &Listing) -> Vec<(&'static str, Value)> {
        let mut happened = Vec::new();
        let mut leases = BTreeMap::new();
        for holder in &listing.holders {
            let (id, mark) = (holder.lease.id, lease_mark(holder));
            let kind = match self.leases.remove(&id) {
                None => Some("lease.acquired"),
                Some((known, _)) if known == mark => None,
                Some((known, _)) if known.token == mark.token && known.state == mark.state => {
                    Some("lease.renewed")
                }
                Some(_) => Some("lease.changed"),
            };
            let shown = shaped(LeaseShape::judged(holder, listing.now));
            happened.extend(kind.map(|kind| ("lease", json!({ "type": kind, "lease": shown }))));
            leases.insert(id, (mark, shown));
        }
        let mut tickets = BTreeMap::new();
        for waiter in &listing.waiters {
            let (id, mark) = (waiter.ticket.id, ticket_mark(waiter));
            let kind = match self.tickets.remove(&id) {
                None => Some("ticket.waiting"),
                Some((known, _)) if known == mark => None,
                Some(_) => Some("ticket.changed"),
            };
            let shown = shaped(TicketShape::listed(waiter, listing.now));
            happened.extend(kind.map(|kind| ("ticket", json!({ "type": kind, "ticket": shown }))));
            tickets.insert(id, (mark, shown));
        }
        // What is left of the last picture is gone; ends are told first, as they come before what follows them.
        let ended = std::mem::replace(&mut self.leases, leases).into_values();
        let ended = ended.map(|(_, lease)| ("lease", json!({ "type": "lease.ended", "lease": lease })));
        let left = std::mem::replace(&mut self.tickets, tickets).into_values();
        let left = left.map(|(_, ticket)| ("ticket", json!({ "type": "ticket.ended", "ticket": ticket })));
        ended.chain(left).chain(happened).collect()
    }
}

fn shaped(shape: impl serde::Serialize) -> Value {
    serde_json::to_value(shape).expect("texts and numbers can always be written")
}

fn lease_mark(holder: &HolderEntry) -> LeaseMark {
    LeaseMark {
        token: holder.lease.token,
        heartbeat_at: holder.lease.heartbeat_at,
        expires_at: holder.lease.expires_at(),
        state: verdict_word(holder.verdict),
        revoked: holder.lease.revoked,
    }
}

fn ticket_mark(waiter: &WaiterEntry) -> TicketMark {
    let leases =
        waiter.blockers.iter().flat_map(|blocker| blocker.leases.iter().map(|found| found.record.id));
    TicketMark {
        position: waiter.position,
        in_the_way: leases.collect(),
        state: verdict_word(waiter.verdict),
    }
}
