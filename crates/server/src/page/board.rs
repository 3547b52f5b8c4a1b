//! Board page: all requests with their status, why they wait, and bulk operations on a filter.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_engine::Listing;
use lockkeeper_engine::runs::{Blocked, RequestEntry};

use super::filter::{Choice, Query};
use super::status::{Badge, of_request};
use super::texts::Texts;
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::error::ApiError;
use crate::extract::Params;
use crate::state::AppState;

/// How many requests are shown. The API has all of them.
const MAX_ROWS: usize = 200;

#[derive(Template)]
#[template(path = "board.html")]
struct Page {
    layout: Layout,
    now: i64,
    counts: [Count; 6],
    query: Query,
    choices: Vec<Choice>,
    matching: Option<Matching>,
    rows: Vec<Row>,
    has_more: bool,
}

/// How many requests have a status.
struct Count {
    name: &'static str,
    status: &'static str,
    count: u64,
    tone: &'static str,
}

/// The requests that match the filter, for bulk operations.
struct Matching {
    count: u64,
    /// The filter as a request body of the API.
    body: String,
}

struct Row {
    id: String,
    title: String,
    badge: Badge,
    locked: bool,
    run: Option<String>,
    since: Option<TimePoint>,
    why: Option<String>,
    can_run: bool,
    can_cancel: bool,
}

pub(super) async fn page(
    State(state): State<AppState>,
    Params(query): Params<Query>,
    layout: Layout,
) -> Result<Response, ApiError> {
    let filter = query.filter(MAX_ROWS + 1)?;
    let is_selective = filter.is_selective();
    let (entries, counts, matched, listing) = state
        .blocking(move |state| {
            let entries = state.runs().requests(&filter)?;
            let counts = state.runs().request_counts()?;
            // A filter by status alone is answered from the counts; others have to search.
            let matched = if filter.is_by_status_only() {
                let meant = counts.iter().filter(|(status, _)| filter.statuses.contains(status));
                meant.map(|(_, count)| count).sum()
            } else {
                state.runs().count_matching(&filter)?
            };
            Ok((entries, counts, matched, state.leases().listing()?))
        })
        .await?;
    let (texts, times) = (layout.texts, TimeFormat::new(state.runs().now().moment));
    let count = |wanted: RequestStatus, tone: &'static str| {
        let found = counts.iter().find(|(status, _)| *status == wanted);
        let count = found.map_or(0, |(_, count)| *count);
        let (name, status) = (of_request(wanted, texts).text, wanted.as_str());
        Count { name, status, count, tone: if count > 0 { tone } else { "" } }
    };
    let page = Page {
        now: times.now(),
        counts: [
            count(RequestStatus::Running, ""),
            count(RequestStatus::Queued, ""),
            count(RequestStatus::NeedsInput, "is-warn"),
            count(RequestStatus::Failed, "is-bad"),
            count(RequestStatus::Done, ""),
            count(RequestStatus::Canceled, ""),
        ],
        choices: query.choices(texts),
        matching: is_selective.then(|| Matching { count: matched, body: query.body() }),
        query,
        has_more: entries.len() > MAX_ROWS,
        rows: entries.iter().take(MAX_ROWS).map(|entry| Row::new(entry, &listing, texts, &times)).collect(),
        layout: layout.at("/"),
    };
    render(&page)
}

impl Row {
    fn new(entry: &RequestEntry, listing: &Listing, texts: &'static Texts, times: &TimeFormat) -> Self {
        let (request, status) = (&entry.request.request, entry.request.status);
        let is_open = matches!(status, RequestStatus::Queued | RequestStatus::Running);
        Self {
            id: request.id.to_string(),
            title: request.title.clone(),
            badge: of_request(status, texts),
            locked: status == RequestStatus::Running,
            run: entry.latest.as_ref().map(|run| run.id.to_string()),
            since: entry.latest.as_ref().map(|run| times.since(last_change(run))),
            why: why(entry, listing, texts),
            can_run: status != RequestStatus::Running,
            can_cancel: is_open && entry.latest.is_some(),
        }
    }
}

/// When the status of a run last changed.
fn last_change(run: &Run) -> lockkeeper_core::time::Moment {
    let stamp = match run.status() {
        Status::Queued => None,
        Status::Running | Status::Cancelling => run.started_at(),
        Status::Succeeded | Status::Failed | Status::Canceled | Status::TimedOut | Status::Rejected => {
            run.completed_at()
        }
    };
    stamp.unwrap_or(run.queued_at).moment
}

/// Why a request waits or failed, in one sentence.
fn why(entry: &RequestEntry, listing: &Listing, texts: &Texts) -> Option<String> {
    let conflicting = listing.conflicting_leases(&entry.request.request.resources());
    if entry.request.status == RequestStatus::Queued
        && let Some(found) = conflicting.first()
    {
        let owner = &found.holder.lease.claim.owner;
        return Some(format!("{} {}, {} {owner}", texts.waits_for, found.witness, texts.held_by));
    }
    match &entry.blocked {
        Some(Blocked::Dependencies(requests)) => {
            let names: Vec<String> = requests.iter().map(ToString::to_string).collect();
            Some(format!("{} {}", texts.comes_after, names.join(", ")))
        }
        Some(Blocked::Retry(_)) => Some(texts.next_attempt.to_owned()),
        Some(Blocked::Position(ahead)) => Some(format!("{} {}", texts.position, ahead + 1)),
        Some(Blocked::Behind(ahead)) => Some(format!("{} > {ahead}", texts.position)),
        Some(Blocked::NoWorker) => Some(texts.no_worker.to_owned()),
        Some(Blocked::Unattended) => Some(texts.unattended.to_owned()),
        Some(Blocked::OutOfReach) => Some(texts.out_of_reach.to_owned()),
        Some(Blocked::TimeIsUp) => Some(texts.time_is_up.to_owned()),
        None => {
            let run = entry.latest.as_ref()?;
            let reason = run.reason().map(|reason| reason.to_string());
            run.message().map(ToOwned::to_owned).or(reason)
        }
    }
}
