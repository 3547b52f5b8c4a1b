//! `/api/locks`: lists, acquires, renews and releases leases.

use crate::json::Json;
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::alert::{Limits, raise};
use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::lease::{Caller, Grant, NotCurrent, Outcome, WaitTerms, Waiting};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::Ticket;
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::Blocker;
use lockkeeper_engine::Ended;
use lockkeeper_engine::foreign_locks::{ForeignLock, ForeignWaiter};
use lockkeeper_engine::report::{self, Exit, Report};
use lockkeeper_engine::views::{AlertView, LeaseView, TicketView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::lock_request::{LockRequest, ttl};
use super::paging::{Paging, page};
use crate::connections::Peer;
use crate::error::{ApiError, ErrorView};
use crate::extract::{Body, Id, Params, Span};
use crate::state::AppState;

/// Leases and tickets.
#[derive(Serialize, ToSchema)]
pub(crate) struct Locks {
    /// The leases, the oldest first.
    leases: Vec<LeaseView>,
    /// The tickets, in the order in which they are served. They are on the first page only.
    waiters: Vec<TicketView>,
    /// Counts that are above their limits.
    alerts: Vec<AlertView>,
    /// The `after` of the next page of leases; null on the last page.
    next: Option<String>,
    /// The locks of other formats: sprint, swarm, group and aiflow. They are on the first page only.
    foreign: Vec<ForeignLock>,
    /// The processes that wait for locks of other formats. They are on the first page only.
    foreign_waiters: Vec<ForeignWaiter>,
}

/// Lists leases and tickets.
#[utoipa::path(get, path = "/api/locks", operation_id = "list_locks", tag = "locks", params(Paging), responses(
    (status = OK, description = "Leases and tickets", body = Locks),
    (status = BAD_REQUEST, description = "No such page", body = ErrorView),
))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Params(paging): Params<Paging>,
) -> Result<Json<Locks>, ApiError> {
    let (limit, after) = (paging.limit()?, paging.after()?);
    let (listing, foreign, counts) = state
        .blocking(|state| {
            let (listing, foreign) = (state.leases().listing()?, state.foreign_locks());
            let counts = state.counts(&listing, &foreign)?;
            Ok((listing, foreign, counts))
        })
        .await?;
    let mut holders = listing.holders;
    holders.sort_by_key(|holder| holder.lease.id);
    let (holders, next) = page(holders.into_iter(), |holder| holder.lease.id.0, after, limit);
    let waiters = listing.waiters.iter().filter(|_| after == 0).take(limit);
    Ok(Json(Locks {
        leases: holders.iter().map(|holder| LeaseView::with_state(holder, listing.now)).collect(),
        waiters: waiters.map(|waiter| TicketView::listed(waiter, listing.now)).collect(),
        alerts: raise(&counts, &Limits::default()).iter().map(AlertView::new).collect(),
        next,
        foreign: foreign.locks.into_iter().filter(|_| after == 0).collect(),
        foreign_waiters: foreign.waiters.into_iter().filter(|_| after == 0).collect(),
    }))
}

/// The result of a call about a lease or ticket.
#[derive(Serialize, ToSchema)]
pub(crate) struct LockResponse {
    /// `acquired`, `waiting`, `renewed`, `released` or `breaking`.
    status: &'static str,
    /// The lease, as it is or was.
    lease: Option<LeaseView>,
    /// The ticket, while it waits.
    ticket: Option<TicketView>,
    /// What happened, as a sentence.
    message: String,
}

