//! The API's own description: OpenAPI, generated from the code.

use std::sync::Arc;

use axum::extract::Extension;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::Value;
use utoipa::OpenApi;

use crate::state::AppState;
use lockkeeper_engine::messages::{Language, source};

/// What the description begins with.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lockkeeper",
        description = "Locks, claims on paths and runs for many automated workers in one repository. Errors have one shape \
            everywhere; `Accept-Language` or `?lang=` choose en, ja or zh. A POST with an `Idempotency-Key` happens once.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    tags(
        (name = "locks", description = "Leases: who holds, who waits, taking and giving back"),
        (name = "requests", description = "What somebody wants done"),
        (name = "runs", description = "What was tried, and what came of it"),
        (name = "queue", description = "Working through the requests one by one"),
        (name = "doctor", description = "Whether all is well"),
        (name = "stages", description = "Phases of groups: what was executed, and what would be"),
        (name = "conflicts", description = "Whether patterns over paths overlap"),
        (name = "events", description = "What happens, as it happens"),
        (name = "server", description = "The server itself"),
    )
)]
struct Outline;

pub(super) fn outline() -> utoipa::openapi::OpenApi {
    let mut outline = Outline::openapi();
    outline.info.version = env!("CARGO_PKG_VERSION").to_owned();
    outline
}

/// The whole description.
#[derive(Clone)]
pub(super) struct Description {
    document: Arc<Value>,
}

impl Description {
    pub(super) fn new(description: &utoipa::openapi::OpenApi) -> Self {
        let document = serde_json::to_value(description).expect("a description made of texts can be written");
        Self { document: Arc::new(document) }
    }

    /// As JSON.
    pub(super) fn document(&self) -> &Value {
        &self.document
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

async fn openapi(Extension(description): Extension<Description>) -> Json<Value> {
    Json(description.document().clone())
}

/// The table of a language.
fn table(language: Language) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "max-age=3600")], source(language)).into_response()
}
