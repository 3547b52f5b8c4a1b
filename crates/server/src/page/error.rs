//! Failures as pages, for those who look at one.

use askama::Template;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::Value;

use super::{Layout, draw};
use lockkeeper_engine::messages::Language;

/// An error is not longer than this.
const MOST_BYTES: usize = 1024 * 1024;

#[derive(Template)]
#[template(path = "error.html")]
struct Page {
    layout: Layout,
    title: String,
    summary: String,
    detail: String,
    actions: Vec<String>,
    problems: Vec<Problem>,
    asks_token: bool,
}

/// What is wrong with a file, and where.
struct Problem {
    place: String,
    message: String,
    source: Option<String>,
}

impl Problem {
    fn all(context: &Value) -> Vec<Self> {
        let file = context["file"].as_str().unwrap_or_default();
        let found = context["problems"].as_array().into_iter().flatten();
        let problems = found.map(|problem| Self {
            place: format!("{file}:{}:{}", problem["line"], problem["column"]),
            message: problem["message"].as_str().unwrap_or_default().to_owned(),
            source: problem["source"].as_str().map(str::to_owned),
        });
        problems.collect()
    }
}

/// Whether a failure is to be shown as a page: to a browser that asks for one.
pub(crate) fn wants_page(request: &Request) -> bool {
    let accepts = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let path = request.uri().path();
    accepts.is_some_and(|accept| accept.contains("text/html")) && !path.starts_with("/api/")
}

/// Shows a failure that was told as JSON.
pub(crate) async fn error_page(headers: &HeaderMap, language: Language, told: Response) -> Response {
    let (mut parts, body) = told.into_parts();
    let bytes = to_bytes(body, MOST_BYTES).await.unwrap_or_default();
    let error = serde_json::from_slice::<Value>(&bytes).unwrap_or_default()["error"].take();
    let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
    let message = if error["detail"].is_string() { text("detail") } else { text("message") };
    let title = if error["title"].is_string() { text("title") } else { text("message") };
    let actions = error["actions"].as_array().into_iter().flatten();
    let page = Page {
        layout: Layout::new(language, headers),
        title,
        summary: text("summary"),
        detail: message,
        actions: actions.filter_map(|action| action.as_str().map(str::to_owned)).collect(),
        problems: Problem::all(&error["context"]),
        asks_token: parts.status == StatusCode::UNAUTHORIZED,
    };
    match draw(&page) {
        Ok(drawn) => {
            parts.headers.remove("content-length");
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            Response::from_parts(parts, drawn.into_body())
        }
        Err(_) => Response::from_parts(parts, bytes.into()),
    }
}
