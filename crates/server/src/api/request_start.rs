//! `/api/requests/{id}/run`: starts a run of a request at once, without waiting for its lease.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::RunError;
use lockkeeper_engine::views::RunView;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::locks::held;
use crate::error::{ApiError, ErrorView};
use crate::extract::{Id, Params};
use crate::json::Json;
use crate::run_spawner::Started;
use crate::state::AppState;

/// A run that was started.
#[derive(Serialize, ToSchema)]
pub(crate) struct StartedRun {
    /// The run.
    run_id: String,
    /// The address of the run.
    url: String,
    /// The run as it is now.
    run: RunView,
    /// What happened, as a sentence.
    message: String,
}

/// Options of a start.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunRequest {
    /// Start it although requests that it comes after are not done.
    force: Option<bool>,
}

/// Runs a request now: its queued run, or a new run when the latest has ended.
#[utoipa::path(post, path = "/api/requests/{id}/run", operation_id = "run_request", tag = "requests",
    params(
        ("id" = String, Path, description = "The id of the request"),
        RunRequest,
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the response of the first"),
    ),
    responses(
        (status = ACCEPTED, description = "It is executed; `Location` is its run", body = StartedRun),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NO_SUCH_REQUEST`", body = ErrorView),
        (status = CONFLICT, description = "`RUN_IN_PROGRESS` with `context.latest_run_url`, `LOCK_HELD`, `DEPENDS_NOT_DONE` with `context.unmet`", body = ErrorView),
    )
)]
pub(crate) async fn run(
    State(state): State<AppState>,
    Id(id): Id,
    Params(how): Params<RunRequest>,
) -> Result<Response, ApiError> {
    let id: RequestId = id.parse().map_err(Report::from)?;
    let (force, request) = (how.force == Some(true), id.clone());
    let started = state.blocking(move |state| start(state, &id, force)).await??;
    let now = state.runs().now().moment;
    match started {
        Started::Run(run) => {
            let url = format!("/api/runs/{}", run.id);
            let message = format!("run {} began", run.id);
            let body = StartedRun {
                run_id: run.id.to_string(),
                url: url.clone(),
                run: RunView::new(&run, now),
                message,
            };
            Ok((StatusCode::ACCEPTED, [(LOCATION, url)], Json(body)).into_response())
        }
        Started::Held(blockers) => Err(lease_is_held(&request, &blockers, now)),
    }
}

/// Starts a run. When one is in progress, the error has its address.
fn start(state: &AppState, id: &RequestId, force: bool) -> Result<Result<Started, ApiError>, Report> {
    let entry = state.runs().request(id)?;
    let latest = entry.latest.as_ref().map(|run| run.id.to_string());
    if let Some(run) = entry.latest.filter(|_| entry.request.status == RequestStatus::Running) {
        let error = RunError::InProgress { request: id.clone(), status: run.status(), run: run.id };
        return Ok(Err(in_progress(error.into())));
    }
    if !force {
        state.runs().require_dependencies(id)?;
    }
    match state.run_spawner().run(state, id) {
        Ok(started) => Ok(Ok(started)),
        // Another program executes that run, so it has no page here. The error names the latest run that has one.
        Err(report) if report.context("lock_file").is_some() => Ok(Err(match latest {
            Some(run) => with_latest(report, &run),
            None => report.into(),
        })),
        Err(report) if report.code() == "RUN_IN_PROGRESS" => Ok(Err(in_progress(report))),
        Err(report) => Err(report),
    }
}

fn in_progress(report: Report) -> ApiError {
    let run = report.context("run_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    with_latest(report, &run)
}

/// Adds the address of the latest run.
fn with_latest(report: Report, run: &str) -> ApiError {
    let url = format!("/api/runs/{run}");
    debug_assert_eq!(report.exit(), Exit::Refused);
    ApiError::from(report.with_context("latest_run_url", url.as_str())).at(url)
}

/// Reports that others hold what the run needs. This call never waits, so the advice is not that of `POST /api/locks`.
fn lease_is_held(id: &RequestId, blockers: &[Blocker], now: Moment) -> ApiError {
    held(blockers, now)
        .explained_as("RUN_LOCK_HELD")
        .with_hint("run it again when the holder is done, or queue it with POST /api/runs/RUN/retry: a worker waits for the lease")
        .with_context("request_id", id.as_str())
        .into()
}
