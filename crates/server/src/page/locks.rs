//! The page of locks: who holds, who waits, and why.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::alert::{Alert, Limits, raise};
use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::record::Claim;
use lockkeeper_core::resource::Mode;
use lockkeeper_core::waiting::Blocker;

use super::super::failure::Failure;
use super::super::site::Site;
use super::graph::Graph;
use super::spans::{Face, Point};
use super::words::Words;
use super::{Frame, draw};
use lockkeeper_engine::{HolderEntry, Listing, WaiterEntry};

/// A page shows so many of each; the API has all of them.
const MOST: usize = 200;

#[derive(Template)]
#[template(path = "locks.html")]
struct Page {
    frame: Frame,
    state: String,
    now: i64,
    alerts: Vec<Warning>,
    longest: Option<Point>,
    orphans: usize,
    holders: Vec<Holder>,
    holders_left_out: usize,
    waiters: Vec<Waiter>,
    waiters_left_out: usize,
    graph: Option<Graph>,
}

/// An alert as the page shows it.
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
    since: Point,
    heartbeat: Point,
    ends: Option<Point>,
    pid: Option<u32>,
    host: String,
    confirm: String,
}

struct Waiter {
    ticket: String,
    owner: String,
    reason: Option<String>,
    resources: Vec<Chip>,
    since: Point,
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
    since: Point,
    heartbeat: Point,
    witness: Option<String>,
}

pub(super) async fn page(State(site): State<Site>, frame: Frame) -> Result<Response, Failure> {
    let (listing, counts) = site
        .consult(|site| {
            let listing = site.leases().listing()?;
            let counts = site.counts(&listing)?;
            Ok((listing, counts))
        })
        .await?;
    let waiting = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let longest = waiting.map(|waiter| waiter.ticket.enqueued_at).min();
    let (words, face) = (frame.words, Face::new(listing.now));
    let page = Page {
        state: site.state_folder().display().to_string(),
        now: face.now(),
        alerts: raise(&counts, &Limits::default()).iter().map(|alert| Warning::new(alert, words)).collect(),
        longest: longest.map(|moment| face.since(moment)),
        orphans: counts.orphans,
        holders: listing.holders.iter().take(MOST).map(|one| Holder::new(one, words, &face)).collect(),
        holders_left_out: listing.holders.len().saturating_sub(MOST),
        waiters: listing.waiters.iter().take(MOST).map(|one| Waiter::new(one, &face)).collect(),
        waiters_left_out: listing.waiters.len().saturating_sub(MOST),
        graph: graph(&listing),
        frame: frame.at("/locks"),
    };
    draw(&page)
}

impl Warning {
    fn new(alert: &Alert, words: &'static Words) -> Self {
        let (tone, text) = match alert {
            Alert::LongWait { .. } => ("warn", words.alert_wait),
            Alert::Deadlocks { .. } => ("bad", words.alert_deadlock),
            Alert::Orphans { .. } => ("warn", words.alert_orphans),
            Alert::Downgrades { .. } => ("warn", words.alert_downgrades),
        };
        Self { tone, title: words.alert, text }
    }
}

fn graph(listing: &Listing) -> Option<Graph> {
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
    Graph::new(edges)
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
    fn new(holder: &HolderEntry, words: &Words, face: &Face) -> Self {
        let (lease, claim) = (&holder.lease, &holder.lease.claim);
        let (state, tone) = match holder.verdict {
            Verdict::Alive => (words.alive, "good"),
            Verdict::Unknown => (words.unknown, "warn"),
            Verdict::Dead(_) => (words.dead, "bad"),
            Verdict::Expired => (words.expired, "bad"),
            Verdict::Overdue => (words.overdue, "bad"),
        };
        Self {
            id: lease.id.to_string(),
            token: lease.token.0,
            owner: claim.owner.to_string(),
            reason: claim.reason.clone(),
            resources: chips(claim),
            state,
            tone,
            since: face.since(lease.acquired_at),
            heartbeat: face.since(lease.heartbeat_at),
            ends: lease.expires_at().map(|end| face.until(end)),
            pid: claim.proof.process().map(|process| process.pid),
            host: claim.proof.origin.host.clone(),
            confirm: format!("{} ({} · {})", words.break_confirm, lease.id, claim.owner),
        }
    }
}

impl Waiter {
    fn new(waiter: &WaiterEntry, face: &Face) -> Self {
        let (ticket, claim) = (&waiter.ticket, &waiter.ticket.claim);
        Self {
            ticket: claim.ticket.as_ref().map_or_else(|| ticket.id.as_ticket(), ToString::to_string),
            owner: claim.owner.to_string(),
            reason: claim.reason.clone(),
            resources: chips(claim),
            since: face.since(ticket.enqueued_at),
            position: waiter.position,
            whys: waiter.blockers.iter().map(|blocker| Why::new(blocker, face)).collect(),
        }
    }
}

impl Why {
    fn new(blocker: &Blocker, face: &Face) -> Self {
        let wanted = blocker.resource.target.to_string();
        let holder = blocker.leases.first().map(|found| Obstacle {
            owner: found.record.claim.owner.to_string(),
            since: face.since(found.record.acquired_at),
            heartbeat: face.since(found.record.heartbeat_at),
            witness: Some(found.witness.clone()).filter(|witness| *witness != wanted),
        });
        let behind = blocker.tickets.first().map(|found| found.record.claim.owner.to_string());
        Self { wanted, holder, behind }
    }
}
