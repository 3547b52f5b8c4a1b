//! View of the overview: locks, requests, and what needs a person.

use lockkeeper_core::liveness::Verdict;
use lockkeeper_core::time::Moment;
use serde::Serialize;

use super::{BlockedView, LeaseView, QueueStopView, RequestView, RunView, TicketView};
use crate::Listing;
use crate::doctor::alert_sentences;
use crate::foreign_locks::{ForeignLock, ForeignWaiter};
use crate::messages::{Language, Messages, Phrases};
use crate::overview::{Overview, RequestSummary, Requests};
use crate::runs::{Blocked, RequestEntry, Stuck, flags_for, short_id};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OverviewView {
    /// Whether something was ever locked or submitted here.
    pub is_used: bool,
    /// What needs a person, the most urgent first.
    pub attention: Vec<AttentionView>,
    /// All leases.
    pub leases: Vec<LeaseView>,
    /// All tickets, and what they wait for.
    pub waiters: Vec<TicketView>,
    /// The locks of other formats.
    pub foreign: Vec<ForeignLock>,
    /// The processes that wait for them.
    pub foreign_waiters: Vec<ForeignWaiter>,
    /// How many requests have each of these statuses.
    pub counts: RequestCountsView,
    /// The latest requests that need input.
    pub needs_input: Vec<RequestSummaryView>,
    /// The latest requests that failed.
    pub failed: Vec<RequestSummaryView>,
    /// The latest requests that are executed.
    pub running: Vec<RequestSummaryView>,
    /// The next requests of the queue.
    pub queued: Vec<RequestSummaryView>,
}

/// How many requests have a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RequestCountsView {
    /// Need input.
    pub needs_input: u64,
    /// Failed.
    pub failed: u64,
    /// Are executed.
    pub running: u64,
    /// Are in the queue.
    pub queued: u64,
}

/// A request with its latest run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestItem {
    /// The request.
    #[serde(flatten)]
    pub request: RequestView,
    /// Its latest run; null when every run was rejected.
    pub run: Option<RunView>,
    /// Why no worker executes it; null when one does, or when it has ended.
    pub blocked: Option<BlockedView>,
}

/// A request with its latest run and the end of its output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestSummaryView {
    /// The request and its run.
    #[serde(flatten)]
    pub item: RequestItem,
    /// The last line of the output of a run that failed or needs input.
    pub last_line: Option<String>,
}

/// Something that needs a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttentionView {
    /// What it is, as a stable code: `NEEDS_INPUT`, `QUEUE_STOPPED`, `NEVER_STARTS`, `NO_WORKER`, `UNATTENDED`, `HOLDER_UNKNOWN` or the
    /// code of an alert.
    pub code: &'static str,
    /// What it is, in words.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl RequestItem {
    /// Shows a request. The holders in its way are looked up in these leases.
    pub fn new(entry: &RequestEntry, leases: Option<&Listing>, now: Moment) -> Self {
        let blocked = entry.blocked.as_ref().map(|blocked| BlockedView::new(blocked, now));
        Self {
            request: RequestView::new(&entry.request),
            run: entry.latest.as_ref().map(|run| RunView::new(run, now)),
            blocked: blocked.map(|blocked| blocked.with_holders(&entry.request.request, leases)),
        }
    }
}

impl OverviewView {
    /// Shows an overview.
    pub fn new(overview: &Overview, language: Language, messages: &Messages) -> Self {
        let (listing, foreign) = (&overview.locks.listing, &overview.locks.foreign);
        let shown = |requests: &Requests| -> Vec<RequestSummaryView> {
            let item = |one: &RequestSummary| RequestSummaryView {
                item: RequestItem::new(&one.entry, Some(listing), overview.now),
                last_line: one.last_line.clone(),
            };
            requests.first.iter().map(item).collect()
        };
        let leases = listing.holders.iter().map(|holder| LeaseView::with_state(holder, listing.now));
        let waiters = listing.waiters.iter().map(|waiter| TicketView::listed(waiter, listing.now));
        Self {
            is_used: overview.is_used,
            attention: AttentionView::all(overview, language, messages),
            leases: leases.collect(),
            waiters: waiters.collect(),
            foreign: foreign.locks.clone(),
            foreign_waiters: foreign.waiters.clone(),
            counts: RequestCountsView {
                needs_input: overview.needs_input.count,
                failed: overview.failed.count,
                running: overview.running.count,
                queued: overview.queued.count,
            },
            needs_input: shown(&overview.needs_input),
            failed: shown(&overview.failed),
            running: shown(&overview.running),
            queued: shown(&overview.queued),
        }
    }
}

