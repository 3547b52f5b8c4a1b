//! Giving the token to a browser, which keeps it as a cookie that no script reads.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Redirect, Response};

use crate::access_policy::{TOKEN_COOKIE, token_needed};
use crate::error::ApiError;
use crate::state::AppState;

/// How long a browser stays in, in seconds.
const STAYS: u64 = 30 * 24 * 60 * 60;

/// Asks for the token, as every page does to those who do not have it.
pub(super) async fn page(State(state): State<AppState>) -> Response {
    match state.settings().token {
        Some(_) => token_needed(false).into_response(),
        None => Redirect::to("/").into_response(),
    }
}

/// Takes the token from the form.
pub(super) async fn log_in(State(state): State<AppState>, body: Bytes) -> Result<Response, ApiError> {
    let Some(token) = &state.settings().token else { return Ok(Redirect::to("/").into_response()) };
    // A token has only characters that forms send as they are, or nothing that would be right anyway.
    let form = String::from_utf8_lossy(&body);
    let given = form.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default().trim();
    if !token.matches(given) {
        return Err(token_needed(true));
    }
    let cookie = format!("{TOKEN_COOKIE}={given}; Path=/; Max-Age={STAYS}; HttpOnly; SameSite=Strict");
    Ok((StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (axum::http::header::LOCATION, "/".to_owned())])
        .into_response())
}
