//! Static files of the pages, embedded in the program.

use axum::Router;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::{Embed, EmbeddedFile};

use crate::error::ApiError;
use crate::extract::Id;
use crate::state::AppState;

#[derive(Embed)]
#[folder = "assets"]
struct Assets;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/assets/{name}", get(asset))
}

/// Sends an embedded file. Other names are not found.
async fn asset(Id(name): Id, headers: HeaderMap) -> Result<Response, ApiError> {
    let file = Assets::get(&name).ok_or_else(|| ApiError::not_found("such file"))?;
    let kind = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("css") => "text/css; charset=utf-8",
        Some("mjs") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some(_) | None => "application/octet-stream",
    };
    let tag = tag(&file);
    if headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response());
    }
    let headers = [(CONTENT_TYPE, kind.to_owned()), (CACHE_CONTROL, "no-cache".to_owned()), (ETAG, tag)];
    Ok((headers, file.data).into_response())
}

/// The entity tag of a file, from its content.
fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let digits: String = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}
