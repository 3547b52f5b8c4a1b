//! `/api/runs`: lists, shows, cancels, moves and repeats runs.

use crate::json::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::run::Status;
use lockkeeper_core::run::transition::Mark;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RunFilter;
use lockkeeper_engine::views::{BlockedView, EventView, RequestView, RunListItem, RunView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::{Paging, truncate_page};
use crate::error::{ApiError, ErrorView};
use crate::extract::{Body, Id, Params};
use crate::state::AppState;

/// The longest reason, in bytes.
const MAX_REASON_BYTES: usize = 1_000;

/// A page of runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunList {
    /// The runs, the latest first.
    runs: Vec<RunListItem>,
    /// The `after` of the next page; null on the last page.
    next: Option<String>,
}

/// Filter for runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunQuery {
    /// Only runs with one of these statuses, separated by commas: `queued,running,cancelling,succeeded,failed,canceled,timedOut,rejected`.
    status: Option<String>,
    /// Only runs of this request.
    request: Option<String>,
}

/// Lists runs, the latest first.
#[utoipa::path(get, path = "/api/runs", operation_id = "list_runs", tag = "runs", params(RunQuery, Paging), responses(
    (status = OK, description = "Runs", body = RunList),
    (status = BAD_REQUEST, description = "No such page or status", body = ErrorView),
))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Params(query): Params<RunQuery>,
    Params(paging): Params<Paging>,
) -> Result<Json<RunList>, ApiError> {
    let limit = paging.limit()?;
    let words = query.status.iter().flat_map(|text| text.split(','));
    let statuses = words.map(|word| word.trim().parse()).collect::<Result<Vec<Status>, _>>();
    let statuses = statuses.map_err(Report::from)?;
    let request: Option<RequestId> =
        query.request.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let before: Option<RunId> = paging.after_id().map(str::parse).transpose().map_err(Report::from)?;
    let filter = RunFilter { statuses, request, before, limit: limit + 1 };
    let mut entries = state.blocking(move |state| Ok(state.runs().entries(&filter)?)).await?;
    let next = truncate_page(&mut entries, limit, |entry| entry.run.id.to_string());
    let now = state.runs().now().moment;
    let runs = entries.iter().map(|entry| RunListItem::new(entry, now)).collect();
    Ok(Json(RunList { runs, next }))
}

/// A run with its request and events.
#[derive(Serialize, ToSchema)]
pub(crate) struct RunWithEvents {
    /// The run.
    run: RunView,
    /// Its request.
    request: RequestView,
    /// Its events, the oldest first.
    events: Vec<EventView>,
    /// Why no worker executes it; null when one does, or when it has ended.
    blocked: Option<BlockedView>,
}

/// Shows a run with its request and events.
#[utoipa::path(get, path = "/api/runs/{id}", operation_id = "show_run", tag = "runs",
    params(("id" = String, Path, description = "The id of the run")),
    responses(
        (status = OK, description = "The run", body = RunWithEvents),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorView),
    )
)]
pub(crate) async fn show(State(state): State<AppState>, Id(id): Id) -> Result<Json<RunWithEvents>, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let view = state.blocking(move |state| Ok(state.runs().show(&id)?)).await?;
    let now = state.runs().now().moment;
    Ok(Json(RunWithEvents {
        run: RunView::new(&view.run, now),
        request: RequestView::new(&view.request),
        events: view.events.iter().map(EventView::new).collect(),
        blocked: view.blocked.as_ref().map(|blocked| BlockedView::new(blocked, now)),
    }))
}

/// A run after a move.
#[derive(Serialize, ToSchema)]
pub(crate) struct MovedRun {
    /// The run.
    run: RunView,
    /// What happened, as a sentence.
    message: String,
}

/// Options of a cancel.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({ "reason": "not needed any more" }))]
pub(crate) struct CancelRequest {
    /// Why it is canceled.
    reason: Option<String>,
}

