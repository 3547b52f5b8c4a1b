//! `/api/queue`: working through the requests one by one, under the queue's lock.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::queue::Selection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::extract::Body;
use super::super::failure::{ErrorShape, Failure};
use super::super::site::Site;
use super::super::workshop::Turn;
use lockkeeper_engine::queue::{self, QueueBusy, explain};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::runs::AutoRun;

/// Where the queue is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queue {
    /// Whether somebody works through it.
    running: bool,
    /// Who, since when, how far.
    #[schema(value_type = Option<Object>)]
    auto_run: Option<Value>,
    /// The request that is next.
    next: Option<String>,
    /// The other requests that are not done: `request_id`, `reason` and the reason in words.
    #[schema(value_type = Vec<Object>)]
    passed_over: Vec<Value>,
}

/// Where the queue is, what is next, and why the others are not.
#[utoipa::path(get, path = "/api/queue", operation_id = "show_queue", tag = "queue", responses(
    (status = OK, description = "The queue", body = Queue),
))]
pub(crate) async fn show(State(site): State<Site>) -> Result<Json<Queue>, Failure> {
    let (selection, auto) =
        site.consult(|site| Ok((queue::selection(site.runs(), &[])?, auto_run(site)?))).await?;
    Ok(Json(Queue::of(&selection, auto.as_ref())))
}

/// The auto-run that goes on, if one does.
pub(crate) fn auto_run(site: &Site) -> Result<Option<AutoRun>, Report> {
    if !queue::is_running(site.leases())? {
        return Ok(None);
    }
    Ok(site.runs().store().read(|tables| tables.auto_run())?)
}

impl Queue {
    fn of(selection: &Selection, auto: Option<&AutoRun>) -> Self {
        let passed_over = selection.passed_over.iter().map(|(id, reason)| {
            json!({ "request_id": id.as_str(), "reason": reason.as_str(), "message": explain(*reason) })
        });
        Self {
            running: auto.is_some(),
            auto_run: auto.map(shown),
            next: selection.next.as_ref().map(ToString::to_string),
            passed_over: passed_over.collect(),
        }
    }
}

fn shown(auto: &AutoRun) -> Value {
    json!({
        "worker": auto.worker.as_str(),
        "started_at": WallTime::from_micros(auto.started_at).to_string(),
        "runs": auto.runs,
        "current_run_id": auto.current.as_ref().map(|run| run.as_str()),
        "stopping": auto.stop,
    })
}

/// How to work through the queue.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Manner {
    /// Go on until one fails, needs input, or nothing is left.
    auto: bool,
}

/// Executes the next request, or with `auto` one after the other.
#[utoipa::path(post, path = "/api/queue/run-next", operation_id = "run_next", tag = "queue", request_body = Manner,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request happen once")),
    responses(
        (status = ACCEPTED, description = "It is worked through", body = Queue),
        (status = OK, description = "There is nothing to do", body = Queue),
        (status = BAD_REQUEST, description = "It cannot be", body = ErrorShape),
        (status = CONFLICT, description = "`QUEUE_IN_PROGRESS`: somebody else does", body = ErrorShape),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorShape),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorShape),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorShape),
    )
)]
pub(crate) async fn run_next(
    State(site): State<Site>,
    Body(manner): Body<Manner>,
) -> Result<Response, Failure> {
    let (turn, auto) = site
        .consult(move |site| Ok((site.workshop().work_through(site, manner.auto)?, auto_run(site)?)))
        .await?;
    match turn {
        Turn::Begun(selection) => {
            Ok((StatusCode::ACCEPTED, Json(Queue::of(&selection, auto.as_ref()))).into_response())
        }
        Turn::Nothing(selection) => Ok(Json(Queue::of(&selection, None)).into_response()),
        Turn::Busy(busy) => Err(in_progress(&busy)),
    }
}

fn in_progress(busy: &QueueBusy) -> Failure {
    let report = Report::new(Exit::Refused, "QUEUE_IN_PROGRESS", "somebody else works through the queue")
        .with_hint("stop it with POST /api/queue/stop, or wait until it has ended")
        .with_context("holder", busy.holder.as_str());
    match busy.auto_run.as_ref().and_then(|auto| auto.current.as_ref()) {
        Some(run) => report.with_context("run_id", run.as_str()).into(),
        None => report.into(),
    }
}

/// How to end.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct End {
    /// End the present run as well.
    now: bool,
}

/// Asks whoever works through the queue to end after the present run.
#[utoipa::path(post, path = "/api/queue/stop", operation_id = "stop_queue", tag = "queue", request_body = End, responses(
    (status = ACCEPTED, description = "`stopping` says whether anybody was asked", body = Object),
    (status = BAD_REQUEST, description = "It cannot be", body = ErrorShape),
    (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorShape),
    (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorShape),
    (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorShape),
))]
pub(crate) async fn stop(State(site): State<Site>, Body(end): Body<End>) -> Result<Response, Failure> {
    let stopping = site
        .consult(move |site| {
            let stopping = queue::stop(site.runs(), site.leases())?;
            let current = auto_run(site)?.and_then(|auto| auto.current);
            if let Some(run) = current.filter(|_| end.now && stopping) {
                // It may have ended in the meantime, which is what was wanted.
                let _ = site.runs().cancel(&run, Some("the queue was stopped"));
            }
            Ok(stopping)
        })
        .await?;
    let message = if stopping { "the queue ends after the present run" } else { "no queue is running" };
    Ok((StatusCode::ACCEPTED, Json(json!({ "stopping": stopping, "message": message }))).into_response())
}
