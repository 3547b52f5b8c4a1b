//! `/api/runs`: what was tried, what came of it, and what it wrote.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::life::Mark;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::{Paging, beyond};
use crate::error::{ApiError, ErrorView};
use crate::extract::{Body, Id, Params};
use crate::state::AppState;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RunFilter;
use lockkeeper_engine::views::{BlockedView, EventView, RequestView, RunListItem, RunView};
use lockkeeper_platform::clock;

/// A reason has no more bytes than this.
const REASON_BYTES: usize = 1_000;

/// Runs, the latest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Listed {
    /// Each with `title` and `blocked`.
    runs: Vec<RunListItem>,
    /// Where the next page begins.
    next: Option<String>,
}

/// Which runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Only those in these states, with commas between: `queued,running,cancelling,succeeded,failed,canceled,timedOut,rejected`.
    status: Option<String>,
    /// Only those of this request.
    request: Option<String>,
}

/// Runs, the latest first.
#[utoipa::path(get, path = "/api/runs", operation_id = "list_runs", tag = "runs", params(Wanted, Paging), responses(
    (status = OK, description = "Runs", body = Listed),
    (status = BAD_REQUEST, description = "No such page or state", body = ErrorView),
))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Params(wanted): Params<Wanted>,
    Params(paging): Params<Paging>,
) -> Result<Json<Listed>, ApiError> {
    let limit = paging.limit()?;
    let words = wanted.status.iter().flat_map(|text| text.split(','));
    let statuses = words.map(|word| word.trim().parse()).collect::<Result<Vec<Status>, _>>();
    let statuses = statuses.map_err(Report::from)?;
    let request: Option<RequestId> =
        wanted.request.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let before: Option<RunId> = paging.after_id().map(str::parse).transpose().map_err(Report::from)?;
    let filter = RunFilter { statuses, request, before, limit: limit + 1 };
    let mut entries = state.blocking(move |state| Ok(state.runs().entries(&filter)?)).await?;
    let next = beyond(&mut entries, limit, |entry| entry.run.id.to_string());
    let now = clock::now();
    let runs = entries.iter().map(|entry| RunListItem::new(entry, now)).collect();
    Ok(Json(Listed { runs, next }))
}

/// A run with everything around it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Shown {
    /// The run.
    run: RunView,
    /// Its request.
    request: RequestView,
    /// Its events, the oldest first.
    events: Vec<EventView>,
    /// Why no worker executes it; null when one does, or when it has ended.
    blocked: Option<BlockedView>,
}

/// One run with its request and events.
#[utoipa::path(get, path = "/api/runs/{id}", operation_id = "show_run", tag = "runs",
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = OK, description = "The run", body = Shown),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
    )
)]
pub(crate) async fn show(State(state): State<AppState>, Id(id): Id) -> Result<Json<Shown>, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let view = state.blocking(move |state| Ok(state.runs().show(&id)?)).await?;
    let now = clock::now();
    Ok(Json(Shown {
        run: RunView::new(&view.run, now),
        request: RequestView::new(&view.request),
        events: view.events.iter().map(EventView::new).collect(),
        blocked: view.blocked.as_ref().map(|blocked| BlockedView::new(blocked, now)),
    }))
}

/// A run as it is now.
#[derive(Serialize, ToSchema)]
pub(crate) struct Moved {
    /// The run.
    run: RunView,
    /// What happened, for people.
    message: String,
}

/// Why a run is called off.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Cancel {
    /// In words.
    reason: Option<String>,
}

/// Calls a run off; whoever executes it ends its command first.
#[utoipa::path(post, path = "/api/runs/{id}/cancel", operation_id = "cancel_run", tag = "runs", request_body = Cancel,
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = ACCEPTED, description = "It is canceled, or about to be", body = Moved),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
        (status = CONFLICT, description = "`TRANSITION_REFUSED`: it has ended", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn cancel(
    State(state): State<AppState>,
    Id(id): Id,
    Body(cancel): Body<Cancel>,
) -> Result<Response, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let reason = checked_reason(cancel.reason)?;
    let run = state.blocking(move |state| Ok(state.runs().cancel(&id, reason.as_deref())?.run)).await?;
    let message = format!("run {} is {}", run.id, run.status);
    let moved = Moved { run: RunView::new(&run, clock::now()), message };
    Ok((StatusCode::ACCEPTED, Json(moved)).into_response())
}

/// A reason that is not too long.
pub(super) fn checked_reason(reason: Option<String>) -> Result<Option<String>, Report> {
    if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES) {
        return Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"));
    }
    Ok(reason)
}

/// Where a run is to go.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Transition {
    /// `running`, `succeeded`, `failed`, `cancelling`, `canceled` or `timedOut`.
    to: String,
    /// Only if it is here now.
    #[serde(default)]
    expect: Option<String>,
    /// Only if this is the present claim.
    #[serde(default)]
    claim: Option<u64>,
    /// The exit code of its command.
    #[serde(default)]
    exit_code: Option<u8>,
    /// Who says so.
    #[serde(default)]
    worker: Option<String>,
}

/// Moves a run by compare-and-set, for executors outside of Lockkeeper.
#[utoipa::path(post, path = "/api/runs/{id}/transition", operation_id = "move_run", tag = "runs", request_body = Transition,
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = OK, description = "It was moved", body = Moved),
        (status = BAD_REQUEST, description = "Not an id or a state", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
        (status = CONFLICT, description = "`TRANSITION_REFUSED` with `context.status`", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn transition(
    State(state): State<AppState>,
    Id(id): Id,
    Body(wanted): Body<Transition>,
) -> Result<Json<Moved>, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let to: Status = wanted.to.parse().map_err(Report::from)?;
    let expect: Option<Status> =
        wanted.expect.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let worker: WorkerId = wanted.worker.as_deref().unwrap_or("outside").parse().map_err(Report::from)?;
    let mark = Mark { to, expect, claim: wanted.claim, exit_code: wanted.exit_code, worker };
    let run = state
        .blocking(move |state| match (mark.to, mark.expect) {
            (Status::Running, None | Some(Status::Queued)) => Ok(state.runs().claim(&id, mark.worker)?),
            _ => Ok(state.runs().mark(&id, &mark)?),
        })
        .await?;
    let message = format!("run {} is {}", run.id, run.status);
    Ok(Json(Moved { run: RunView::new(&run, clock::now()), message }))
}

/// A new run of the same request.
#[derive(Serialize, ToSchema)]
pub(crate) struct Retried {
    /// The request.
    request_id: String,
    /// The new run.
    run_id: String,
    /// The address of the new run.
    url: String,
    /// What happened, for people.
    message: String,
}

/// Puts a new run of the same request into the queue.
#[utoipa::path(post, path = "/api/runs/{id}/retry", operation_id = "retry_run", tag = "runs",
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = CREATED, description = "A new run is queued; `Location` is its address", body = Retried),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
        (status = CONFLICT, description = "`RUN_IN_PROGRESS`", body = ErrorView),
    )
)]
pub(crate) async fn retry(State(state): State<AppState>, Id(id): Id) -> Result<Response, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let (request, run) = state
        .blocking(move |state| {
            let request = state.runs().show(&id)?.run.request;
            let run = state.runs().run_again(&request)?;
            Ok((request, run))
        })
        .await?;
    let url = format!("/api/runs/{run}");
    let body = Retried {
        request_id: request.to_string(),
        run_id: run.to_string(),
        url: url.clone(),
        message: format!("run {run} is queued"),
    };
    Ok((StatusCode::CREATED, [(LOCATION, url)], Json(body)).into_response())
}
