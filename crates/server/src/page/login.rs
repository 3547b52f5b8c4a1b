//! Login page: takes the access token and sets it as an HttpOnly cookie.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse, Redirect, Response};

use crate::access_policy::{TOKEN_COOKIE, token_needed};
use crate::error::ApiError;
use crate::state::AppState;

/// The lifetime of the cookie, in seconds.
const COOKIE_SECONDS: u64 = 30 * 24 * 60 * 60;

/// Shows the form: the same error page that every page without a valid token is.
pub(super) async fn page(State(state): State<AppState>) -> Response {
    match state.settings().token {
        Some(_) => token_needed(false).into_response(),
        None => Redirect::to("/").into_response(),
    }
}

/// Checks the token of the form, and sets the cookie.
pub(super) async fn log_in(State(state): State<AppState>, body: Bytes) -> Result<Response, ApiError> {
    let Some(token) = &state.settings().token else { return Ok(Redirect::to("/").into_response()) };
    // Not percent-decoded: a generated token has only hexadecimal digits, which forms send as they are.
    let form = String::from_utf8_lossy(&body);
    let given = form.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default().trim();
    if !token.matches(given) {
        return Err(token_needed(true));
    }
    let cookie =
        format!("{TOKEN_COOKIE}={given}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict");
    Ok((StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (axum::http::header::LOCATION, "/".to_owned())])
        .into_response())
}
