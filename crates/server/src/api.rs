//! The addresses of the API, by what they are about, and what stands around all of them.

mod bulk;
mod conflicts;
mod doctor;
mod events;
mod lock_request;
mod locks;
pub(super) mod log;
mod openapi;
mod paging;
pub(super) mod queue;
pub(super) mod requests;
pub(super) mod runs;
pub(super) mod stages;

use std::net::SocketAddr;

use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access_policy::{AccessPolicy, enforce};
use super::error::{ApiError, localize};
use super::idempotency::replay;
use super::metrics;
use super::page;
use super::shutdown::Shutdown;
use super::state::{AppState, too_slow};
use lockkeeper_engine::report::{Exit, Report};

/// Everything that is served at `address`.
pub(super) fn router(state: &AppState, address: SocketAddr, shutdown: &Shutdown) -> Router {
    let (router, description) = described(shutdown).split_for_parts();
    let description = openapi::Description::new(&description);
    let timed = middleware::from_fn_with_state(state.clone(), in_time);
    router
        .merge(page::routes(page::ApiReference::new(description.document())))
        .merge(description.routes())
        .layer(middleware::from_fn_with_state(state.clone(), replay))
        .layer(timed)
        .layer(DefaultBodyLimit::max(state.limits().body_bytes))
        .layer(CatchPanicLayer::custom(panicked))
        .method_not_allowed_fallback(wrong_method)
        .fallback(nowhere)
        .layer(middleware::from_fn_with_state(AccessPolicy::new(state, address), enforce))
        .layer(middleware::from_fn_with_state(state.clone(), localize))
        .layer(middleware::from_fn_with_state(state.clone(), metrics::measure))
        .with_state(state.clone())
}

/// The addresses together with their descriptions.
fn described(shutdown: &Shutdown) -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::outline())
        .routes(routes!(locks::list, locks::acquire))
        .routes(routes!(locks::show, locks::release))
        .routes(routes!(locks::renew))
        .routes(routes!(requests::list, requests::submit))
        .routes(routes!(requests::show))
        .routes(routes!(requests::run))
        .routes(routes!(runs::list))
        .routes(routes!(bulk::cancel))
        .routes(routes!(bulk::retry))
        .routes(routes!(runs::show))
        .merge(log::routes(shutdown))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::transition))
        .routes(routes!(runs::retry))
        .routes(routes!(queue::show))
        .routes(routes!(queue::run_next))
        .routes(routes!(queue::stop))
        .routes(routes!(doctor::examine))
        .routes(routes!(conflicts::check))
        .routes(routes!(stages::list))
        .routes(routes!(stages::show))
        .routes(routes!(stages::plan))
        .merge(events::routes(shutdown))
        .routes(routes!(health))
        .routes(routes!(metrics::metrics))
}

/// Whether the server lives.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
    /// The version of the server.
    version: &'static str,
}

/// Whether the server lives.
#[utoipa::path(get, path = "/healthz", tag = "server", security(()), responses(
    (status = OK, description = "It lives", body = Health)
))]
async fn health() -> Json<Health> {
    Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// Ends a request that takes too long, as one does whose body never comes.
async fn in_time(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api");
    let answered = tokio::time::timeout(state.limits().request_time, next.run(request)).await;
    let mut response = answered.unwrap_or_else(|_| too_slow().into_response());
    if is_api {
        // The state of a moment is worth nothing in a cache.
        response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    response
}

async fn nowhere() -> ApiError {
    ApiError::not_found("such address")
}

async fn wrong_method() -> ApiError {
    let report = Report::new(Exit::Usage, "METHOD_NOT_ALLOWED", "this address does not know that method")
        .with_hint("/api lists the methods of every address");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, report)
}

fn panicked(_panic: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::internal("the server stumbled over this request").into_response()
}
