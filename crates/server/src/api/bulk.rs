//! `/api/runs/cancel` and `/api/runs/retry`: bulk operations on all requests that match a filter.
//!
//! One call changes up to `limit` requests and returns where to continue, like a page of a list. So no call takes long, and
//! a restart of the server loses no work.

use crate::json::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RequestFilter;
use lockkeeper_engine::runs::bulk::{Bulk, Done, Forecast};
use lockkeeper_engine::views::{ChangedView, RefusedView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::runs::checked_reason;
use crate::error::{ApiError, ErrorView};
use crate::extract::Body;
use crate::state::AppState;

/// How many requests one call changes by default.
const DEFAULT_LIMIT: usize = 1_000;
/// How many requests one call changes at most.
const MAX_LIMIT: usize = 10_000;
/// How many changed and how many refused requests a response lists. All of them are counted.
const MAX_LISTED: usize = 100;

/// A filter for requests, and options.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({ "request_status": ["FAILED"], "dry_run": true }))]
pub(crate) struct BulkRequest {
    /// Only requests with one of these statuses: `QUEUED`, `RUNNING`, `DONE`, `NEEDS_INPUT`, `FAILED`, `CANCELED`.
    request_status: Vec<String>,
    /// Only requests whose latest run has one of these statuses: `queued`, `running`, `cancelling`, `succeeded`,
    /// `failed`, `canceled`, `timedOut`, `rejected`.
    status: Vec<String>,
    /// Only requests with this text in their title or id.
    text: Option<String>,
    /// Only requests that this worker executes.
    worker: Option<String>,
    /// Only requests with these ids.
    requests: Vec<String>,
    /// All requests. Without it, at least one of the filters above is required.
    all: bool,
    /// Only count; change nothing.
    dry_run: bool,
    /// Skip requests that are newer than this one: the `newest` of a dry run.
    newest: Option<String>,
    /// Continue after this request: the `next` of the previous call.
    after: Option<String>,
    /// The largest number of requests to change, from 1 to 10000; 1000 by default.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Why they are canceled. Only for cancel.
    reason: Option<String>,
}

impl BulkRequest {
    fn filter(&self) -> Result<RequestFilter, Report> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(Report::usage(format!("one call cannot change {limit} requests"))
                .with_hint(format!("ask for 1 to {MAX_LIMIT} with `limit`, and go on with `after`")));
        }
        let id = |text: &Option<String>| text.as_deref().map(str::parse).transpose();
        let filter = RequestFilter {
            statuses: parsed::<RequestStatus>(&self.request_status)?,
            run_statuses: parsed::<Status>(&self.status)?,
            text: self.text.clone().filter(|text| !text.is_empty()),
            worker: self.worker.as_deref().map(str::parse).transpose()?,
            ids: parsed(&self.requests)?,
            before: id(&self.after)?,
            newest: id(&self.newest)?,
            limit,
        };
        let says_which = RequestFilter { before: None, newest: None, ..filter.clone() }.is_selective();
        if says_which == self.all {
            let message =
                if self.all { "all are meant, and only some" } else { "nothing says which are meant" };
            return Err(Report::usage(message).with_hint(
                "say which with `request_status`, `status`, `text`, `worker` or `requests`; or `all`",
            ));
        }
        Ok(filter)
    }
}

fn parsed<T: std::str::FromStr>(words: &[String]) -> Result<Vec<T>, Report>
where
    Report: From<T::Err>,
{
    Ok(words.iter().map(|word| word.parse()).collect::<Result<Vec<T>, _>>()?)
}

/// The result of a bulk operation or of its dry run.
#[derive(Serialize, ToSchema)]
pub(crate) struct BulkResponse {
    /// How many requests match, from `after` on.
    matched: u64,
    /// How many this call changed; in a dry run, how many all calls would change.
    moved: u64,
    /// How many were not changed.
    refused: u64,
    /// The first changed requests.
    runs: Vec<ChangedView>,
    /// The first refused requests.
    refusals: Vec<RefusedView>,
    /// The newest request that matches.
    newest: Option<String>,
    /// Where the next call continues; null when nothing is left.
    next: Option<String>,
    /// Whether this was a dry run.
    dry_run: bool,
    /// What happened, as a sentence.
    message: String,
}

/// Cancels the latest run of every request that matches. A worker stops the command of a running one first.
#[utoipa::path(post, path = "/api/runs/cancel", operation_id = "cancel_matching", tag = "runs", request_body = BulkRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the response of the first")),
    responses(
        (status = ACCEPTED, description = "They are canceled, or will be", body = BulkResponse),
        (status = OK, description = "Dry run: what would change", body = BulkResponse),
        (status = BAD_REQUEST, description = "The filter is missing or invalid", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn cancel(
    State(state): State<AppState>,
    Body(mut request): Body<BulkRequest>,
) -> Result<Response, ApiError> {
    let reason = checked_reason(request.reason.take())?;
    act(&state, &request, Bulk::Cancel { reason }).await
}

/// Queues a new run of every request that matches and whose latest run has ended.
#[utoipa::path(post, path = "/api/runs/retry", operation_id = "retry_matching", tag = "runs", request_body = BulkRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the response of the first")),
    responses(
        (status = ACCEPTED, description = "New runs are queued", body = BulkResponse),
        (status = OK, description = "Dry run: what would change", body = BulkResponse),
        (status = BAD_REQUEST, description = "The filter is missing or invalid", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn retry(
    State(state): State<AppState>,
    Body(request): Body<BulkRequest>,
) -> Result<Response, ApiError> {
    if request.reason.is_some() {
        return Err(Report::usage("a retry has no reason").with_hint("leave `reason` out").into());
    }
    act(&state, &request, Bulk::Retry).await
}

async fn act(state: &AppState, request: &BulkRequest, bulk: Bulk) -> Result<Response, ApiError> {
    let (filter, dry_run) = (request.filter()?, request.dry_run);
    let (forecast, done) = state
        .blocking(move |state| {
            let forecast = state.runs().forecast(&bulk, &filter)?;
            let newest = filter.newest.clone().or_else(|| forecast.newest.clone());
            let filter = RequestFilter { newest, ..filter };
            let done = if dry_run { None } else { Some(state.runs().bulk(&bulk, &filter)?) };
            Ok((forecast, done))
        })
        .await?;
    let status = if dry_run { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(BulkResponse::new(&forecast, done))).into_response())
}

impl BulkResponse {
    fn new(forecast: &Forecast, done: Option<Done>) -> Self {
        let dry_run = done.is_none();
        let (moved, refused) = match &done {
            Some(done) => (done.moved.len() as u64, done.refused.len() as u64),
            None => (forecast.movable, forecast.matched - forecast.movable),
        };
        let done = done.unwrap_or_default();
        let would = if dry_run { "would be " } else { "" };
        Self {
            matched: forecast.matched,
            moved,
            refused,
            runs: done.moved.iter().take(MAX_LISTED).map(ChangedView::new).collect(),
            refusals: done.refused.into_iter().take(MAX_LISTED).map(RefusedView::with_code).collect(),
            newest: forecast.newest.as_ref().map(ToString::to_string),
            next: done.next.map(|next| next.to_string()),
            dry_run,
            message: format!("{moved} {would}changed, {refused} {would}left as they are"),
        }
    }
}
