//! Locks page: holders, waiters, and why they wait.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::{Verdict, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::resource::Mode;
use lockkeeper_core::run::Status;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::foreign_locks::{ForeignLock, ForeignWaiter};
use lockkeeper_engine::runs::{RunFilter, short_id};
use lockkeeper_engine::{HolderEntry, Listing, WaiterEntry};

use super::texts::{Texts, fill};
use super::times::{TimeFormat, TimePoint};
use super::wait_graph::{Wait, WaitGraph};
use super::{Layout, render};
use crate::error::ApiError;
use crate::state::AppState;

/// How many holders and waiters are shown. The API has all of them.
const MAX_ROWS: usize = 200;

#[derive(Template)]
#[template(path = "locks.html")]
struct Page {
    layout: Layout,
    state: String,
    now: i64,
    longest: Option<TimePoint>,
    orphans: usize,
    holders: Vec<Holder>,
    holders_left_out: usize,
    waiters: Vec<Waiter>,
    waiters_left_out: usize,
    graph: Option<WaitGraph>,
    foreign: Vec<ForeignLock>,
    foreign_waiters: Vec<ForeignWaiter>,
}

struct Chip {
    text: String,
    mode: Option<String>,
}

struct Holder {
    id: String,
    token: u64,
    owner: String,
    reason: Option<String>,
    resources: Vec<Chip>,
    state: &'static str,
    tone: &'static str,
    since: TimePoint,
    /// The time of its last heartbeat; none if its process can be observed.
    heartbeat: Option<TimePoint>,
    ends: Option<TimePoint>,
    pid: Option<u32>,
    host: String,
    /// The question before it is broken.
    question: String,
    /// The run that holds it: id and title.
    run: Option<(String, String)>,
}

struct Waiter {
    ticket: String,
    owner: String,
    reason: Option<String>,
    resources: Vec<Chip>,
    since: TimePoint,
    position: usize,
    whys: Vec<Why>,
}

/// Why a ticket waits for one resource.
struct Why {
    wanted: String,
    holder: Option<Obstacle>,
    behind: Option<String>,
}

struct Obstacle {
    owner: String,
    since: TimePoint,
    heartbeat: TimePoint,
    witness: Option<String>,
}

pub(super) async fn page(State(state): State<AppState>, layout: Layout) -> Result<Response, ApiError> {
    let (listing, foreign, counts, runs) = state
        .blocking(|state| {
            let (listing, foreign) = (state.leases().listing()?, state.foreign_locks());
            let counts = state.counts(&listing, &foreign)?;
            let statuses = vec![Status::Running, Status::Cancelling];
            let filter = RunFilter { statuses, limit: MAX_ROWS, ..RunFilter::default() };
            Ok((listing, foreign, counts, state.runs().entries(&filter)?))
        })
        .await?;
    let run_of = |lease: &Lease| {
        let entry = runs.iter().find(|entry| entry.run.lease().is_some_and(|(id, _)| id == lease.id))?;
        Some((entry.run.id.to_string(), entry.request.request.title.clone()))
    };
    let waiting = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let longest = waiting.map(|waiter| waiter.ticket.enqueued_at).min();
    let (texts, times) = (layout.texts, TimeFormat::new(listing.now));
    let page = Page {
        state: state.state_folder().display().to_string(),
        now: times.now(),
        longest: longest.map(|moment| times.since(moment)),
        orphans: counts.orphans,
        holders: listing
            .holders
            .iter()
            .take(MAX_ROWS)
            .map(|one| Holder::new(one, texts, &times).of_run(run_of(&one.lease)))
            .collect(),
        holders_left_out: listing.holders.len().saturating_sub(MAX_ROWS),
        waiters: listing.waiters.iter().take(MAX_ROWS).map(|one| Waiter::new(one, &times)).collect(),
        waiters_left_out: listing.waiters.len().saturating_sub(MAX_ROWS),
        graph: graph(&listing, &times),
        foreign: foreign.locks,
        foreign_waiters: foreign.waiters,
        layout: layout.at("/locks"),
    };
    render(&page)
}