/// Cancels a run. A worker stops the command of a running one first.
#[utoipa::path(post, path = "/api/runs/{id}/cancel", operation_id = "cancel_run", tag = "runs", request_body = CancelRequest,
    params(("id" = String, Path, description = "The id of the run")),
    responses(
        (status = ACCEPTED, description = "It is canceled, or will be", body = MovedRun),
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
    Body(cancel): Body<CancelRequest>,
) -> Result<Response, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let reason = checked_reason(cancel.reason)?;
    let run = state.blocking(move |state| Ok(state.runs().cancel(&id, reason.as_deref())?.run)).await?;
    let message = format!("run {} is {}", run.id, run.status());
    let moved = MovedRun { run: RunView::new(&run, state.runs().now().moment), message };
    Ok((StatusCode::ACCEPTED, Json(moved)).into_response())
}

/// Checks the length of a reason.
pub(super) fn checked_reason(reason: Option<String>) -> Result<Option<String>, Report> {
    if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON_BYTES) {
        return Err(Report::usage("the reason is too long").with_hint("say it in at most 1000 bytes"));
    }
    Ok(reason)
}

/// A move of a run.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "to": "running", "expect": "queued", "worker": "ci-1" }))]
pub(crate) struct Transition {
    /// The new status: `running`, `succeeded`, `failed`, `cancelling`, `canceled` or `timedOut`.
    to: String,
    /// Move only if this is the current status.
    #[serde(default)]
    expect: Option<String>,
    /// Move only if this is the current claim.
    #[serde(default)]
    claim: Option<u64>,
    /// The exit code of its command.
    #[serde(default)]
    exit_code: Option<u8>,
    /// The worker that moves it.
    #[serde(default)]
    worker: Option<String>,
}

/// Moves a run by compare-and-set, for executors outside of Lockkeeper.
#[utoipa::path(post, path = "/api/runs/{id}/transition", operation_id = "move_run", tag = "runs", request_body = Transition,
    params(("id" = String, Path, description = "The id of the run")),
    responses(
        (status = OK, description = "It was moved", body = MovedRun),
        (status = BAD_REQUEST, description = "Not an id or a status", body = ErrorView),
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
    Body(query): Body<Transition>,
) -> Result<Json<MovedRun>, ApiError> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let to: Status = query.to.parse().map_err(Report::from)?;
    let expect: Option<Status> = query.expect.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let worker: WorkerId = query.worker.as_deref().unwrap_or("outside").parse().map_err(Report::from)?;
    let mark = Mark { to, expect, claim: query.claim, exit_code: query.exit_code, worker };
    let run = state
        .blocking(move |state| match (mark.to, mark.expect) {
            (Status::Running, None | Some(Status::Queued)) => Ok(state.runs().claim(&id, mark.worker)?),
            _ => Ok(state.runs().mark(&id, &mark)?),
        })
        .await?;
    let message = format!("run {} is {}", run.id, run.status());
    Ok(Json(MovedRun { run: RunView::new(&run, state.runs().now().moment), message }))
}

/// A new run of the same request.
#[derive(Serialize, ToSchema)]
pub(crate) struct RetriedRun {
    /// The request.
    request_id: String,
    /// The new run.
    run_id: String,
    /// The address of the new run.
    url: String,
    /// What happened, as a sentence.
    message: String,
}

impl RetriedRun {
    pub(super) fn new(request: &RequestId, run: &RunId) -> Self {
        Self {
            request_id: request.to_string(),
            run_id: run.to_string(),
            url: format!("/api/runs/{run}"),
            message: format!("run {run} is queued"),
        }
    }
}

impl IntoResponse for RetriedRun {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, [(LOCATION, self.url.clone())], Json(self)).into_response()
    }
}

/// Queues a new run of the same request.
#[utoipa::path(post, path = "/api/runs/{id}/retry", operation_id = "retry_run", tag = "runs",
    params(("id" = String, Path, description = "The id of the run")),
    responses(
        (status = CREATED, description = "A new run is queued; `Location` is its address", body = RetriedRun),
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
    Ok(RetriedRun::new(&request, &run).into_response())
}
