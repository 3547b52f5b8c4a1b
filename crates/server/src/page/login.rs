//! Login and logout: exchange the token, or a code that works once, for a session in an HttpOnly cookie.

use std::time::Instant;

use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{Extension, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use crate::access_policy::{Access, AccessPolicy, NO_TOKEN, WRONG_TOKEN, token_needed};
use crate::connections::Peer;
use crate::cookies::cookie;
use crate::error::ApiError;
use crate::state::AppState;

/// The fields of the form: one of them is filled.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Fields {
    token: String,
    code: String,
}

/// Shows the login form: the error page that a browser without a session gets for every page.
pub(super) async fn page(State(state): State<AppState>) -> Response {
    match state.settings().token {
        Some(_) => token_needed(NO_TOKEN).into_response(),
        None => Redirect::to("/").into_response(),
    }
}

/// Checks the token or the code of the form, and begins a session.
pub(super) async fn log_in(
    State(state): State<AppState>,
    Extension(policy): Extension<AccessPolicy>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    form: Result<Form<Fields>, FormRejection>,
) -> Result<Response, ApiError> {
    let Some(token) = &state.settings().token else { return Ok(Redirect::to("/").into_response()) };
    let Form(fields) = form.unwrap_or_default();
    let (sessions, now) = (state.sessions(), Instant::now());
    let by_code = || {
        let version = token.version();
        // Other users may have read the code in the list of processes while the browser was started.
        let is_right = !peer.is_other_user() && sessions.use_code(&fields.code, version, now);
        is_right.then_some(version)
    };
    let version = token.check(fields.token.trim()).or_else(by_code);
    let version = version.ok_or_else(|| {
        token_needed(match (fields.token.is_empty(), fields.code.is_empty()) {
            (false, _) => WRONG_TOKEN,
            (true, false) => "the link was used already, or is too old",
            (true, true) => NO_TOKEN,
        })
    })?;
    if let Some(before) = cookie(&headers, policy.cookie_name()) {
        sessions.end(before);
    }
    let begun = sessions.begin(version, now);
    let secret = begun.map_err(|error| ApiError::internal(format!("a session cannot be begun: {error}")))?;
    Ok(go_to("/", &policy, &secret, ""))
}

/// Ends the session of the browser.
pub(super) async fn log_out(
    State(state): State<AppState>,
    Extension(policy): Extension<AccessPolicy>,
    Extension(access): Extension<Access>,
) -> Response {
    if let Access::Session(secret) = access {
        state.sessions().end(&secret);
    }
    go_to("/login", &policy, "", "; Max-Age=0")
}

/// Sends a browser to a page with another session cookie. The cookie ends with the browser; the server decides when the
/// session ends before that.
fn go_to(page: &'static str, policy: &AccessPolicy, secret: &str, more: &str) -> Response {
    let name = policy.cookie_name();
    let cookie = format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict{more}");
    (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, page.to_owned())]).into_response()
}
