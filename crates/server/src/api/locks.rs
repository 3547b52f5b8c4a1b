//! `/api/locks`: who holds, who waits, taking a lease, keeping it and giving it back.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use lockkeeper_core::alert::{Limits, raise};
use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::lease::{Grant, NotCurrent, Outcome, WaitTerms, Waiting};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::Blocker;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::super::connections::Peer;
use super::super::extract::{Body, Id, Params, Span};
use super::super::failure::{ErrorShape, Failure};
use super::super::site::Site;
use super::paging::{Paging, page};
use super::wish::{Wish, ttl};
use lockkeeper_engine::Engine;
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::shape::alert_to_json;
use lockkeeper_engine::shape::{self, LeaseShape, TicketShape};

/// Leases and tickets.
#[derive(Serialize, ToSchema)]
pub(crate) struct Locks {
    /// Who holds, oldest first.
    leases: Vec<LeaseShape>,
    /// Who waits, in the order in which they are served; all of them on the first page, none on later ones.
    waiters: Vec<TicketShape>,
    /// What needs attention: a code, its value and limit, a message and a hint.
    #[schema(value_type = Vec<Object>)]
    alerts: Vec<Value>,
    /// Where the next page of leases begins.
    next: Option<String>,
}

/// Who holds and who waits.
#[utoipa::path(get, path = "/api/locks", operation_id = "list_locks", tag = "locks", params(Paging), responses(
    (status = OK, description = "Leases and tickets", body = Locks),
    (status = BAD_REQUEST, description = "No such page", body = ErrorShape),
))]
pub(crate) async fn list(
    State(site): State<Site>,
    Params(paging): Params<Paging>,
) -> Result<Json<Locks>, Failure> {
    let (limit, after) = (paging.limit()?, paging.after()?);
    let (listing, counts) = site
        .consult(|site| {
            let listing = site.leases().listing()?;
            let counts = site.counts(&listing)?;
            Ok((listing, counts))
        })
        .await?;
    let mut holders = listing.holders;
    holders.sort_by_key(|holder| holder.lease.id);
    let (holders, next) = page(holders.into_iter(), |holder| holder.lease.id.0, after, limit);
    let waiters = listing.waiters.iter().filter(|_| after == 0).take(limit);
    Ok(Json(Locks {
        leases: holders.iter().map(|holder| LeaseShape::judged(holder, listing.now)).collect(),
        waiters: waiters.map(|waiter| TicketShape::listed(waiter, listing.now)).collect(),
        alerts: raise(&counts, &Limits::default()).iter().map(alert_to_json).collect(),
        next,
    }))
}

/// What became of a wish.
#[derive(Serialize, ToSchema)]
pub(crate) struct Answer {
    /// `acquired`, `waiting`, `renewed`, `released` or `breaking`.
    status: &'static str,
    /// The lease, if it is held or was.
    lease: Option<LeaseShape>,
    /// The place in line, while it waits.
    ticket: Option<TicketShape>,
    /// What happened, for people.
    message: String,
}

/// Takes a lease, or a place in line for it. Never waits itself: ask `renew` of the ticket until it is granted, or
/// listen to the events.
#[utoipa::path(post, path = "/api/locks", operation_id = "acquire_lock", tag = "locks", request_body = Wish,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request happen once")),
    responses(
        (status = CREATED, description = "It is held", body = Answer),
        (status = OK, description = "The owner held it already", body = Answer),
        (status = ACCEPTED, description = "It is in line", body = Answer),
        (status = BAD_REQUEST, description = "It cannot be", body = ErrorShape),
        (status = CONFLICT, description = "`LOCK_HELD`, `DEADLOCK`", body = ErrorShape),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorShape),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorShape),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorShape),
    )
)]
pub(crate) async fn acquire(
    State(site): State<Site>,
    Extension(peer): Extension<Peer>,
    Body(wish): Body<Wish>,
) -> Result<Response, Failure> {
    let request = wish.request(&site, peer)?;
    let (outcome, now) = site.ask(move |engine| Ok((engine.acquire(&request)?, engine.now()?))).await?;
    answer(&site, outcome, now)
}

/// One lease or ticket.
#[utoipa::path(get, path = "/api/locks/{id}", operation_id = "show_lock", tag = "locks",
    params(("id" = String, Path, description = "`L42` or `T42`")),
    responses(
        (status = OK, description = "The lease", body = Answer),
        (status = ACCEPTED, description = "The ticket, which waits", body = Answer),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorShape),
        (status = NOT_FOUND, description = "Neither held nor in line", body = ErrorShape),
    )
)]
pub(crate) async fn show(State(site): State<Site>, Id(id): Id) -> Result<Response, Failure> {
    let id: LeaseId = id.parse().map_err(Report::from)?;
    let listing = site.ask(|engine| Ok(engine.listing()?)).await?;
    if let Some(holder) = listing.holders.iter().find(|holder| holder.lease.id == id) {
        let lease = LeaseShape::judged(holder, listing.now);
        let message = format!("{id} is held by {}", lease.owner);
        return Ok(
            Json(Answer { status: "acquired", lease: Some(lease), ticket: None, message }).into_response()
        );
    }
    let waiter = listing.waiters.iter().find(|waiter| waiter.ticket.id == id);
    let waiter = waiter.ok_or_else(|| not_current(NotCurrent::Unknown(id)))?;
    let message = format!("waiting for {}", shape::reason(&waiter.blockers));
    let ticket = Some(TicketShape::listed(waiter, listing.now));
    Ok((StatusCode::ACCEPTED, Json(Answer { status: "waiting", lease: None, ticket, message }))
        .into_response())
}