impl AttentionView {
    /// What needs a person, the most urgent first.
    pub fn all(overview: &Overview, language: Language, messages: &Messages) -> Vec<Self> {
        let phrases = &Phrases::load(language);
        let mut all: Vec<Self> =
            overview.needs_input.first.iter().map(|one| needs_input(one, phrases)).collect();
        // What stopped the queue may be over by now.
        let is_left = overview.needs_input.count + overview.failed.count + overview.queued.count > 0;
        all.extend(overview.stop.as_ref().filter(|_| is_left).and_then(|stop| {
            let stop = QueueStopView::new(stop, language, messages);
            let hint = stop.actions.first()?.clone();
            Some(Self {
                code: "QUEUE_STOPPED",
                message: phrases.fill("attention.queue_stopped", &[("why", &stop.message)]),
                hint,
            })
        }));
        all.extend((!overview.stuck.is_empty()).then(|| {
            let (what, advice) = Stuck::sentences(&overview.stuck);
            Self { code: "NEVER_STARTS", message: phrases.put(&what), hint: phrases.put(&advice) }
        }));
        all.extend(no_worker(overview, phrases));
        all.extend(overview.running.first.iter().filter_map(|one| unattended(one, phrases)));
        all.extend(unknown_holders(&overview.locks.listing, phrases));
        all.extend(overview.locks.alerts.iter().map(|alert| {
            let (what, advice) = alert_sentences(alert);
            Self { code: alert.code(), message: phrases.put(&what), hint: phrases.put(&advice) }
        }));
        all
    }
}

/// Requests that nobody executes because there is no worker at all.
fn no_worker(overview: &Overview, phrases: &Phrases) -> Option<AttentionView> {
    let waits = |one: &&RequestSummary| matches!(one.entry.blocked, Some(Blocked::NoWorker));
    let needs = |one: &RequestSummary| flags_for(&one.entry.request.request);
    // A worker without labels executes some of them, if not all need one.
    let flags = overview.queued.first.iter().filter(waits).map(needs).min_by_key(String::len)?;
    let count = overview.queued.count.saturating_sub(overview.stuck.len() as u64);
    Some(AttentionView {
        code: "NO_WORKER",
        message: phrases.fill("attention.no_worker", &[("count", &count.to_string())]),
        hint: phrases.fill("attention.no_worker_do", &[("flags", &flags)]),
    })
}

fn needs_input(one: &RequestSummary, phrases: &Phrases) -> AttentionView {
    let id = short_id(one.entry.request.request.id.as_str());
    let asked = one.entry.latest.as_ref().and_then(|run| run.message());
    let question = asked.or(one.last_line.as_deref()).map_or_else(String::new, |text| format!(": {text}"));
    AttentionView {
        code: "NEEDS_INPUT",
        message: phrases.fill("attention.needs_input", &[("id", id), ("question", &question)]),
        hint: phrases.fill("attention.needs_input_do", &[("id", id)]),
    }
}

fn unattended(one: &RequestSummary, phrases: &Phrases) -> Option<AttentionView> {
    let id = short_id(one.entry.request.request.id.as_str());
    matches!(one.entry.blocked, Some(Blocked::Unattended | Blocked::OutOfReach(_))).then(|| AttentionView {
        code: "UNATTENDED",
        message: phrases.fill("attention.unattended", &[("id", id)]),
        hint: phrases.fill("attention.unattended_do", &[("id", id)]),
    })
}

/// Leases that block waiters and whose holders cannot be judged from here.
fn unknown_holders(listing: &Listing, phrases: &Phrases) -> impl Iterator<Item = AttentionView> {
    let waited_for = |id| {
        let blockers = listing.waiters.iter().flat_map(|waiter| &waiter.blockers);
        blockers.flat_map(|blocker| &blocker.leases).any(|found| found.record.id == id)
    };
    let unknown = listing.holders.iter().filter(|holder| holder.verdict == Verdict::Unknown);
    unknown.map(|holder| &holder.lease).filter(move |lease| waited_for(lease.id)).map(|lease| {
        let (id, owner) = (lease.id.to_string(), lease.claim.owner.as_str());
        AttentionView {
            code: "HOLDER_UNKNOWN",
            message: phrases.fill("attention.unknown", &[("id", &id), ("owner", owner)]),
            hint: phrases.fill("attention.unknown_do", &[("id", &id)]),
        }
    })
}
