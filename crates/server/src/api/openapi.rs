//! OpenAPI document of the API, generated from the code, and the message tables.

use std::sync::Arc;

use axum::extract::Extension;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use lockkeeper_engine::messages::{Language, source};
use serde_json::Value;
use utoipa::OpenApi;

use crate::state::AppState;

/// Title, description and tags of the document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lockkeeper",
        description = "Locks, claims on paths and runs for many automated workers in one repository. Errors have the same form \
            everywhere; `Accept-Language` or `?lang=` choose en, ja or zh. A POST with an `Idempotency-Key` happens once.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    tags(
        (name = "locks", description = "Leases and tickets: list, acquire, renew, release"),
        (name = "requests", description = "Requests: commands to be executed"),
        (name = "runs", description = "Runs: attempts at requests, their events and output"),
        (name = "queue", description = "The queue: requests executed one by one"),
        (name = "doctor", description = "Checks of the installation"),
        (name = "stages", description = "Phases of a STAGES file: executions and plans"),
        (name = "conflicts", description = "Whether patterns over paths overlap"),
        (name = "events", description = "Stream of server-sent events"),
        (name = "server", description = "The server itself"),
    )
)]
struct Outline;

pub(super) fn outline() -> utoipa::openapi::OpenApi {
    let mut outline = Outline::openapi();
    outline.info.version = env!("CARGO_PKG_VERSION").to_owned();
    outline
}

/// The OpenAPI document.
#[derive(Clone)]
pub(super) struct Document {
    json: Arc<Value>,
}

impl Document {
    pub(super) fn new(description: &utoipa::openapi::OpenApi) -> Self {
        let json = serde_json::to_value(description).expect("a document of strings can always be serialized");
        Self { json: Arc::new(json) }
    }

    /// The document as JSON.
    pub(super) fn json(&self) -> &Value {
        &self.json
    }

    pub(super) fn routes(self) -> Router<AppState> {
        let mut router = Router::new().route("/api/openapi.json", get(openapi)).layer(Extension(self));
        for language in Language::ALL {
            let path = format!("/api/messages.v1.{}.json", language.code());
            router = router.route(&path, get(move || std::future::ready(table(language))));
        }
        router
    }
}

async fn openapi(Extension(document): Extension<Document>) -> Json<Value> {
    Json(document.json().clone())
}

/// The message table of a language.
fn table(language: Language) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "max-age=3600")], source(language)).into_response()
}
