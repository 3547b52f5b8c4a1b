//! Page of one run: its status, its lease, its events and its output.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::id::{LeaseId, RequestId, RunId};
use lockkeeper_core::record::Lease;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::output::without_escapes;
use lockkeeper_engine::runs::{RunDetail, RunEntry, RunFilter};
use lockkeeper_engine::views::shown_command_line;
use lockkeeper_engine::{Listing, OwnerNames};
use serde::Deserialize;

use super::activity::EventRow;
use super::attempts::{AttemptRow, attempts};
use super::locks::{Chip, chips};
use super::request_row::{Cancel, Link, Rows, Why, reason, runs_by_lease};
use super::status::{Badge, needs_input, of_request, of_run_of};
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::api::log::{LogWindow, WindowQuery, window};
use crate::error::ApiError;
use crate::extract::{Id, Params};
use crate::state::AppState;

/// How many tickets that wait for it are shown.
const MAX_BEHIND: usize = 20;
/// How many runs are looked at for the leases that it waits for.
const MAX_RUNNING: usize = 200;
/// How many bytes of the output are shown.
const LOG_BYTES: usize = 64 * 1024;

#[derive(Template)]
#[template(path = "run.html")]
struct Page {
    layout: Layout,
    now: i64,
    id: String,
    request: String,
    title: String,
    /// As a line for a shell.
    command: String,
    dir: String,
    badge: Badge,
    locked: bool,
    attempt: u32,
    attempts: Vec<AttemptRow>,
    /// The attempt whose output is shown, if it is not the latest.
    shown: Option<u32>,
    cancel: Option<Cancel>,
    answers: bool,
    behind: Vec<Behind>,
    worker: Option<String>,
    pid: Option<u32>,
    lease: Option<String>,
    lease_id: String,
    holder: Option<Holder>,
    exit_code: Option<u8>,
    why: Option<String>,
    /// Why it has not started.
    whys: Vec<Why>,
    /// What it needs before it starts: locks, labels of workers, and requests that have to be done.
    wants: Vec<Chip>,
    labels: Vec<String>,
    after: Vec<(Link, Option<Badge>)>,
    queued: TimePoint,
    started: Option<TimePoint>,
    ended: Option<TimePoint>,
    is_open: bool,
    events: Vec<EventRow>,
    log: String,
    log_from: u64,
    log_to: u64,
    log_size: u64,
}

/// What the page is made from.
struct Read {
    view: RunDetail,
    log: LogWindow,
    lease: Option<Lease>,
    listing: Listing,
    names: OwnerNames,
    last_line: Option<String>,
    running: Vec<RunEntry>,
    /// The requests that it comes after, with their statuses.
    before: Vec<(RequestId, Option<RequestStatus>)>,
}

/// The lease of the run.
struct Holder {
    owner: String,
    resources: Vec<String>,
}

/// A ticket that waits for a lease of the run.
struct Behind {
    owner: String,
    wanted: String,
    since: TimePoint,
}

/// Which output is shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    attempt: String,
}