fn graph(listing: &Listing, times: &TimeFormat) -> Option<WaitGraph> {
    let mut waiters: Vec<&WaiterEntry> =
        listing.waiters.iter().filter(|one| !one.verdict.is_free()).collect();
    waiters.sort_by_key(|waiter| waiter.ticket.enqueued_at);
    let is_dead = |lease: &Lease| {
        listing.holders.iter().any(|holder| holder.lease.id == lease.id && holder.verdict.is_free())
    };
    let waits = waiters.iter().flat_map(|waiter| {
        waiter.blockers.iter().map(|blocker| Wait {
            waiter: shown_owner(&waiter.ticket.claim.owner),
            span: times.since(waiter.ticket.enqueued_at).text,
            wanted: blocker.resource.target.to_string(),
            holders: blocker.leases.iter().map(|found| shown_owner(&found.record.claim.owner)).collect(),
            is_orphaned: blocker.leases.iter().any(|found| is_dead(&found.record)),
            is_behind: !blocker.tickets.is_empty(),
            place: blocker.tickets.len() + 1,
        })
    });
    WaitGraph::new(&waits.collect::<Vec<_>>())
}

fn chips(claim: &Claim) -> Vec<Chip> {
    let chips = claim.resources.iter().map(|resource| Chip {
        text: resource.target.to_string(),
        mode: match resource.mode {
            Mode::Exclusive => None,
            mode @ (Mode::Shared | Mode::Slots(_)) => Some(mode.to_string()),
        },
    });
    chips.collect()
}

impl Holder {
    fn new(holder: &HolderEntry, texts: &Texts, times: &TimeFormat) -> Self {
        let (lease, claim) = (&holder.lease, &holder.lease.claim);
        let (state, tone) = match holder.verdict {
            Verdict::Alive => (texts.alive, "good"),
            Verdict::Unknown => (texts.unknown, "warn"),
            Verdict::Dead(_) => (texts.dead, "bad"),
            Verdict::Expired => (texts.expired, "bad"),
            Verdict::Overdue => (texts.overdue, "bad"),
        };
        let is_seen = match claim.proof.voucher {
            Voucher::KernelLock { .. } | Voucher::Process(_) => holder.verdict == Verdict::Alive,
            Voucher::Time | Voucher::TimeFor(_) => false,
        };
        Self {
            id: lease.id.to_string(),
            token: lease.token.0,
            owner: shown_owner(&claim.owner),
            reason: claim.reason.clone(),
            resources: chips(claim),
            state,
            tone,
            since: times.since(lease.acquired_at),
            heartbeat: (!is_seen).then(|| times.since(lease.heartbeat_at)),
            ends: lease.expires_at().map(|end| times.until(end)),
            pid: claim.proof.process().map(|process| process.pid),
            host: claim.proof.origin.host.clone(),
            question: fill(texts.break_title, &[("owner", claim.owner.as_str())]),
            run: None,
        }
    }
}

impl Holder {
    /// Adds the run that holds it. A reason that equals the title of the run is left out.
    fn of_run(self, run: Option<(String, String)>) -> Self {
        let says_more = |reason: &String| run.as_ref().is_none_or(|(_, title)| title != reason);
        let reason = self.reason.filter(says_more);
        Self { reason, run, ..self }
    }
}

impl Waiter {
    fn new(waiter: &WaiterEntry, times: &TimeFormat) -> Self {
        let (ticket, claim) = (&waiter.ticket, &waiter.ticket.claim);
        Self {
            ticket: claim.ticket.as_ref().map_or_else(|| ticket.id.as_ticket(), ToString::to_string),
            owner: shown_owner(&claim.owner),
            reason: claim.reason.clone(),
            resources: chips(claim),
            since: times.since(ticket.enqueued_at),
            position: waiter.position,
            whys: waiter.blockers.iter().map(|blocker| Why::new(blocker, times)).collect(),
        }
    }
}

impl Why {
    fn new(blocker: &Blocker, times: &TimeFormat) -> Self {
        let wanted = blocker.resource.target.to_string();
        let holder = blocker.leases.first().map(|found| Obstacle {
            owner: shown_owner(&found.record.claim.owner),
            since: times.since(found.record.acquired_at),
            heartbeat: times.since(found.record.heartbeat_at),
            witness: Some(found.witness.clone()).filter(|witness| *witness != wanted),
        });
        let behind = blocker.tickets.first().map(|found| shown_owner(&found.record.claim.owner));
        Self { wanted, holder, behind }
    }
}

/// The owner of a lease. A run has its short id, as on the other pages.
fn shown_owner(owner: &Owner) -> String {
    match owner.as_str().strip_prefix("run:") {
        Some(run) => format!("run:{}", short_id(run)),
        None => owner.to_string(),
    }
}
