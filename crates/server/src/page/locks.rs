//! Locks page: holders, waiters, and why they wait.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::alert::{Alert, Limits, raise};
use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::record::Claim;
use lockkeeper_core::resource::Mode;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::{HolderEntry, Listing, WaiterEntry};

use super::texts::Texts;
use super::times::{TimeFormat, TimePoint};
use super::wait_graph::WaitGraph;
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
    alerts: Vec<Warning>,
    longest: Option<TimePoint>,
    orphans: usize,
    holders: Vec<Holder>,
    holders_left_out: usize,
    waiters: Vec<Waiter>,
    waiters_left_out: usize,
    graph: Option<WaitGraph>,
}

/// An alert.
struct Warning {
    tone: &'static str,
    title: &'static str,
    text: &'static str,
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
    heartbeat: TimePoint,
    ends: Option<TimePoint>,
    pid: Option<u32>,
    host: String,
    confirm: String,
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
    let (listing, counts) = state
        .blocking(|state| {
            let listing = state.leases().listing()?;
            let counts = state.counts(&listing)?;
            Ok((listing, counts))
        })
        .await?;
    let waiting = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let longest = waiting.map(|waiter| waiter.ticket.enqueued_at).min();
    let (texts, times) = (layout.texts, TimeFormat::new(listing.now));
    let page = Page {
        state: state.state_folder().display().to_string(),
        now: times.now(),
        alerts: raise(&counts, &Limits::default()).iter().map(|alert| Warning::new(alert, texts)).collect(),
        longest: longest.map(|moment| times.since(moment)),
        orphans: counts.orphans,
        holders: listing.holders.iter().take(MAX_ROWS).map(|one| Holder::new(one, texts, &times)).collect(),
        holders_left_out: listing.holders.len().saturating_sub(MAX_ROWS),
        waiters: listing.waiters.iter().take(MAX_ROWS).map(|one| Waiter::new(one, &times)).collect(),
        waiters_left_out: listing.waiters.len().saturating_sub(MAX_ROWS),
        graph: graph(&listing),
        layout: layout.at("/locks"),
    };
    render(&page)
}

impl Warning {
    fn new(alert: &Alert, texts: &'static Texts) -> Self {
        let (tone, text) = match alert {
            Alert::LongWait { .. } => ("warn", texts.alert_wait),
            Alert::Deadlocks { .. } => ("bad", texts.alert_deadlock),
            Alert::Orphans { .. } => ("warn", texts.alert_orphans),
            Alert::Downgrades { .. } => ("warn", texts.alert_downgrades),
        };
        Self { tone, title: texts.alert, text }
    }
}

fn graph(listing: &Listing) -> Option<WaitGraph> {
    let edges = listing.waiters.iter().flat_map(|waiter| {
        let owner = waiter.ticket.claim.owner.as_str();
        waiter.blockers.iter().flat_map(move |blocker| {
            let leases =
                blocker.leases.iter().map(|found| (found.record.claim.owner.as_str(), &found.witness));
            let tickets =
                blocker.tickets.iter().map(|found| (found.record.claim.owner.as_str(), &found.witness));
            leases.chain(tickets).map(move |(holder, witness)| (owner, holder, witness.as_str()))
        })
    });
    WaitGraph::new(edges)
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
        Self {
            id: lease.id.to_string(),
            token: lease.token.0,
            owner: claim.owner.to_string(),
            reason: claim.reason.clone(),
            resources: chips(claim),
            state,
            tone,
            since: times.since(lease.acquired_at),
            heartbeat: times.since(lease.heartbeat_at),
            ends: lease.expires_at().map(|end| times.until(end)),
            pid: claim.proof.process().map(|process| process.pid),
            host: claim.proof.origin.host.clone(),
            confirm: format!("{} ({} · {})", texts.break_confirm, lease.id, claim.owner),
        }
    }
}

impl Waiter {
    fn new(waiter: &WaiterEntry, times: &TimeFormat) -> Self {
        let (ticket, claim) = (&waiter.ticket, &waiter.ticket.claim);
        Self {
            ticket: claim.ticket.as_ref().map_or_else(|| ticket.id.as_ticket(), ToString::to_string),
            owner: claim.owner.to_string(),
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
            owner: found.record.claim.owner.to_string(),
            since: times.since(found.record.acquired_at),
            heartbeat: times.since(found.record.heartbeat_at),
            witness: Some(found.witness.clone()).filter(|witness| *witness != wanted),
        });
        let behind = blocker.tickets.first().map(|found| found.record.claim.owner.to_string());
        Self { wanted, holder, behind }
    }
}