pub(super) async fn page(
    State(state): State<AppState>,
    Id(id): Id,
    Params(query): Params<Query>,
    layout: Layout,
) -> Result<Response, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let asked: Option<u32> = query.attempt.parse().ok();
    let Read { view, log, lease, listing, names, last_line, running, before } = state
        .blocking(move |state| {
            let view = state.runs().show(&id)?;
            let log = window(state, &id, &WindowQuery::end(asked), LOG_BYTES)?;
            let lease = match view.run.lease() {
                Some((lease, _)) => state.leases().lease(lease)?,
                None => None,
            };
            let last_line = state.runs().last_line(&view.run);
            let listing = state.leases().listing()?;
            let names = OwnerNames::of(&listing, state.root());
            let is_queued = view.run.status() == Status::Queued;
            let filter = RunFilter {
                statuses: vec![Status::Running, Status::Cancelling],
                limit: MAX_RUNNING,
                ..RunFilter::default()
            };
            let running = if is_queued { state.runs().entries(&filter)? } else { Vec::new() };
            // A request that it comes after may have been removed.
            let status = |id: &RequestId| state.runs().request(id).ok().map(|entry| entry.request.status);
            let after = view.request.request.after.iter().filter(|_| is_queued);
            let before = after.map(|id| (id.clone(), status(id))).collect();
            Ok(Read { view, log, lease, listing, names, last_line, running, before })
        })
        .await?;
    let (texts, times) = (layout.texts, TimeFormat::new(state.runs().now().moment));
    let (run, request) = (&view.run, &view.request.request);
    let (log, [log_from, log_to, log_size]) = log.into_text();
    let why = reason(run, last_line.as_deref(), texts);
    let answers = needs_input(run, &view.request);
    let mut attempts = attempts(&view.events, asked.unwrap_or(run.attempt()), texts, &times);
    // The record of the run has the exit code of the last attempt, which its events do not have.
    if let Some(last) = attempts.last_mut().filter(|last| last.number == run.attempt()) {
        last.why.clone_from(&why);
        if answers {
            last.badge = of_run_of(run, &view.request, texts);
        }
    }
    let runs = runs_by_lease(running.iter().map(|entry| (&entry.run, &entry.request.request)));
    let rows = Rows { listing: &listing, names: &names, runs, texts, times: &times };
    let is_queued = run.status() == Status::Queued;
    let page = Page {
        now: times.now(),
        id: run.id.to_string(),
        request: run.request.to_string(),
        title: request.title.clone(),
        command: shown_command_line(&request.command),
        dir: request.dir.clone(),
        badge: of_run_of(run, &view.request, texts),
        locked: matches!(run.status(), Status::Running | Status::Cancelling),
        attempt: run.attempt(),
        attempts,
        shown: asked.filter(|attempt| *attempt != run.attempt()),
        cancel: Cancel::of(run.status(), &request.title, texts),
        answers,
        behind: run.lease().map_or_else(Vec::new, |(lease, _)| behind(&listing, lease, &names, &times)),
        worker: run.worker().as_ref().map(ToString::to_string),
        pid: run.process().and_then(|process| process.command).map(|command| command.pid),
        lease: run.lease().map(|(lease, token)| format!("{lease} ({} {token})", texts.token)),
        lease_id: run.lease().map_or_else(String::new, |(lease, _)| lease.to_string()),
        holder: lease.map(|lease| Holder {
            owner: lease.claim.owner.to_string(),
            resources: lease.claim.targets().map(ToString::to_string).collect(),
        }),
        exit_code: run.ending().map(|ending| ending.exit_code()),
        why,
        whys: view.blocked.iter().flat_map(|blocked| rows.whys(request, blocked)).collect(),
        wants: if is_queued { chips(&request.resources()) } else { Vec::new() },
        labels: request.needs.iter().filter(|_| is_queued).map(ToString::to_string).collect(),
        after: before
            .iter()
            .map(|(id, status)| (Link::to_request(id), status.map(|status| of_request(status, texts))))
            .collect(),
        queued: times.since(run.queued_at.moment),
        started: run.started_at().map(|at| times.since(at.moment)),
        ended: run.completed_at().map(|at| times.since(at.moment)),
        is_open: !run.status().is_terminal(),
        events: view.events.iter().rev().map(|event| EventRow::new(event, texts)).collect(),
        log: without_escapes(&log),
        log_from,
        log_to,
        log_size,
        layout: layout.at("/runs"),
    };
    render(&page)
}

/// The tickets that wait for a lease.
fn behind(listing: &Listing, lease: LeaseId, names: &OwnerNames, times: &TimeFormat) -> Vec<Behind> {
    let alive = listing.waiters.iter().filter(|waiter| !waiter.verdict.is_free());
    let waits = alive.filter_map(|waiter| {
        let blocks = |blocker: &&Blocker| blocker.leases.iter().any(|found| found.record.id == lease);
        let blocker = waiter.blockers.iter().find(blocks)?;
        Some(Behind {
            owner: names.of_owner(&waiter.ticket.claim.owner),
            wanted: blocker.resource.target.to_string(),
            since: times.since(waiter.ticket.enqueued_at),
        })
    });
    waits.take(MAX_BEHIND).collect()
}
