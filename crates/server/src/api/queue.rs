//! `/api/queue`: working through the requests one by one, under the queue's lock.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::queue::Selection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorView};
use crate::extract::Body;
use crate::run_spawner::Turn;
use crate::state::AppState;
use lockkeeper_engine::queue::{self, QueueBusy};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::AutoRun;
use lockkeeper_engine::views::{AutoRunView, PassedOverView};

/// Where the queue is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queue {
    /// Whether somebody works through it.
    running: bool,
    /// Who, since when, how far.
    auto_run: Option<AutoRunView>,
    /// The request that is next.
    next: Option<String>,
    /// The other requests that are not done: `request_id`, `reason` and the reason in words.
    passed_over: Vec<PassedOverView>,
}

/// Where the queue is, what is next, and why the others are not.
#[utoipa::path(get, path = "/api/queue", operation_id = "show_queue", tag = "queue", responses(
    (status = OK, description = "The queue", body = Queue),
))]
pub(crate) async fn show(State(state): State<AppState>) -> Result<Json<Queue>, ApiError> {
    let (selection, auto) =
        state.blocking(|state| Ok((queue::selection(state.runs(), &[])?, auto_run(state)?))).await?;
    Ok(Json(Queue::of(&selection, auto.as_ref())))
}

/// The auto-run that goes on, if one does.
pub(crate) fn auto_run(state: &AppState) -> Result<Option<AutoRun>, Report> {
    if !queue::is_running(state.leases())? {
        return Ok(None);
    }
    Ok(state.runs().auto_run()?)
}

impl Queue {
    fn of(selection: &Selection, auto: Option<&AutoRun>) -> Self {
        Self {
            running: auto.is_some(),
            auto_run: auto.map(AutoRunView::new),
            next: selection.next.as_ref().map(ToString::to_string),
            passed_over: selection.passed_over.iter().map(PassedOverView::explained).collect(),
        }
    }
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
        (status = BAD_REQUEST, description = "It cannot be", body = ErrorView),
        (status = CONFLICT, description = "`QUEUE_IN_PROGRESS`: somebody else does", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn run_next(
    State(state): State<AppState>,
    Body(manner): Body<Manner>,
) -> Result<Response, ApiError> {
    let (turn, auto) = state
        .blocking(move |state| Ok((state.run_spawner().work_through(state, manner.auto)?, auto_run(state)?)))
        .await?;
    match turn {
        Turn::Begun(selection) => {
            Ok((StatusCode::ACCEPTED, Json(Queue::of(&selection, auto.as_ref()))).into_response())
        }
        Turn::Nothing(selection) => Ok(Json(Queue::of(&selection, None)).into_response()),
        Turn::Busy(busy) => Err(in_progress(&busy)),
    }
}

fn in_progress(busy: &QueueBusy) -> ApiError {
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

/// The answer to a request to stop.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stopping {
    /// Whether an auto-run was there to be asked.
    stopping: bool,
    /// What happened, for people.
    message: &'static str,
}

/// Asks the auto-run of the queue to stop after its current run.
#[utoipa::path(post, path = "/api/queue/stop", operation_id = "stop_queue", tag = "queue", request_body = End, responses(
    (status = ACCEPTED, description = "`stopping` says whether anybody was asked", body = Stopping),
    (status = BAD_REQUEST, description = "It cannot be", body = ErrorView),
    (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
    (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
    (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
))]
pub(crate) async fn stop(State(state): State<AppState>, Body(end): Body<End>) -> Result<Response, ApiError> {
    let stopping = state
        .blocking(move |state| {
            let stopping = queue::stop(state.runs(), state.leases())?;
            let current = auto_run(state)?.and_then(|auto| auto.current);
            if let Some(run) = current.filter(|_| end.now && stopping) {
                // It may have ended in the meantime, which is what was wanted.
                let _ = state.runs().cancel(&run, Some("the queue was stopped"));
            }
            Ok(stopping)
        })
        .await?;
    let message = if stopping { "the queue ends after the present run" } else { "no queue is running" };
    Ok((StatusCode::ACCEPTED, Json(Stopping { stopping, message })).into_response())
}
