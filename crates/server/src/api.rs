//! Routes of the API, one module for each topic, and the middleware around all of them.

pub(super) mod agents;
mod bulk;
mod conflicts;
mod doctor;
mod events;
mod hosts;
mod lock_request;
mod locks;
pub(super) mod log;
mod openapi;
mod paging;
pub(super) mod queue;
mod request_start;
pub(super) mod requests;
pub(super) mod runs;
pub(super) mod stages;
#[cfg(feature = "http")]
mod store;

use std::net::SocketAddr;

use crate::json::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use lockkeeper_engine::report::{Exit, Report};
use serde::Serialize;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access_policy::{AccessPolicy, enforce};
use crate::error::{ApiError, localize};
use crate::idempotency::replay;
use crate::metrics;
use crate::page;
use crate::shutdown::Shutdown;
use crate::state::{AppState, timed_out};

/// The router of everything that is served at `address`.
pub(super) fn router(state: &AppState, address: SocketAddr, shutdown: &Shutdown) -> Router {
    let (router, description) = documented_routes(shutdown).split_for_parts();
    let document = openapi::Document::new(description);
    let timed = middleware::from_fn_with_state(state.clone(), limit_time);
    #[cfg(feature = "http")]
    let router = router.merge(store::routes(shutdown));
    router
        .merge(page::routes(page::ApiReference::new(document.json())))
        .merge(document.routes())
        .layer(middleware::from_fn_with_state(state.clone(), replay))
        .layer(timed)
        .layer(DefaultBodyLimit::max(state.limits().body_bytes))
        .layer(CatchPanicLayer::custom(panicked))
        .method_not_allowed_fallback(wrong_method)
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(AccessPolicy::new(state, address), enforce))
        .layer(middleware::from_fn_with_state(state.clone(), localize))
        // Event streams stay as they are: each event is sent at once.
        .layer(CompressionLayer::new())
        .layer(middleware::from_fn_with_state(state.clone(), metrics::measure))
        .with_state(state.clone())
}

/// The routes of the API with their OpenAPI descriptions.
fn documented_routes(shutdown: &Shutdown) -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::outline())
        .routes(routes!(locks::list, locks::acquire))
        .routes(routes!(locks::show, locks::release))
        .routes(routes!(locks::renew))
        .routes(routes!(agents::list))
        .routes(routes!(hosts::list))
        .routes(routes!(requests::list, requests::submit))
        .routes(routes!(requests::show, requests::replace))
        .routes(routes!(request_start::run))
        .routes(routes!(requests::answer))
        .routes(routes!(requests::set_priority))
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
        .routes(routes!(doctor::examine, doctor::repair))
        .routes(routes!(conflicts::check))
        .routes(routes!(stages::list))
        .routes(routes!(stages::show))
        .routes(routes!(stages::plan))
        .merge(events::routes(shutdown))
        .routes(routes!(health))
        .routes(routes!(metrics::metrics))
}

/// The state of the server.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`.
    status: &'static str,
    /// The version of the server.
    version: &'static str,
}

/// Health check.
#[utoipa::path(get, path = "/healthz", tag = "server", security(()), responses(
    (status = OK, description = "The server is running", body = Health)
))]
async fn health() -> Json<Health> {
    Json(Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// Middleware that ends requests after a timeout, for example when the body never arrives.
async fn limit_time(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api");
    let answered = tokio::time::timeout(state.limits().request_time, next.run(request)).await;
    let mut response = answered.unwrap_or_else(|_| timed_out().into_response());
    if is_api {
        // State changes all the time, so responses must not be cached.
        response.headers_mut().entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    response
}

async fn not_found() -> ApiError {
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
