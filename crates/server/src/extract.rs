//! Extractors for bodies, queries and ids. What they reject becomes a JSON error like any other.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use lockkeeper_core::time::parse_span;
use lockkeeper_engine::report::{Exit, Report};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::state::AppState;

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<AppState> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        // A form on a page of another origin can send other content types without a preflight request.
        let is_json = kind.is_some_and(|kind| {
            let essence = kind.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("application/json")
        });
        let bytes = match Bytes::from_request(request, state).await {
            Ok(bytes) => bytes,
            Err(rejection) => return Err(body_error(rejection, state)),
        };
        if !is_json && !bytes.is_empty() {
            let report =
                Report::new(Exit::Usage, "UNSUPPORTED_MEDIA_TYPE", "the body is not said to be JSON")
                    .with_hint("send the header Content-Type: application/json");
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, report));
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        serde_json::from_slice(text).map(Self).map_err(|error| {
            let message = format!("the body cannot be used: {error}");
            Report::usage(message).with_hint("/api/openapi.json describes every body").into()
        })
    }
}

fn body_error(rejection: BytesRejection, state: &AppState) -> ApiError {
    let status = rejection.into_response().status();
    let limit = state.limits().body_bytes;
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        let report =
            Report::new(Exit::Usage, "BODY_TOO_LARGE", format!("the body has more than {limit} bytes"))
                .with_hint("send less")
                .with_context("limit", limit);
        return ApiError::new(status, report);
    }
    Report::usage("the body ended early").with_hint("send it again").into()
}

/// The query string.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(query)| Self(query)).map_err(|rejection| {
            let message = format!("the query cannot be used: {}", rejection.body_text());
            Report::usage(message).with_hint("/api lists what each address takes").into()
        })
    }
}

/// The variable segment of a path.
pub(super) struct Id(pub(super) String);

impl FromRequestParts<AppState> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let read = Path::<String>::from_request_parts(parts, state).await;
        read.map(|Path(id)| Self(id)).map_err(|_| Report::usage("the id in the address is not text").into())
    }
}

/// A duration: a number of seconds, or a text such as `5m`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Span {
    /// Seconds.
    Seconds(u64),
    /// `300s`, `5m`, `24h`.
    Text(String),
}

impl Span {
    pub(super) fn get(&self) -> Result<Duration, Report> {
        match self {
            Self::Seconds(seconds) => Ok(Duration::from_secs(*seconds)),
            Self::Text(text) => Ok(parse_span(text)?),
        }
    }
}