/// What to renew, and how.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Renewal {
    /// Only if this token is current.
    token: Option<u64>,
    /// A new TTL.
    ttl: Option<Span>,
}

/// Says that the holder or waiter is still there. A ticket that was granted meanwhile becomes a lease.
#[utoipa::path(post, path = "/api/locks/{id}/renew", operation_id = "renew_lock", tag = "locks", request_body = Renewal,
    params(("id" = String, Path, description = "`L42` or `T42`")),
    responses(
        (status = OK, description = "It is held", body = Answer),
        (status = ACCEPTED, description = "It still waits", body = Answer),
        (status = BAD_REQUEST, description = "It cannot be", body = ErrorShape),
        (status = NOT_FOUND, description = "`NOT_CURRENT`: it is gone", body = ErrorShape),
        (status = CONFLICT, description = "`NOT_CURRENT`: another token is current, or its time was up", body = ErrorShape),
        (status = PAYLOAD_TOO_LARGE, description = "`BODY_TOO_LARGE`", body = ErrorShape),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "`UNSUPPORTED_MEDIA_TYPE`", body = ErrorShape),
        (status = UNPROCESSABLE_ENTITY, description = "`IDEMPOTENCY_MISMATCH`", body = ErrorShape),
    )
)]
pub(crate) async fn renew(
    State(site): State<Site>,
    Id(text): Id,
    Body(renewal): Body<Renewal>,
) -> Result<Response, Failure> {
    let id: LeaseId = text.parse().map_err(Report::from)?;
    let token = renewal.token.map(Token);
    let ttl = renewal.ttl.map(|span| ttl(&span)).transpose()?;
    if text.starts_with('T') {
        let terms = WaitTerms { waker: None, stays: site.settings().stays };
        let (outcome, now) = site
            .ask(move |engine| {
                let outcome = engine.check_ticket(id, Some(terms))?;
                Ok((outcome, engine.now()?))
            })
            .await?;
        return answer(&site, outcome, now);
    }
    let (renewed, now) = site.ask(move |engine| Ok((engine.renew(id, token, ttl)?, engine.now()?))).await?;
    let lease = renewed.map_err(not_current)?;
    let message = format!("{id} was renewed");
    let lease = Some(LeaseShape::of(&lease, now));
    Ok(Json(Answer { status: "renewed", lease, ticket: None, message }).into_response())
}

/// How to give a lease back.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Release {
    /// Only if this token is current.
    token: Option<u64>,
    /// Take it from its holder, who is told first and may stop its work.
    force: Option<bool>,
}

/// Gives a lease or a place in line back; with `force`, takes it from its holder.
#[utoipa::path(delete, path = "/api/locks/{id}", operation_id = "release_lock", tag = "locks",
    params(("id" = String, Path, description = "`L42` or `T42`"), Release),
    responses(
        (status = OK, description = "It is free", body = Answer),
        (status = ACCEPTED, description = "Its holder was told, and is given time to stop", body = Answer),
        (status = BAD_REQUEST, description = "Not an id", body = ErrorShape),
        (status = NOT_FOUND, description = "`NOT_CURRENT`: it is gone", body = ErrorShape),
        (status = CONFLICT, description = "`NOT_CURRENT`: another token is current", body = ErrorShape),
    )
)]
pub(crate) async fn release(
    State(site): State<Site>,
    Id(text): Id,
    Params(how): Params<Release>,
) -> Result<Response, Failure> {
    let id: LeaseId = text.parse().map_err(Report::from)?;
    if how.force == Some(true) {
        return force(&site, id).await;
    }
    let token = how.token.map(Token);
    let (lease, now) = site
        .ask(move |engine| Ok((if_in_line(engine, id)?, engine.now()?)))
        .await
        .map(|(left, now)| (left.then_some(()), now))?;
    if lease.is_some() {
        let message = format!("{} left the line", id.as_ticket());
        return Ok(Json(Answer { status: "released", lease: None, ticket: None, message }).into_response());
    }
    let released = site.ask(move |engine| Ok(engine.release(id, token)?)).await?;
    let lease = Some(LeaseShape::of(&released.map_err(not_current)?, now));
    let message = format!("{id} was released");
    Ok(Json(Answer { status: "released", lease, ticket: None, message }).into_response())
}

