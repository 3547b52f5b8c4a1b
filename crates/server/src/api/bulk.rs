//! `/api/runs/cancel` and `/api/runs/retry`: what is done to every request that matches.
//!
//! One call changes so many and says where to go on, as lists do: no call takes long, however many match, and nothing is
//! under way that a restart would forget.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::runs::checked_reason;
use crate::error::{ApiError, ErrorView};
use crate::extract::Body;
use crate::state::AppState;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::RequestFilter;
use lockkeeper_engine::runs::bulk::{Bulk, Done, Forecast};
use lockkeeper_engine::views::{ChangedView, RefusedView};

/// One call changes so many unless asked otherwise.
const USUAL: usize = 1_000;
/// It changes no more than this.
const MOST: usize = 10_000;
/// So many of each kind are named in an answer; all are counted.
const NAMED: usize = 100;

/// Which requests, and how.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Matching {
    /// Only those in these states: `QUEUED`, `RUNNING`, `DONE`, `NEEDS_INPUT`, `FAILED`, `CANCELED`.
    request_status: Vec<String>,
    /// Only those whose latest run is in one of these states: `queued`, `running`, `cancelling`, `succeeded`,
    /// `failed`, `canceled`, `timedOut`, `rejected`.
    status: Vec<String>,
    /// Only those with this text in their title or id.
    text: Option<String>,
    /// Only those that this worker executes.
    worker: Option<String>,
    /// Only these.
    requests: Vec<String>,
    /// Every request is meant; without it, something above has to say which are.
    all: bool,
    /// Only say how many there are.
    dry_run: bool,
    /// Leave alone what came after this request, as `newest` of a dry run said.
    newest: Option<String>,
    /// Go on after this one, as `next` of the call before said.
    after: Option<String>,
    /// How many at the most, from 1 to 10000; 1000 if not said.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Why they are called off, in words.
    reason: Option<String>,
}

impl Matching {
    fn filter(&self) -> Result<RequestFilter, Report> {
        let limit = self.limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Report::usage(format!("one call cannot change {limit} requests"))
                .with_hint(format!("ask for 1 to {MOST} with `limit`, and go on with `after`")));
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

/// What was done, or would be.
#[derive(Serialize, ToSchema)]
pub(crate) struct Answer {
    /// How many requests matched, from `after` on.
    matched: u64,
    /// How many were changed by this call, or would be by all calls.
    moved: u64,
    /// How many were left as they are.
    refused: u64,
    /// The first of those that were changed: `request_id`, `run_id`, `status`.
    runs: Vec<ChangedView>,
    /// The first of those that were not: `request_id`, `reason_code`, `message`.
    refusals: Vec<RefusedView>,
    /// The latest request that is meant.
    newest: Option<String>,
    /// There are more: where the next call begins.
    next: Option<String>,
    /// Whether nothing was changed.
    dry_run: bool,
    /// What happened, for people.
    message: String,
}

/// Calls off the latest run of every request that matches; whoever executes one ends its command first.
#[utoipa::path(post, path = "/api/runs/cancel", operation_id = "cancel_matching", tag = "runs", request_body = Matching,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request happen once")),
    responses(
        (status = ACCEPTED, description = "They are canceled, or about to be", body = Answer),
        (status = OK, description = "What would be done", body = Answer),
        (status = BAD_REQUEST, description = "It does not say which, or not in words that are known", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn cancel(
    State(state): State<AppState>,
    Body(mut matching): Body<Matching>,
) -> Result<Response, ApiError> {
    let reason = checked_reason(matching.reason.take())?;
    act(&state, &matching, Bulk::Cancel { reason }).await
}

/// Queues a new run of every request that matches and whose last one has ended.
#[utoipa::path(post, path = "/api/runs/retry", operation_id = "retry_matching", tag = "runs", request_body = Matching,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request happen once")),
    responses(
        (status = ACCEPTED, description = "New runs are queued", body = Answer),
        (status = OK, description = "What would be done", body = Answer),
        (status = BAD_REQUEST, description = "It does not say which, or not in words that are known", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn retry(
    State(state): State<AppState>,
    Body(matching): Body<Matching>,
) -> Result<Response, ApiError> {
    if matching.reason.is_some() {
        return Err(Report::usage("a retry has no reason").with_hint("leave `reason` out").into());
    }
    act(&state, &matching, Bulk::Retry).await
}

async fn act(state: &AppState, matching: &Matching, bulk: Bulk) -> Result<Response, ApiError> {
    let (filter, dry_run) = (matching.filter()?, matching.dry_run);
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
    Ok((status, Json(Answer::new(&forecast, done))).into_response())
}

impl Answer {
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
            runs: done.moved.iter().take(NAMED).map(ChangedView::new).collect(),
            refusals: done.refused.into_iter().take(NAMED).map(RefusedView::with_code).collect(),
            newest: forecast.newest.as_ref().map(ToString::to_string),
            next: done.next.map(|next| next.to_string()),
            dry_run,
            message: format!("{moved} {would}changed, {refused} {would}left as they are"),
        }
    }
}
