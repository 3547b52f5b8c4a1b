//! OpenAPI document of the API, generated from the code, and the message tables.

use std::sync::Arc;

use crate::json::Json;
use axum::Router;
use axum::extract::Extension;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lockkeeper_engine::messages::{Language, source};
use serde_json::{Map, Value};
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};

use crate::broadcast::Message;
use crate::state::AppState;

/// The name of the security scheme of programs.
const TOKEN: &str = "token";

/// Title, description and tags of the document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lockkeeper",
        description = "Locks, claims on paths and runs for many automated workers in one repository. Errors have the same form \
            everywhere; `Accept-Language` or `?lang=` choose en, ja or zh. A POST with an `Idempotency-Key` happens once.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    components(schemas(Message)),
    tags(
        (name = "locks", description = "Leases and tickets: list, acquire, renew, release"),
        (name = "agents", description = "Coding agents: what each works on, waits for and was denied"),
        (name = "requests", description = "Requests: commands to be executed"),
        (name = "runs", description = "Runs: attempts at requests, their events and output"),
        (name = "queue", description = "The queue: requests executed one by one"),
        (name = "hosts", description = "Machines that have workers"),
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
    let scheme = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some(
        "The token is in `server.token` in the state folder. The Unix socket of the server needs none, and neither does \
         a server that was started with `--no-token`.",
    ));
    let components = outline.components.get_or_insert_default();
    components.add_security_scheme(TOKEN, SecurityScheme::Http(scheme.build()));
    outline.security = Some(vec![SecurityRequirement::new(TOKEN, [""; 0])]);
    outline
}

/// Describes what the access policy answers: it stands before every call, so no call describes it itself.
fn describe_refusals(description: &mut utoipa::openapi::OpenApi) {
    for item in description.paths.paths.values_mut() {
        for (operation, changes) in operations(item) {
            let is_open = operation.security.is_some();
            if !is_open {
                let text = "`TOKEN_REQUIRED`: the token is missing or wrong, or the session has ended";
                refusal(operation, "401", text);
            }
            let text = if changes {
                "`FOREIGN_HOST`: the server does not have this name. `FOREIGN_ORIGIN`: a page of another origin sent it"
            } else {
                "`FOREIGN_HOST`: the server does not have this name"
            };
            refusal(operation, "403", text);
        }
    }
}

/// Removes the defaults of fields: all of them are empty, and generators take a field with a default for a required one.
fn remove_defaults(schema: &mut Value) {
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for field in fields.into_iter().flat_map(Map::values_mut) {
        field.as_object_mut().map(|field| field.shift_remove("default"));
    }
}

fn refusal(operation: &mut Operation, status: &str, description: &str) {
    let schema = Ref::from_schema_name("Error");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new().description(description).content("application/json", content);
    operation.responses.responses.insert(status.to_owned(), response.build().into());
}

/// The operations of a path, and whether each changes something.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&mut Operation, bool)> {
    let all =
        [(&mut item.get, false), (&mut item.post, true), (&mut item.put, true), (&mut item.delete, true)];
    all.into_iter().filter_map(|(operation, changes)| Some((operation.as_mut()?, changes)))
}

/// The OpenAPI document.
#[derive(Clone)]
pub(super) struct Document {
    json: Arc<Value>,
}

impl Document {
    pub(super) fn new(mut description: utoipa::openapi::OpenApi) -> Self {
        describe_refusals(&mut description);
        let mut json =
            serde_json::to_value(&description).expect("a document of strings can always be serialized");
        for schema in json["components"]["schemas"].as_object_mut().into_iter().flat_map(Map::values_mut) {
            remove_defaults(schema);
        }
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
