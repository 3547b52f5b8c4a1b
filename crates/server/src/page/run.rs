//! Page of one run: its status, its lease, its events and its output.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper_core::id::RunId;
use lockkeeper_core::run::Status;
use lockkeeper_core::secret::shown_command;
use lockkeeper_engine::report::Report;

use super::activity::EventRow;
use super::status::{Badge, of_run};
use super::times::{TimeFormat, TimePoint};
use super::{Layout, render};
use crate::api::log::{WindowQuery, window};
use crate::error::ApiError;
use crate::extract::Id;
use crate::state::AppState;

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
    command: String,
    badge: Badge,
    locked: bool,
    attempt: u32,
    worker: Option<String>,
    pid: Option<u32>,
    lease: Option<String>,
    holder: Option<Holder>,
    exit_code: Option<u8>,
    reason: Option<String>,
    message: Option<String>,
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

/// The lease of the run.
struct Holder {
    owner: String,
    resources: Vec<String>,
    heartbeat: TimePoint,
}

pub(super) async fn page(
    State(state): State<AppState>,
    Id(id): Id,
    layout: Layout,
) -> Result<Response, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let (view, log, lease) = state
        .blocking(move |state| {
            let view = state.runs().show(&id)?;
            let log = window(state, &id, &WindowQuery::end(), LOG_BYTES)?;
            let lease = match view.run.lease() {
                Some((lease, _)) => state.leases().lease(lease)?,
                None => None,
            };
            Ok((view, log, lease))
        })
        .await?;
    let (texts, times) = (layout.texts, TimeFormat::new(state.runs().now().moment));
    let (run, request) = (&view.run, &view.request.request);
    let (log, [log_from, log_to, log_size]) = log.into_text();
    let page = Page {
        now: times.now(),
        id: run.id.to_string(),
        request: run.request.to_string(),
        title: request.title.clone(),
        command: shown_command(&request.command).join(" "),
        badge: of_run(run.status(), texts),
        locked: matches!(run.status(), Status::Running | Status::Cancelling),
        attempt: run.attempt(),
        worker: run.worker().as_ref().map(ToString::to_string),
        pid: run.process().and_then(|process| process.command).map(|command| command.pid),
        lease: run.lease().map(|(lease, token)| format!("{lease} ({} {token})", texts.token)),
        holder: lease.map(|lease| Holder {
            owner: lease.claim.owner.to_string(),
            resources: lease.claim.targets().map(ToString::to_string).collect(),
            heartbeat: times.since(lease.heartbeat_at),
        }),
        exit_code: run.ending().map(|ending| ending.exit_code()),
        reason: run.reason().map(|reason| reason.to_string()),
        message: run.message().map(ToOwned::to_owned),
        queued: times.since(run.queued_at.moment),
        started: run.started_at().map(|at| times.since(at.moment)),
        ended: run.completed_at().map(|at| times.since(at.moment)),
        is_open: !run.status().is_terminal(),
        events: view.events.iter().rev().map(EventRow::new).collect(),
        log,
        log_from,
        log_to,
        log_size,
        layout: layout.at("/runs"),
    };
    render(&page)
}
