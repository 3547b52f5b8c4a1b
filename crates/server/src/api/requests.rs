//! `/api/requests`: lists, submits, replaces and shows requests, sets their priority, and answers them.

use crate::json::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::id::{RequestId, WorkerId};
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::new_request::NewRequest;
use lockkeeper_engine::runs::{self, RequestEntry, RequestFilter, RunFilter};
use lockkeeper_engine::views::{BlockedView, LatestRun, RequestView, RunView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::paging::{Paging, truncate_page};
use super::runs::RetriedRun;
use crate::error::{ApiError, ErrorView};
use crate::extract::{Body, Id, Params};
use crate::state::AppState;

/// How many runs are shown with a request.
const LATEST_RUNS: usize = 50;

/// A page of requests.
#[derive(Serialize, ToSchema)]
pub(crate) struct RequestList {
    /// The requests, the latest first.
    requests: Vec<RequestWithRun>,
    /// The `after` of the next page; null on the last page.
    next: Option<String>,
}

/// Filter for requests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RequestQuery {
    /// Only requests with one of these statuses, separated by commas: `QUEUED,RUNNING,DONE,NEEDS_INPUT,FAILED,CANCELED`.
    status: Option<String>,
    /// Only requests with this text in their title or id.
    text: Option<String>,
    /// Only requests that this worker executes.
    worker: Option<String>,
}

/// Lists requests, the latest first.
#[utoipa::path(get, path = "/api/requests", operation_id = "list_requests", tag = "requests", params(RequestQuery, Paging), responses(
    (status = OK, description = "Requests with status, lock and latest run", body = RequestList),
    (status = BAD_REQUEST, description = "No such page or status", body = ErrorView),
))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Params(query): Params<RequestQuery>,
    Params(paging): Params<Paging>,
) -> Result<Json<RequestList>, ApiError> {
    let limit = paging.limit()?;
    let words = query.status.iter().flat_map(|text| text.split(','));
    let statuses = words.map(|word| word.trim().parse()).collect::<Result<Vec<RequestStatus>, _>>();
    let statuses = statuses.map_err(Report::from)?;
    let worker: Option<WorkerId> =
        query.worker.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let before: Option<RequestId> = paging.after_id().map(str::parse).transpose().map_err(Report::from)?;
    let filter = RequestFilter {
        statuses,
        text: query.text,
        worker,
        before,
        limit: limit + 1,
        ..RequestFilter::default()
    };
    let mut entries = state.blocking(move |state| Ok(state.runs().requests(&filter)?)).await?;
    let next = truncate_page(&mut entries, limit, |entry| entry.request.request.id.to_string());
    let now = state.runs().now().moment;
    Ok(Json(RequestList {
        requests: entries.iter().map(|entry| RequestWithRun::new(entry, now)).collect(),
        next,
    }))
}

/// A request with its latest run.
#[derive(Serialize, ToSchema)]
pub(crate) struct RequestWithRun {
    /// The request.
    #[serde(flatten)]
    request: RequestView,
    /// Why no worker executes the latest run; null when one does, or when it has ended.
    blocked: Option<BlockedView>,
}

impl RequestWithRun {
    fn new(entry: &RequestEntry, now: Moment) -> Self {
        let latest = entry.latest.as_ref().map(|run| LatestRun::Run(Box::new(RunView::new(run, now))));
        Self {
            request: RequestView { latest_run: latest, ..RequestView::new(&entry.request) },
            blocked: entry.blocked.as_ref().map(|blocked| BlockedView::new(blocked, now)),
        }
    }
}

/// A submitted request.
#[derive(Serialize, ToSchema)]
pub(crate) struct Submitted {
    /// The request.
    request_id: String,
    /// Its queued run.
    run_id: String,
    /// Whether the same request was submitted before with the same key.
    existing: bool,
    /// Whether a request with this id existed before and has got the new definition.
    replaced: bool,
}

impl Submitted {
    fn response(submitted: &runs::Submitted) -> Response {
        let is_new = !submitted.existing && !submitted.replaced;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let location = [(LOCATION, format!("/api/requests/{}", submitted.request))];
        let answer = Self {
            request_id: submitted.request.to_string(),
            run_id: submitted.run.to_string(),
            existing: submitted.existing,
            replaced: submitted.replaced,
        };
        (status, location, Json(answer)).into_response()
    }
}