/// Acquires a lease, or a ticket for it. The call never waits: renew the ticket until it is granted, or use the events.
#[utoipa::path(post, path = "/api/locks", operation_id = "acquire_lock", tag = "locks", request_body = LockRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the response of the first")),
    responses(
        (status = CREATED, description = "The lease is held", body = LockResponse),
        (status = OK, description = "The owner holds it already", body = LockResponse),
        (status = ACCEPTED, description = "It waits in line", body = LockResponse),
        (status = BAD_REQUEST, description = "The body is invalid", body = ErrorView),
        (status = CONFLICT, description = "`LOCK_HELD`, `DEADLOCK`", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn acquire(
    State(state): State<AppState>,
    Extension(peer): Extension<Peer>,
    Body(request): Body<LockRequest>,
) -> Result<Response, ApiError> {
    let request = request.into_request(&state, peer)?;
    let (outcome, now) =
        state.with_leases(move |engine| Ok((engine.acquire(&request)?, engine.now()?))).await?;
    outcome_response(&state, outcome, now)
}

/// Shows a lease or ticket.
#[utoipa::path(get, path = "/api/locks/{id}", operation_id = "show_lock", tag = "locks",
    params(("id" = String, Path, description = "`L42` or `T42`")),
    responses(
        (status = OK, description = "The lease", body = LockResponse),
        (status = ACCEPTED, description = "The ticket, while it waits", body = LockResponse),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "There is no such lease or ticket", body = ErrorView),
    )
)]
pub(crate) async fn show(State(state): State<AppState>, Id(id): Id) -> Result<Response, ApiError> {
    let id: LeaseId = id.parse().map_err(Report::from)?;
    let listing = state.with_leases(|engine| Ok(engine.listing()?)).await?;
    if let Some(holder) = listing.holders.iter().find(|holder| holder.lease.id == id) {
        let lease = LeaseView::with_state(holder, listing.now);
        let message = format!("{id} is held by {}", lease.owner);
        return Ok(Json(LockResponse { status: "acquired", lease: Some(lease), ticket: None, message })
            .into_response());
    }
    let waiter = listing.waiters.iter().find(|waiter| waiter.ticket.id == id);
    let waiter = waiter.ok_or_else(|| not_current(NotCurrent::Unknown(id)))?;
    let message = format!("waiting for {}", report::reason(&waiter.blockers));
    let ticket = Some(TicketView::listed(waiter, listing.now));
    Ok((StatusCode::ACCEPTED, Json(LockResponse { status: "waiting", lease: None, ticket, message }))
        .into_response())
}

/// Options of a renewal.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(example = json!({ "token": 42, "ttl": "5m" }))]
pub(crate) struct Renewal {
    /// Renew or release only if this token is current.
    token: Option<u64>,
    /// The owner of the lease. Only the owner, or a caller that names the token, may shorten the TTL.
    owner: Option<String>,
    /// A new TTL.
    ttl: Option<Span>,
}

/// Renews a lease or a ticket. When the ticket was granted in the meantime, the lease is returned.
#[utoipa::path(post, path = "/api/locks/{id}/renew", operation_id = "renew_lock", tag = "locks", request_body = Renewal,
    params(("id" = String, Path, description = "`L42` or `T42`")),
    responses(
        (status = OK, description = "The lease is held", body = LockResponse),
        (status = ACCEPTED, description = "It still waits", body = LockResponse),
        (status = BAD_REQUEST, description = "The body is invalid", body = ErrorView),
        (status = NOT_FOUND, description = "`NOT_CURRENT`: it no longer exists", body = ErrorView),
        (status = CONFLICT, description = "`NOT_CURRENT`: another token is current, or the TTL has ended", body = ErrorView),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorView),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorView),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorView),
    )
)]
pub(crate) async fn renew(
    State(state): State<AppState>,
    Id(text): Id,
    Body(renewal): Body<Renewal>,
) -> Result<Response, ApiError> {
    let id: LeaseId = text.parse().map_err(Report::from)?;
    let caller = caller(renewal.token, renewal.owner.as_deref())?;
    let ttl = renewal.ttl.map(|span| ttl(&span)).transpose()?;
    if text.starts_with('T') {
        let terms = WaitTerms { waker: None, stays: state.settings().stays };
        let (outcome, now) = state
            .with_leases(move |engine| {
                let outcome = engine.check_ticket(id, Some(terms))?;
                Ok((outcome, engine.now()?))
            })
            .await?;
        return outcome_response(&state, outcome, now);
    }
    let (renewed, now) =
        state.with_leases(move |engine| Ok((engine.renew(id, caller, ttl)?, engine.now()?))).await?;
    let lease = renewed.map_err(not_current)?;
    let message = format!("{id} was renewed");
    let lease = Some(LeaseView::new(&lease, now));
    Ok(Json(LockResponse { status: "renewed", lease, ticket: None, message }).into_response())
}

