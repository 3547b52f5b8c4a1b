//! Errors as HTTP responses: JSON or a page, in the language of the client, with what to do.

use std::sync::Arc;

use crate::json::Json;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_LANGUAGE, HeaderValue, LOCATION};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_engine::messages::Language;
use lockkeeper_engine::report::{Exit, Report};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::cookies::cookie;
use crate::state::AppState;

/// The cookie with the language that the user chose.
pub(super) const LANGUAGE_COOKIE: &str = "lockkeeper_lang";

/// Reason codes that become 404.
const NOT_FOUND_CODES: [&str; 4] = ["NO_SUCH_RUN", "NO_SUCH_REQUEST", "NO_SUCH_EXECUTION", "NO_SUCH_FILE"];

/// An error response: a report with an HTTP status.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    report: Report,
    location: Option<String>,
}

impl ApiError {
    /// A report with a status.
    pub(super) fn new(status: StatusCode, report: Report) -> Self {
        Self { status, report, location: None }
    }

    /// 404: there is no such thing.
    pub(super) fn not_found(what: &str) -> Self {
        let report = Report::new(Exit::Refused, "NOT_FOUND", format!("there is no {what}"))
            .with_hint("check the id; /api lists all addresses");
        Self::new(StatusCode::NOT_FOUND, report)
    }

    /// 500: a fault of the server.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        let report = Report::new(Exit::Failed, "INTERNAL", message)
            .with_hint("this is a fault of lockkeeper: please report it");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, report)
    }

    /// Adds the header `Location`.
    pub(super) fn at(mut self, location: String) -> Self {
        self.location = Some(location);
        self
    }

    /// The response in a language.
    fn render(&self, state: &AppState, language: Language) -> Response {
        let body = self.report.to_json_in(language, state.messages());
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_LANGUAGE, HeaderValue::from_static(language.code()));
        if let Some(location) = self.location.as_deref().and_then(|text| HeaderValue::from_str(text).ok()) {
            headers.insert(LOCATION, location);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert("www-authenticate", HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Report> for ApiError {
    fn from(report: Report) -> Self {
        let status = match report.exit() {
            Exit::Usage if NOT_FOUND_CODES.contains(&report.code()) => StatusCode::NOT_FOUND,
            Exit::Usage => StatusCode::BAD_REQUEST,
            Exit::Refused | Exit::LeaseLost | Exit::Command(_) => StatusCode::CONFLICT,
            Exit::Unreachable => StatusCode::SERVICE_UNAVAILABLE,
            Exit::Failed | Exit::Done => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, report)
    }
}

impl IntoResponse for ApiError {
    /// Returns the status, and the error as an extension. [`localize`] writes the body, because it knows the language.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// The language of the response, as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLanguage(pub(super) Language);

/// Middleware that determines the language, and writes errors in it.
pub(super) async fn localize(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let language = requested_language(request.uri(), request.headers()).unwrap_or(state.settings().language);
    request.extensions_mut().insert(RequestLanguage(language));
    let page_headers = wants_page(&request).then(|| request.headers().clone());
    let response = next.run(request).await;
    let Some(error) = response.extensions().get::<Arc<ApiError>>() else { return response };
    if error.status.is_server_error() {
        tracing::error!(status = error.status.as_u16(), report = %error.report, "failed");
    }
    let mut rendered = error.render(&state, language);
    if let Some(headers) = page_headers {
        rendered = super::page::error_page(&headers, language, rendered).await;
    }
    for (name, value) in response.headers() {
        rendered.headers_mut().entry(name).or_insert_with(|| value.clone());
    }
    rendered
}

/// Whether an error is shown as a page: when a browser asks for HTML outside of `/api/`.
fn wants_page(request: &Request) -> bool {
    let accepts = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let path = request.uri().path();
    accepts.is_some_and(|accept| accept.contains("text/html")) && !path.starts_with("/api/")
}

/// The language that the client asks for: `?lang=`, then the cookie, then `Accept-Language`.
fn requested_language(uri: &Uri, headers: &HeaderMap) -> Option<Language> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let asked = pairs.filter_map(|pair| pair.strip_prefix("lang=")).find_map(Language::of_tag);
    let kept = || cookie(headers, LANGUAGE_COOKIE).and_then(Language::of_tag);
    let accepted = || Language::accepted(headers.get(ACCEPT_LANGUAGE)?.to_str().ok()?);
    asked.or_else(kept).or_else(accepted)
}

/// An error.
#[derive(Serialize, ToSchema)]
#[schema(as = Error, example = json!({ "error": {
    "category": "EXECUTION", "reason_code": "LOCK_HELD", "message": "refused: db, held by script:deploy for 12s",
    "hint": "ask again with `\"wait\": true` to get a place in line", "context": {}, "title": "The lock is held",
    "summary": null, "actions": [], "detail": null
} }))]
pub(super) struct ErrorView {
    error: ErrorBody,
}

/// The content of an error.
#[derive(Serialize, ToSchema)]
struct ErrorBody {
    /// `INPUT`, `EXECUTION` or `ENVIRONMENT`.
    category: String,
    /// A stable code, such as `LOCK_HELD`.
    reason_code: String,
    /// One sentence.
    message: String,
    /// What the user can do about it.
    hint: Option<String>,
    /// Values for programs.
    #[schema(value_type = std::collections::HashMap<String, Value>)]
    context: Map<String, Value>,
    /// The meaning of the code in a few words, in the language of the client.
    title: Option<String>,
    /// The meaning of the code in a sentence, in the language of the client.
    summary: Option<String>,
    /// What the user can do, in the language of the client.
    actions: Vec<String>,
    /// The message in English, when `message` is in another language.
    detail: Option<String>,
}
