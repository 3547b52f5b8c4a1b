//! `/api/queue`: shows, starts and stops the execution of the queue.

use crate::json::Json;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::queue::Selection;
use lockkeeper_engine::queue::{self, QueueBusy};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::runs::AutoRun;
use lockkeeper_engine::views::{AutoRunView, PassedOverView, QueueStopView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorView, RequestLanguage};
use crate::extract::Body;
use crate::run_spawner::QueueStart;
use crate::state::AppState;

/// The queue.
#[derive(Serialize, ToSchema)]
pub(crate) struct Queue {
    /// Whether a worker, or another program that holds the lock file of the queue, executes it.
    running: bool,
    /// The run or process of another program that holds the lock file of the queue; null if none does.
    held_by: Option<String>,
    /// The auto-run; null when none is running.
    auto_run: Option<AutoRunView>,
    /// The next request; null when none is ready.
    next: Option<String>,
    /// The other open requests, each with the reason why it is not next.
    passed_over: Vec<PassedOverView>,
    /// Why the queue stopped the last time; null while it is executed, and before the first time.
    last_stop: Option<QueueStopView>,
}

/// Shows the auto-run, the next request, and why the others are not next.
#[utoipa::path(get, path = "/api/queue", operation_id = "show_queue", tag = "queue", responses(
    (status = OK, description = "The queue", body = Queue),
))]
pub(crate) async fn show(
    State(state): State<AppState>,
    Extension(RequestLanguage(language)): Extension<RequestLanguage>,
) -> Result<Json<Queue>, ApiError> {
    let (selection, (auto, stop), file_holder) = state
        .blocking(|state| {
            let settings = &state.settings().execution;
            let selection = queue::forecast(state.runs(), state.leases(), settings)?;
            let queue = queue::state(state.runs(), state.leases())?;
            Ok((selection, queue, queue::lock_file_holder(state.runs(), settings)))
        })
        .await?;
    let last_stop = stop.map(|stop| QueueStopView::new(&stop, language, state.messages()));
    let queue = Queue { last_stop, ..Queue::of(&selection, auto.as_ref()) };
    // An auto-run that has not begun its first run holds the file itself.
    Ok(Json(match file_holder.filter(|_| auto.is_none()) {
        Some(holder) => Queue { running: true, held_by: Some(holder), next: None, last_stop: None, ..queue },
        None => queue,
    }))
}

/// The auto-run that is running; none when the lock of the queue is free.
pub(crate) fn auto_run(state: &AppState) -> Result<Option<AutoRun>, Report> {
    Ok(queue::state(state.runs(), state.leases())?.0)
}

impl Queue {
    fn of(selection: &Selection, auto: Option<&AutoRun>) -> Self {
        Self {
            running: auto.is_some(),
            held_by: None,
            auto_run: auto.map(AutoRunView::new),
            next: selection.next.as_ref().map(ToString::to_string),
            passed_over: selection.passed_over.iter().map(PassedOverView::explained).collect(),
            last_stop: None,
        }
    }
}

/// Options of the execution.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({ "auto": false }))]
pub(crate) struct RunQueueRequest {
    /// Continue until a request fails or needs input, or none is left.
    auto: bool,
}

/// Executes the next request; with `auto`, one request after the other.
#[utoipa::path(post, path = "/api/queue/run-next", operation_id = "run_next", tag = "queue", request_body = RunQueueRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the response of the first")),
    responses(
        (status = ACCEPTED, description = "The queue is executed", body = Queue),
        (status = OK, description = "No request is ready", body = Queue),
        (status = BAD_REQUEST, description = "The body is invalid", body = ErrorView),
        (status = CONFLICT, description = "`QUEUE_IN_PROGRESS`: another worker executes the queue. `DOCTOR_FAILED`: without `auto`, a check of the doctor fails, which is in `context.check`", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn run_next(
    State(state): State<AppState>,
    Body(request): Body<RunQueueRequest>,
) -> Result<Response, ApiError> {
    let (start, auto) = state
        .blocking(move |state| Ok((state.run_spawner().run_queue(state, request.auto)?, auto_run(state)?)))
        .await?;
    match start {
        QueueStart::Started(selection) => {
            Ok((StatusCode::ACCEPTED, Json(Queue::of(&selection, auto.as_ref()))).into_response())
        }
        QueueStart::Empty(selection) => Ok(Json(Queue::of(&selection, None)).into_response()),
        QueueStart::Busy(busy) => Err(in_progress(&busy)),
        QueueStart::Unwell(check) => Err(Report::from(check).into()),
    }
}

fn in_progress(busy: &QueueBusy) -> ApiError {
    let report = Report::new(Exit::Refused, "QUEUE_IN_PROGRESS", "somebody else works through the queue")
        .with_hint(match busy.is_foreign {
            true => "another program holds the lock file of the queue: wait until it has ended",
            false => "stop it with POST /api/queue/stop, or wait until it has ended",
        })
        .with_context("holder", busy.holder.as_str());
    match busy.current_run() {
        Some(run) => report.with_context("run_id", run).into(),
        None => report.into(),
    }
}

/// Options of the stop.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({ "now": false }))]
pub(crate) struct StopRequest {
    /// Cancel the current run, too.
    now: bool,
}

/// The answer to a request to stop.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stopping {
    /// Whether an auto-run was running.
    stopping: bool,
    /// What happened, as a sentence.
    message: &'static str,
}

/// Asks the auto-run of the queue to stop after its current run.
#[utoipa::path(post, path = "/api/queue/stop", operation_id = "stop_queue", tag = "queue", request_body = StopRequest, responses(
    (status = ACCEPTED, description = "`stopping` says whether an auto-run was running", body = Stopping),
    (status = BAD_REQUEST, description = "The body is invalid", body = ErrorView),
    (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
    (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
    (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
))]
pub(crate) async fn stop(
    State(state): State<AppState>,
    Body(request): Body<StopRequest>,
) -> Result<Response, ApiError> {
    let stopping = state
        .blocking(move |state| {
            let stopping = queue::stop(state.runs(), state.leases())?;
            let current = auto_run(state)?.and_then(|auto| auto.current);
            if let Some(run) = current.filter(|_| request.now && stopping) {
                // It fails when the run has just ended, which is fine.
                let _ = state.runs().cancel(&run, Some("the queue was stopped"));
            }
            Ok(stopping)
        })
        .await?;
    let message = if stopping { "the queue ends after the present run" } else { "no queue is running" };
    Ok((StatusCode::ACCEPTED, Json(Stopping { stopping, message })).into_response())
}
