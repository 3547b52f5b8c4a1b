//! API reference page, rendered from the OpenAPI document.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::Extension;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Map, Value};

use super::texts::Texts;
use super::{Layout, render};
use crate::error::ApiError;
use crate::state::AppState;

/// All operations of the API, grouped by tag.
#[derive(Clone)]
pub(crate) struct ApiReference(Arc<Contents>);

struct Contents {
    version: String,
    description: String,
    groups: Vec<Group>,
}

/// The operations of one tag.
struct Group {
    name: String,
    description: String,
    calls: Vec<Call>,
}

struct Call {
    id: String,
    method: String,
    tone: &'static str,
    path: String,
    summary: String,
    description: String,
    parameters: Vec<Field>,
    body: Vec<Field>,
    answers: Vec<Field>,
}

struct Field {
    name: String,
    place: String,
    description: String,
}

#[derive(Template)]
#[template(path = "api_reference.html")]
struct Page<'c> {
    layout: Layout,
    version: &'c str,
    description: &'c str,
    groups: &'c [Group],
}

impl ApiReference {
    /// Builds the reference from an OpenAPI document.
    pub(crate) fn new(document: &Value) -> Self {
        let tags = document["tags"].as_array().into_iter().flatten();
        let groups = tags.map(|tag| Group {
            name: text(&tag["name"]),
            description: text(&tag["description"]),
            calls: calls(document, &tag["name"]),
        });
        Self(Arc::new(Contents {
            version: text(&document["info"]["version"]),
            description: text(&document["info"]["description"]),
            groups: groups.collect(),
        }))
    }

    pub(super) fn routes(self) -> Router<AppState> {
        Router::new().route("/api", get(page)).layer(Extension(self))
    }
}

/// The heading of the calls of a tag. A tag that the page does not know keeps its name.
fn heading<'t>(tag: &'t str, texts: &Texts) -> &'t str {
    match tag {
        "locks" => texts.locks,
        "agents" => texts.agents,
        "requests" => texts.requests,
        "runs" => texts.runs,
        "queue" => texts.queue,
        "hosts" => texts.hosts,
        "doctor" => texts.doctor,
        "stages" => texts.stages,
        "conflicts" => texts.conflicts,
        "events" => texts.events,
        "server" => texts.server,
        other => other,
    }
}

async fn page(
    Extension(ApiReference(contents)): Extension<ApiReference>,
    layout: Layout,
) -> Result<Response, ApiError> {
    let Contents { version, description, groups } = &*contents;
    render(&Page { layout: layout.at("/api"), version, description, groups })
}

fn calls(document: &Value, tag: &Value) -> Vec<Call> {
    let mut calls = Vec::new();
    for (path, item) in entries(&document["paths"]) {
        for (method, call) in entries(item) {
            if call["tags"].as_array().is_some_and(|tags| tags.contains(tag)) {
                calls.push(Call::new(document, path, method, call));
            }
        }
    }
    calls
}

impl Call {
    fn new(document: &Value, path: &str, method: &str, call: &Value) -> Self {
        let parameters = call["parameters"].as_array().into_iter().flatten().map(|parameter| Field {
            name: text(&parameter["name"]),
            place: format!("{} · {}", text(&parameter["in"]), kind(&parameter["schema"])),
            description: text(&parameter["description"]),
        });
        let answers = entries(&call["responses"]).map(|(status, answer)| Field {
            name: status.clone(),
            place: content(answer).map_or_else(String::new, kind),
            description: text(&answer["description"]),
        });
        Self {
            id: text(&call["operationId"]),
            method: method.to_uppercase(),
            tone: match method {
                "get" => "info",
                "delete" => "bad",
                _ => "good",
            },
            path: path.to_owned(),
            summary: text(&call["summary"]),
            description: text(&call["description"]),
            parameters: parameters.collect(),
            body: content(&call["requestBody"]).map_or_else(Vec::new, |schema| fields(document, schema)),
            answers: answers.collect(),
        }
    }
}

/// The schema of a body or a response.
fn content(holder: &Value) -> Option<&Value> {
    entries(&holder["content"]).next().map(|(_, content)| &content["schema"])
}

/// Resolves a `$ref`.
fn resolved<'v>(document: &'v Value, schema: &'v Value) -> &'v Value {
    let pointer = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| document.pointer(pointer)).unwrap_or(schema)
}

fn fields(document: &Value, schema: &Value) -> Vec<Field> {
    let properties = &resolved(document, schema)["properties"];
    let fields = entries(properties).map(|(name, property)| Field {
        name: name.clone(),
        place: kind(property),
        description: description_of(property),
    });
    fields.collect()
}

/// The description of a field. A nullable reference has its description beside the reference.
fn description_of(property: &Value) -> String {
    let choices = property["oneOf"].as_array().into_iter().flatten();
    let own = std::iter::once(property).chain(choices).map(|choice| text(&choice["description"]));
    own.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

/// The type of a value as a short text.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if schema["items"].is_object() {
        return format!("[{}]", kind(&schema["items"]));
    }
    match &schema["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            names.map(|name| format!("{name}?")).collect::<Vec<_>>().join(" | ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            let choices = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array());
            let choices = choices.into_iter().flatten().map(kind);
            choices.filter(|choice| choice != "null").collect::<Vec<_>>().join(" | ")
        }
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