/// Options of a release.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Release {
    /// Renew or release only if this token is current.
    token: Option<u64>,
    /// The owner of the lease or ticket. A release names the owner or the token; a ticket has no token.
    owner: Option<String>,
    /// Break it: the holder is notified and gets time to stop its work, then the lease is removed. A ticket leaves the line at once.
    force: Option<bool>,
}

/// Releases a lease or ticket of its owner, or a lease with its token; with `force`, breaks that of another owner.
#[utoipa::path(delete, path = "/api/locks/{id}", operation_id = "release_lock", tag = "locks",
    params(("id" = String, Path, description = "`L42` or `T42`"), Release),
    responses(
        (status = OK, description = "It is released", body = LockResponse),
        (status = ACCEPTED, description = "The holder was notified, and gets time to stop", body = LockResponse),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorView),
        (status = NOT_FOUND, description = "`NOT_CURRENT`: it no longer exists", body = ErrorView),
        (status = CONFLICT, description = "`NOT_CURRENT`: another token is current. `NOT_THE_OWNER`: neither its owner nor its token was named", body = ErrorView),
    )
)]
pub(crate) async fn release(
    State(state): State<AppState>,
    Id(text): Id,
    Params(how): Params<Release>,
) -> Result<Response, ApiError> {
    let id: LeaseId = text.parse().map_err(Report::from)?;
    if how.force == Some(true) {
        let removed = state.with_leases(move |engine| Ok(engine.remove_ticket(id)?)).await?;
        return match removed {
            Some(ticket) => Ok(left_the_line(&ticket)),
            None => break_lease(&state, id).await,
        };
    }
    let caller = caller(how.token, how.owner.as_deref())?;
    let (ended, now) =
        state.with_leases(move |engine| Ok((engine.begin_end_of_any(id, &caller)?, engine.now()?))).await?;
    let (lease, stays) = match ended.map_err(not_current)? {
        Ended::Ticket(ticket) => return Ok(left_the_line(&ticket)),
        Ended::Lease(lease, stays) => (lease, stays),
    };
    let view = Some(LeaseView::new(&lease, now));
    if stays {
        let message = format!("{id} ends when its holder has stopped its work");
        let answer = LockResponse { status: "breaking", lease: view, ticket: None, message };
        return Ok((StatusCode::ACCEPTED, Json(answer)).into_response());
    }
    let lease = view;
    let message = format!("{id} was released");
    Ok(Json(LockResponse { status: "released", lease, ticket: None, message }).into_response())
}

/// The caller over HTTP: a program that names a token or an owner. Its processes are not known.
fn caller(token: Option<u64>, owner: Option<&str>) -> Result<Caller, Report> {
    let owner = owner.map(str::parse).transpose()?;
    Ok(Caller { token: token.map(Token), owner, processes: None })
}

fn left_the_line(ticket: &Ticket) -> Response {
    let message = format!("{} left the line", ticket.id.as_ticket());
    Json(LockResponse { status: "released", lease: None, ticket: None, message }).into_response()
}

/// Breaks a lease in the background: it takes as long as the holder takes to stop.
async fn break_lease(state: &AppState, id: LeaseId) -> Result<Response, ApiError> {
    let (lease, now) = state.with_leases(move |engine| Ok((engine.lease(id)?, engine.now()?))).await?;
    let lease = lease.ok_or_else(|| not_current(NotCurrent::Unknown(id)))?;
    let grace = state.settings().grace;
    tracing::warn!(%id, owner = lease.claim.owner.as_str(), "a lease is broken by force");
    state.in_background("break a lease", move |engine| Ok(engine.break_lease(id, grace).map(drop)?));
    let message = format!("{id} is taken from {}, who was told to stop", lease.claim.owner);
    let lease = Some(LeaseView::new(&lease, now));
    Ok((StatusCode::ACCEPTED, Json(LockResponse { status: "breaking", lease, ticket: None, message }))
        .into_response())
}

