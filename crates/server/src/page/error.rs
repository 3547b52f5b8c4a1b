//! Error page, for browsers that ask for HTML.

use askama::Template;
use axum::body::to_bytes;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use lockkeeper_engine::messages::Language;
use serde_json::Value;

use super::{Layout, render};

/// The largest error response.
const MAX_BYTES: usize = 1024 * 1024;

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

/// A problem in a STAGES file.
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

/// Renders an error page from the JSON error response.
pub(crate) async fn error_page(headers: &HeaderMap, language: Language, json: Response) -> Response {
    let (mut parts, body) = json.into_parts();
    let bytes = to_bytes(body, MAX_BYTES).await.unwrap_or_default();
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
    match render(&page) {
        Ok(page) => {
            parts.headers.remove("content-length");
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            Response::from_parts(parts, page.into_body())
        }
        Err(_) => Response::from_parts(parts, bytes.into()),
    }
}