/// Submits a request and queues its first run.
#[utoipa::path(post, path = "/api/requests", operation_id = "submit_request", tag = "requests", request_body = NewRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the response of the first")),
    responses(
        (status = CREATED, description = "It is queued", body = Submitted),
        (status = OK, description = "It was submitted before with the same key", body = Submitted),
        (status = BAD_REQUEST, description = "The body is invalid", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`: a request in `after` does not exist", body = ErrorView),
        (status = CONFLICT, description = "`DUPLICATE`, `QUEUE_FULL`", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn submit(
    State(state): State<AppState>,
    Body(mut new): Body<NewRequest>,
) -> Result<Response, ApiError> {
    for path in &mut new.paths {
        *path = state.below_root(path)?;
    }
    let submitted = state
        .blocking(move |state| {
            let id = state.runs().new_request_id()?;
            let request = new.check(&id, &state.settings().defaults)?;
            Ok(state.runs().submit(&request, state.settings().queue_limit)?)
        })
        .await?;
    Ok(Submitted::response(&submitted))
}

/// Submits a request with this id, or replaces the one that has it: it gets the new definition and a new run. Its queued
/// run is canceled.
#[utoipa::path(put, path = "/api/requests/{id}", operation_id = "replace_request", tag = "requests", request_body = NewRequest,
    params(("id" = String, Path, description = "The id of the request; the body need not name it")),
    responses(
        (status = CREATED, description = "There was no such request; it is queued", body = Submitted),
        (status = OK, description = "It was replaced and is queued", body = Submitted),
        (status = BAD_REQUEST, description = "The body is invalid, names another id or has a key", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`: a request in `after` does not exist", body = ErrorView),
        (status = CONFLICT, description = "`RUN_IN_PROGRESS`, `QUEUE_FULL`", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
    )
)]
pub(crate) async fn replace(
    State(state): State<AppState>,
    Id(id): Id,
    Body(mut new): Body<NewRequest>,
) -> Result<Response, ApiError> {
    if new.id.get_or_insert_with(|| id.clone()) != &id {
        return Err(Report::usage("the body names another request than the address")
            .with_hint("leave the id out of the body")
            .into());
    }
    for path in &mut new.paths {
        *path = state.below_root(path)?;
    }
    let submitted = state
        .blocking(move |state| {
            let request = new.check_replacement(&state.settings().defaults)?;
            Ok(state.runs().replace(&request, state.settings().queue_limit)?)
        })
        .await?;
    Ok(Submitted::response(&submitted))
}

/// A request with its runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct RequestWithRuns {
    /// The request.
    request: RequestWithRun,
    /// Its runs, the latest first.
    runs: Vec<RunView>,
}

/// Shows a request with its runs.
#[utoipa::path(get, path = "/api/requests/{id}", operation_id = "show_request", tag = "requests",
    params(("id" = String, Path, description = "The id of the request")),
    responses(
        (status = OK, description = "The request", body = RequestWithRuns),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`", body = ErrorView),
    )
)]
pub(crate) async fn show(
    State(state): State<AppState>,
    Id(id): Id,
) -> Result<Json<RequestWithRuns>, ApiError> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let (entry, runs) = state.blocking(move |state| with_runs(state, &id)).await?;
    let now = state.runs().now().moment;
    let runs = runs.iter().map(|run| RunView::new(run, now)).collect();
    Ok(Json(RequestWithRuns { request: RequestWithRun::new(&entry, now), runs }))
}

fn with_runs(state: &AppState, id: &RequestId) -> Result<(RequestEntry, Vec<Run>), Report> {
    let entry = state.runs().request(id)?;
    let filter = RunFilter { request: Some(id.clone()), limit: LATEST_RUNS, ..RunFilter::default() };
    Ok((entry, state.runs().list(&filter)?))
}

/// A new priority.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "priority": 10 }))]
pub(crate) struct PriorityRequest {
    /// From −100 to 100; larger is more urgent.
    #[schema(minimum = -100, maximum = 100)]
    priority: i32,
}

/// Changes the priority of a request, and with it the place of its queued run.
#[utoipa::path(post, path = "/api/requests/{id}/priority", operation_id = "set_priority", tag = "requests", request_body = PriorityRequest,
    params(("id" = String, Path, description = "The id of the request")),
    responses(
        (status = OK, description = "The request", body = RequestWithRun),
        (status = BAD_REQUEST, description = "Not an id, or not a priority", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn set_priority(
    State(state): State<AppState>,
    Id(id): Id,
    Body(given): Body<PriorityRequest>,
) -> Result<Json<RequestWithRun>, ApiError> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let priority = Priority::new(given.priority).map_err(Report::from)?;
    let entry = state
        .blocking(move |state| {
            state.runs().set_priority(&id, priority)?;
            Ok(state.runs().request(&id)?)
        })
        .await?;
    Ok(Json(RequestWithRun::new(&entry, state.runs().now().moment)))
}

/// The answer of a person.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "answer": "skip them" }))]
pub(crate) struct AnswerRequest {
    /// The text that the command gets in the variable `LOCKKEEPER_ANSWER`, up to 65536 bytes.
    answer: String,
}

/// Answers a request that needs input: queues a new run, whose command gets the answer.
#[utoipa::path(post, path = "/api/requests/{id}/answer", operation_id = "answer_request", tag = "requests", request_body = AnswerRequest,
    params(("id" = String, Path, description = "The id of the request")),
    responses(
        (status = CREATED, description = "A new run is queued; `Location` is its address", body = RetriedRun),
        (status = BAD_REQUEST, description = "Not an id, or not an answer", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`", body = ErrorView),
        (status = CONFLICT, description = "`NOT_ASKED`: it does not need input", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn answer(
    State(state): State<AppState>,
    Id(id): Id,
    Body(given): Body<AnswerRequest>,
) -> Result<Response, ApiError> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let request = id.clone();
    let run = state.blocking(move |state| Ok(state.runs().answer(&id, &given.answer)?)).await?;
    Ok(RetriedRun::new(&request, &run).into_response())
}