fn outcome_response(state: &AppState, outcome: Outcome, now: Moment) -> Result<Response, ApiError> {
    match outcome {
        Outcome::Granted(grant) => Ok(granted_response(&grant, now)),
        Outcome::Waiting(waiting) => Ok(waiting_response(state, &waiting, now)),
        Outcome::Held(blockers) => {
            stop_overdue_holders(state, &blockers);
            Err(held(&blockers, now).into())
        }
        Outcome::Deadlock(links) => Err(report::deadlock(&links).into()),
        Outcome::Gone => {
            let report = Report::new(Exit::Refused, "TICKET_REMOVED", "the ticket is not in line any more")
                .with_hint("it waited too long without its owner, or was cleaned up: ask again");
            Err(ApiError::new(StatusCode::NOT_FOUND, report))
        }
    }
}

fn granted_response(grant: &Grant, now: Moment) -> Response {
    let lease = LeaseView::new(&grant.lease, now);
    let (status, what) =
        if grant.joined { (StatusCode::OK, "already yours") } else { (StatusCode::CREATED, "acquired") };
    let message = format!("{what}: {} with token {}", lease.id, lease.token);
    let location = [(LOCATION, format!("/api/locks/{}", lease.id))];
    let body = LockResponse { status: "acquired", lease: Some(lease), ticket: None, message };
    (status, location, Json(body)).into_response()
}

fn waiting_response(state: &AppState, waiting: &Waiting, now: Moment) -> Response {
    stop_overdue_holders(state, &waiting.blockers);
    let ahead: usize = waiting.blockers.iter().map(|blocker| blocker.tickets.len()).max().unwrap_or(0);
    let ticket = TicketView::new(&waiting.ticket, &waiting.blockers, ahead + 1, now);
    let message = format!("waiting for {}", report::reason(&waiting.blockers));
    let location = [(LOCATION, format!("/api/locks/{}", waiting.ticket.id.as_ticket()))];
    let body = LockResponse { status: "waiting", lease: None, ticket: Some(ticket), message };
    (StatusCode::ACCEPTED, location, Json(body)).into_response()
}

/// Stops overdue holders with the contract `kill` in the background, because another owner wants their resources.
fn stop_overdue_holders(state: &AppState, blockers: &[Blocker]) {
    let leases = blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| found.record.clone());
    let agreed: Vec<_> = leases.filter(|lease| lease.claim.contract == Contract::Kill).collect();
    if agreed.is_empty() {
        return;
    }
    let grace = state.settings().grace;
    state.in_background("stop an overdue holder", move |engine| {
        for lease in &agreed {
            engine.stop_if_overdue(lease, grace)?;
        }
        Ok(())
    });
}

/// Reports that others hold it.
pub(super) fn held(blockers: &[Blocker], now: Moment) -> Report {
    let leases = blockers.iter().flat_map(|blocker| &blocker.leases);
    let holders: Vec<LeaseView> = leases.clone().map(|found| LeaseView::new(&found.record, now)).collect();
    let witness = leases.map(|found| found.witness.clone()).next();
    let holders = serde_json::to_value(holders).expect("texts and numbers can always be written");
    Report::new(Exit::Refused, "LOCK_HELD", format!("refused: {}", report::reason(blockers)))
        .with_hint("ask again with `\"wait\": true` to get a place in line")
        .with_context("holders", holders)
        .with_context("witness", witness)
}

/// 404 for an unknown lease, 409 when another token is current.
fn not_current(error: NotCurrent) -> ApiError {
    let status = match error {
        NotCurrent::Unknown(_) | NotCurrent::NotInLine(_) => StatusCode::NOT_FOUND,
        NotCurrent::Token { .. }
        | NotCurrent::Expired(_)
        | NotCurrent::Revoked(_)
        | NotCurrent::SessionTaken(_)
        | NotCurrent::SessionLapsed(_)
        | NotCurrent::NotTheOwner { .. }
        | NotCurrent::NotTheWaiter { .. } => StatusCode::CONFLICT,
    };
    ApiError::new(status, error.into())
}
