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
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::super::extract::{Body, Id, Params};
use super::super::failure::{ErrorShape, Failure};
use super::super::site::Site;
use super::paging::{Paging, beyond};
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::shape;
use lockkeeper_platform::clock;
use lockkeeper_store::runs::Filter;

/// A reason has no more bytes than this.
const REASON_BYTES: usize = 1_000;

/// Runs, the latest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct Listed {
    /// Each with `title` and `blocked`.
    #[schema(value_type = Vec<Object>)]
    runs: Vec<Value>,
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
    (status = BAD_REQUEST, description = "No such page or state", body = ErrorShape),
))]
pub(crate) async fn list(
    State(site): State<Site>,
    Params(wanted): Params<Wanted>,
    Params(paging): Params<Paging>,
) -> Result<Json<Listed>, Failure> {
    let limit = paging.limit()?;
    let words = wanted.status.iter().flat_map(|text| text.split(','));
    let statuses = words.map(|word| word.trim().parse()).collect::<Result<Vec<Status>, _>>();
    let statuses = statuses.map_err(Report::from)?;
    let request: Option<RequestId> =
        wanted.request.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let before: Option<RunId> = paging.after_id().map(str::parse).transpose().map_err(Report::from)?;
    let filter = Filter { statuses, request, before, limit: limit + 1 };
    let mut entries = site.consult(move |site| Ok(site.runs().entries(&filter)?)).await?;
    let next = beyond(&mut entries, limit, |entry| entry.run.id.to_string());
    let now = clock::now();
    let runs = entries.iter().map(|entry| {
        let mut value = shape::run(&entry.run, now);
        value["title"] = entry.request.request.title.as_str().into();
        value["blocked"] = entry.blocked.as_ref().map_or(Value::Null, |blocked| shape::blocked(blocked, now));
        value
    });
    Ok(Json(Listed { runs: runs.collect(), next }))
}

/// A run with everything around it.
#[derive(Serialize, ToSchema)]
pub(crate) struct Shown {
    /// The run.
    #[schema(value_type = Object)]
    run: Value,
    /// Its request.
    #[schema(value_type = Object)]
    request: Value,
    /// What happened to it.
    #[schema(value_type = Vec<Object>)]
    events: Vec<Value>,
    /// Why nobody executes it, while that is so.
    #[schema(value_type = Option<Object>)]
    blocked: Option<Value>,
}

/// One run with its request and events.
#[utoipa::path(get, path = "/api/runs/{id}", operation_id = "show_run", tag = "runs",
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = OK, description = "The run", body = Shown),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorShape),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorShape),
    )
)]
pub(crate) async fn show(State(site): State<Site>, Id(id): Id) -> Result<Json<Shown>, Failure> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let view = site.consult(move |site| Ok(site.runs().show(&id)?)).await?;
    let now = clock::now();
    Ok(Json(Shown {
        run: shape::run(&view.run, now),
        request: shape::request(&view.request),
        events: view.events.iter().map(shape::event).collect(),
        blocked: view.blocked.as_ref().map(|blocked| shape::blocked(blocked, now)),
    }))
}

/// A run as it is now.
#[derive(Serialize, ToSchema)]
pub(crate) struct Moved {
    /// The run.
    #[schema(value_type = Object)]
    run: Value,
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
        (status = BAD_REQUEST, description = "Not an id", body = ErrorShape),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorShape),
        (status = CONFLICT, description = "`TRANSITION_REFUSED`: it has ended", body = ErrorShape),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorShape),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorShape),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorShape),
    )
)]
pub(crate) async fn cancel(
    State(site): State<Site>,
    Id(id): Id,
    Body(cancel): Body<Cancel>,
) -> Result<Response, Failure> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let reason = checked_reason(cancel.reason)?;
    let run = site.consult(move |site| Ok(site.runs().cancel(&id, reason.as_deref())?.run)).await?;
    let message = format!("run {} is {}", run.id, run.status);
    let moved = Moved { run: shape::run(&run, clock::now()), message };
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
        (status = BAD_REQUEST, description = "Not an id or a state", body = ErrorShape),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorShape),
        (status = CONFLICT, description = "`TRANSITION_REFUSED` with `context.status`", body = ErrorShape),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorShape),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorShape),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorShape),
    )
)]
pub(crate) async fn transition(
    State(site): State<Site>,
    Id(id): Id,
    Body(wanted): Body<Transition>,
) -> Result<Json<Moved>, Failure> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let to: Status = wanted.to.parse().map_err(Report::from)?;
    let expect: Option<Status> =
        wanted.expect.as_deref().map(str::parse).transpose().map_err(Report::from)?;
    let worker: WorkerId = wanted.worker.as_deref().unwrap_or("outside").parse().map_err(Report::from)?;
    let mark = Mark { to, expect, claim: wanted.claim, exit_code: wanted.exit_code, worker };
    let run = site
        .consult(move |site| match (mark.to, mark.expect) {
            (Status::Running, None | Some(Status::Queued)) => Ok(site.runs().claim(&id, mark.worker)?),
            _ => Ok(site.runs().mark(&id, &mark)?),
        })
        .await?;
    let message = format!("run {} is {}", run.id, run.status);
    Ok(Json(Moved { run: shape::run(&run, clock::now()), message }))
}

/// Puts a new run of the same request into the queue.
#[utoipa::path(post, path = "/api/runs/{id}/retry", operation_id = "retry_run", tag = "runs",
    params(("id" = String, Path, description = "The run's id")),
    responses(
        (status = CREATED, description = "A new run is queued; `Location` is its address", body = Object),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorShape),
        (status = NOT_FOUND, description = "`NO_SUCH_RUN`", body = ErrorShape),
        (status = CONFLICT, description = "`RUN_IN_PROGRESS`", body = ErrorShape),
    )
)]
pub(crate) async fn retry(State(site): State<Site>, Id(id): Id) -> Result<Response, Failure> {
    let id: RunId = id.parse().map_err(Report::from)?;
    let (request, run) = site
        .consult(move |site| {
            let request = site.runs().show(&id)?.run.request;
            let run = site.runs().run_again(&request)?;
            Ok((request, run))
        })
        .await?;
    let url = format!("/api/runs/{run}");
    let body = json!({ "request_id": request.as_str(), "run_id": run.as_str(), "url": url, "message": format!("run {run} is queued") });
    Ok((StatusCode::CREATED, [(LOCATION, url)], Json(body)).into_response())
}
