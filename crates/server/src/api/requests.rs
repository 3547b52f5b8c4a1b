//! `/api/requests`: what somebody wants done.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::id::{RequestId, WorkerId};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::locks::held;
use super::paging::{Paging, beyond};
use crate::error::{ApiError, ErrorView};
use crate::extract::{Body, Id, Params};
use crate::run_spawner::Begun;
use crate::state::AppState;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::new_request::NewRequest;
use lockkeeper_engine::runs::{RequestEntry, RequestFilter, RunError, RunFilter};
use lockkeeper_engine::views::{BlockedView, LatestRun, RequestView, RunView};
use lockkeeper_platform::clock;

/// So many runs of a request are shown with it.
const LATEST_RUNS: usize = 50;

/// Requests, the latest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Requests {
    /// Each with `status`, `locked`, `latest_run` and `blocked`.
    requests: Vec<RequestWithRun>,
    /// Where the next page begins.
    next: Option<String>,
}

/// Which requests.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Only those in these states, with commas between: `QUEUED,RUNNING,DONE,NEEDS_INPUT,FAILED,CANCELED`.
    status: Option<String>,
    /// Only those with this text in their title or id.
    text: Option<String>,
    /// Only those that this worker executes.
    worker: Option<String>,
}

/// Requests, the latest first.
#[utoipa::path(get, path = "/api/requests", operation_id = "list_requests", tag = "requests", params(Wanted, Paging), responses(
    (status = OK, description = "Requests with status, lock and latest run", body = Requests),
    (status = BAD_REQUEST, description = "No such page or state", body = ErrorView),
))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Params(wanted): Params<Wanted>,
    Params(paging): Params<Paging>,
) -> Result<Json<Requests>, ApiError> {
    let limit = paging.limit()?;
    let words = wanted.status.iter().flat_map(|text| text.split(','));
    let statuses = words.map(|word| word.trim().parse()).collect::<Result<Vec<RequestStatus>, _>>();
    let statuses = statuses.map_err(Report::from)?;
    let worker: Option<WorkerId> =
        wanted.worker.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let before: Option<RequestId> = paging.after_id().map(str::parse).transpose().map_err(Report::from)?;
    let filter = RequestFilter {
        statuses,
        text: wanted.text,
        worker,
        before,
        limit: limit + 1,
        ..RequestFilter::default()
    };
    let mut entries = state.blocking(move |state| Ok(state.runs().requests(&filter)?)).await?;
    let next = beyond(&mut entries, limit, |entry| entry.request.request.id.to_string());
    let now = clock::now();
    Ok(Json(Requests {
        requests: entries.iter().map(|entry| RequestWithRun::new(entry, now)).collect(),
        next,
    }))
}

/// A request with all of its latest run.
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

/// A request that came in.
#[derive(Serialize, ToSchema)]
pub(crate) struct Submitted {
    request_id: String,
    /// Its run.
    run_id: String,
    /// Whether it was there before, under the same key.
    existing: bool,
}

/// Takes a request in, with one run that is queued.
#[utoipa::path(post, path = "/api/requests", operation_id = "submit_request", tag = "requests", request_body = NewRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request happen once")),
    responses(
        (status = CREATED, description = "It is queued", body = Submitted),
        (status = OK, description = "It was there already, under the same key", body = Submitted),
        (status = BAD_REQUEST, description = "It cannot be", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`: one that it comes after is not there", body = ErrorView),
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
    let status = if submitted.existing { StatusCode::OK } else { StatusCode::CREATED };
    let location = [(LOCATION, format!("/api/requests/{}", submitted.request))];
    let answer = Submitted {
        request_id: submitted.request.to_string(),
        run_id: submitted.run.to_string(),
        existing: submitted.existing,
    };
    Ok((status, location, Json(answer)).into_response())
}

/// A request with its runs.
#[derive(Serialize, ToSchema)]
pub(crate) struct WithRuns {
    /// The request.
    request: RequestWithRun,
    /// Its runs, the latest first.
    runs: Vec<RunView>,
}

/// One request with its runs.
#[utoipa::path(get, path = "/api/requests/{id}", operation_id = "show_request", tag = "requests",
    params(("id" = String, Path, description = "The request's id")),
    responses(
        (status = OK, description = "The request", body = WithRuns),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`", body = ErrorView),
    )
)]
pub(crate) async fn show(State(state): State<AppState>, Id(id): Id) -> Result<Json<WithRuns>, ApiError> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let (entry, runs) = state.blocking(move |state| with_runs(state, &id)).await?;
    let now = clock::now();
    let runs = runs.iter().map(|run| RunView::new(run, now)).collect();
    Ok(Json(WithRuns { request: RequestWithRun::new(&entry, now), runs }))
}

fn with_runs(state: &AppState, id: &RequestId) -> Result<(RequestEntry, Vec<Run>), Report> {
    let entry = state.runs().request(id)?;
    let filter = RunFilter { request: Some(id.clone()), limit: LATEST_RUNS, ..RunFilter::default() };
    Ok((entry, state.runs().list(&filter)?))
}

/// A run that was started.
#[derive(Serialize, ToSchema)]
pub(crate) struct Started {
    /// The run.
    run_id: String,
    /// The address of the run.
    url: String,
    /// The run as it is now.
    run: RunView,
    /// What happened, for people.
    message: String,
}

/// Runs a request now: its queued run, or a new one when the last has ended.
#[utoipa::path(post, path = "/api/requests/{id}/run", operation_id = "run_request", tag = "requests",
    params(
        ("id" = String, Path, description = "The request's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request happen once"),
    ),
    responses(
        (status = ACCEPTED, description = "It is executed; `Location` is its run", body = Started),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`", body = ErrorView),
        (status = CONFLICT, description = "`RUN_IN_PROGRESS` with `context.latest_run_url`, `LOCK_HELD`", body = ErrorView),
    )
)]
pub(crate) async fn run(State(state): State<AppState>, Id(id): Id) -> Result<Response, ApiError> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let begun = state.blocking(move |state| begin(state, &id)).await??;
    let now = clock::now();
    match begun {
        Begun::Run(run) => {
            let url = format!("/api/runs/{}", run.id);
            let message = format!("run {} began", run.id);
            let body = Started {
                run_id: run.id.to_string(),
                url: url.clone(),
                run: RunView::new(&run, now),
                message,
            };
            Ok((StatusCode::ACCEPTED, [(LOCATION, url)], Json(body)).into_response())
        }
        Begun::Held(jams) => Err(held(&jams, now)),
    }
}

/// A run in progress is a refusal that leads to that run.
fn begin(state: &AppState, id: &RequestId) -> Result<Result<Begun, ApiError>, Report> {
    let entry = state.runs().request(id)?;
    if let Some(run) = entry.latest.filter(|_| entry.request.status == RequestStatus::Running) {
        let error = RunError::InProgress { request: id.clone(), run: run.id, status: run.status };
        return Ok(Err(in_progress(error.into())));
    }
    match state.run_spawner().run(state, id) {
        Ok(begun) => Ok(Ok(begun)),
        Err(report) if report.code() == "RUN_IN_PROGRESS" => Ok(Err(in_progress(report))),
        Err(report) => Err(report),
    }
}

fn in_progress(report: Report) -> ApiError {
    let run = report.context("run_id").and_then(Value::as_str).unwrap_or_default();
    let url = format!("/api/runs/{run}");
    debug_assert_eq!(report.exit(), Exit::Refused);
    ApiError::from(report.with_context("latest_run_url", url.as_str())).at(url)
}