/// Gives up a place in line; false when there is none.
fn if_in_line(engine: &Engine, id: LeaseId) -> Result<bool, Report> {
    let listing = engine.listing()?;
    let Some(waiter) = listing.waiters.iter().find(|waiter| waiter.ticket.id == id) else { return Ok(false) };
    engine.give_up(&waiter.ticket)?;
    Ok(true)
}

/// Breaking a lease takes as long as its holder takes to stop, so that nobody waits for it here.
async fn force(site: &Site, id: LeaseId) -> Result<Response, Failure> {
    let (lease, now) = site.ask(move |engine| Ok((engine.lease(id)?, engine.now()?))).await?;
    let lease = lease.ok_or_else(|| not_current(NotCurrent::Unknown(id)))?;
    let grace = site.settings().grace;
    tracing::warn!(%id, owner = lease.claim.owner.as_str(), "a lease is broken by force");
    site.begin("break a lease", move |engine| Ok(engine.break_lease(id, grace).map(drop)?));
    let message = format!("{id} is taken from {}, who was told to stop", lease.claim.owner);
    let lease = Some(LeaseShape::of(&lease, now));
    Ok((StatusCode::ACCEPTED, Json(Answer { status: "breaking", lease, ticket: None, message }))
        .into_response())
}

fn answer(site: &Site, outcome: Outcome, now: Moment) -> Result<Response, Failure> {
    match outcome {
        Outcome::Granted(grant) => Ok(granted(&grant, now)),
        Outcome::Waiting(waiting) => Ok(in_line(site, &waiting, now)),
        Outcome::Held(blockers) => {
            spur(site, &blockers);
            Err(held(&blockers, now))
        }
        Outcome::Deadlock(links) => Err(shape::deadlock(&links).into()),
        Outcome::Gone => {
            let report = Report::new(Exit::Refused, "TICKET_REMOVED", "the ticket is not in line any more")
                .with_hint("it waited too long without its owner, or was cleaned up: ask again");
            Err(Failure::new(StatusCode::NOT_FOUND, report))
        }
    }
}

fn granted(grant: &Grant, now: Moment) -> Response {
    let lease = LeaseShape::of(&grant.lease, now);
    let (status, what) =
        if grant.joined { (StatusCode::OK, "already yours") } else { (StatusCode::CREATED, "acquired") };
    let message = format!("{what}: {} with token {}", lease.id, lease.token);
    let location = [(LOCATION, format!("/api/locks/{}", lease.id))];
    let answer = Answer { status: "acquired", lease: Some(lease), ticket: None, message };
    (status, location, Json(answer)).into_response()
}

fn in_line(site: &Site, waiting: &Waiting, now: Moment) -> Response {
    spur(site, &waiting.blockers);
    let ahead: usize = waiting.blockers.iter().map(|blocker| blocker.tickets.len()).max().unwrap_or(0);
    let ticket = TicketShape::of(&waiting.ticket, &waiting.blockers, ahead + 1, now);
    let message = format!("waiting for {}", shape::reason(&waiting.blockers));
    let location = [(LOCATION, format!("/api/locks/{}", waiting.ticket.id.as_ticket()))];
    let answer = Answer { status: "waiting", lease: None, ticket: Some(ticket), message };
    (StatusCode::ACCEPTED, location, Json(answer)).into_response()
}

/// Holders whose time is up and who agreed to be stopped are, since somebody else wants what they have.
fn spur(site: &Site, blockers: &[Blocker]) {
    let leases = blockers.iter().flat_map(|blocker| &blocker.leases).map(|found| found.record.clone());
    let agreed: Vec<_> = leases.filter(|lease| lease.claim.contract == Contract::Kill).collect();
    if agreed.is_empty() {
        return;
    }
    let grace = site.settings().grace;
    site.begin("stop an overdue holder", move |engine| {
        for lease in &agreed {
            engine.stop_if_overdue(lease, grace)?;
        }
        Ok(())
    });
}

pub(super) fn held(blockers: &[Blocker], now: Moment) -> Failure {
    let leases = blockers.iter().flat_map(|blocker| &blocker.leases);
    let holders: Vec<LeaseShape> = leases.clone().map(|found| LeaseShape::of(&found.record, now)).collect();
    let witness = leases.map(|found| found.witness.clone()).next();
    let holders = serde_json::to_value(holders).expect("texts and numbers can always be written");
    Report::new(Exit::Refused, "LOCK_HELD", format!("refused: {}", shape::reason(blockers)))
        .with_hint("ask again with `\"wait\": true` to get a place in line")
        .with_context("holders", holders)
        .with_context("witness", witness)
        .into()
}

/// What is not there is not found; what another token is current for is a conflict.
fn not_current(error: NotCurrent) -> Failure {
    let status = match error {
        NotCurrent::Unknown(_) => StatusCode::NOT_FOUND,
        NotCurrent::Token { .. } | NotCurrent::Expired(_) | NotCurrent::Revoked(_) => StatusCode::CONFLICT,
    };
    Failure::new(status, error.into())
}
