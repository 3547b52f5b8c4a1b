//! Access policy: checks `Host`, `Origin` and the token or session of every request, and sets the security headers.
//!
//! A browser sends requests on behalf of any page that it shows. Three checks keep pages of other origins out. `Host` must
//! be a known name, which stops DNS rebinding. `Origin` must be our own for every request that changes something, which
//! stops cross-site request forgery; only methods that change nothing are exempt. The token or the session must be right,
//! unless the server has no token. There are no CORS headers, so a page of another origin cannot read a response.
//!
//! A port belongs to nobody: every user of the machine can connect. On a Unix socket the kernel names the user at the other
//! end, and no browser connects to it, so requests of the server's own user pass there without any check.

mod host;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HeaderName, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_engine::report::{Exit, Report};

use self::host::HostNames;
use crate::connections::Peer;
use crate::cookies::cookie;
use crate::error::ApiError;
use crate::state::AppState;
use crate::token::{AccessToken, TokenVersion};

/// Paths that need no token: the health check, and what the login page consists of.
const OPEN_PATHS: [&str; 5] =
    ["/healthz", "/login", "/assets/page.css", "/assets/page.mjs", "/assets/icon.svg"];

pub(super) const NO_TOKEN: &str = "a token is needed";
pub(super) const WRONG_TOKEN: &str = "the token is wrong";

/// Security headers of every response: no content of other origins, no inline code, no framing.
const SECURITY_HEADERS: [(HeaderName, HeaderValue); 7] = [
    (
        HeaderName::from_static("content-security-policy"),
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ),
    (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
    (HeaderName::from_static("x-frame-options"), HeaderValue::from_static("DENY")),
    // Not `no-referrer`: browsers would send `Origin: null` with the forms of our own pages.
    (HeaderName::from_static("referrer-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("permissions-policy"), HeaderValue::from_static("interest-cohort=()")),
];

/// Which requests are answered. Clones share one instance.
#[derive(Clone)]
pub(super) struct AccessPolicy(Arc<Inner>);

struct Inner {
    state: AppState,
    hosts: HostNames,
    /// The name of the session cookie.
    cookie: String,
}

/// Why a request is answered.
#[derive(Clone, Debug)]
pub(super) enum Access {
    /// The server has no token, or the path needs none.
    Open,
    /// The server's own user sent it over the Unix socket.
    SameUser,
    /// It has this token.
    Token(TokenVersion),
    /// It has the secret of this session.
    Session(String),
}

impl AccessPolicy {
    pub(super) fn new(state: &AppState, address: SocketAddr) -> Self {
        let allowed = state.settings().allowed_hosts.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self(Arc::new(Inner {
            state: state.clone(),
            hosts: HostNames { allowed, is_public: !address.ip().is_loopback() },
            cookie: format!("lockkeeper_session_{}", address.port()),
        }))
    }

    /// The name of the session cookie. It has the port, because browsers send cookies to every port of a host.
    pub(super) fn cookie_name(&self) -> &str {
        &self.0.cookie
    }

    /// Whether a response that is still being sent, such as an event stream, may continue.
    pub(super) fn still_allows(&self, access: &Access) -> bool {
        let Some(token) = &self.0.state.settings().token else { return true };
        match access {
            Access::Open | Access::SameUser => true,
            Access::Token(version) => *version == token.version(),
            Access::Session(secret) => {
                self.0.state.sessions().is_open(secret, token.version(), Instant::now())
            }
        }
    }

    fn check(&self, request: &Request) -> Result<Access, ApiError> {
        if request.extensions().get::<Peer>().is_some_and(|peer| peer.is_same_user()) {
            return Ok(Access::SameUser);
        }
        let headers = request.headers();
        let host = self.0.hosts.check(request)?;
        if !is_safe(request.method()) {
            check_origin(headers, &host)?;
        }
        match &self.0.state.settings().token {
            Some(token) if !OPEN_PATHS.contains(&request.uri().path()) => self.authenticate(headers, token),
            Some(_) | None => Ok(Access::Open),
        }
    }

    /// Checks the token, or without one the session.
    fn authenticate(&self, headers: &HeaderMap, token: &AccessToken) -> Result<Access, ApiError> {
        // Makes a token file that was removed again, so that a person who has no token finds the new one.
        let version = token.version();
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
            let (scheme, rest) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
        });
        if let Some(given) = bearer {
            return token.check(given).map(Access::Token).ok_or_else(|| token_needed(WRONG_TOKEN));
        }
        let secret = cookie(headers, self.cookie_name()).ok_or_else(|| token_needed(NO_TOKEN))?;
        if self.0.state.sessions().renew(secret, version, Instant::now()) {
            Ok(Access::Session(secret.to_owned()))
        } else {
            Err(token_needed("the session has ended"))
        }
    }
}

/// Middleware that rejects requests against the policy, and sets the security headers. Handlers find the [`Access`] and
/// the [`AccessPolicy`] in the extensions of the request.
pub(super) async fn enforce(
    State(policy): State<AccessPolicy>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match policy.check(&request) {
        Ok(access) => {
            request.extensions_mut().insert(access);
            request.extensions_mut().insert(policy);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    };
    for (name, value) in SECURITY_HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Whether a method changes nothing.
pub(super) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
    let origin = headers.get(ORIGIN).map(|origin| origin.to_str().unwrap_or("null"));
    let fetch_site = headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or_default());
    let is_own = match (origin, fetch_site) {
        // Programs other than browsers send neither header.
        (None, None | Some("same-origin" | "none")) => true,
        (None, Some(_)) => false,
        (Some(origin), _) => {
            let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            named.is_some_and(|named| named.eq_ignore_ascii_case(host))
        }
    };
    if is_own {
        return Ok(());
    }
    let report =
        Report::new(Exit::Refused, "FOREIGN_ORIGIN", "a page of another origin may not change anything here")
            .with_hint("open the page under the address that the server printed")
            .with_context("origin", origin.unwrap_or_default());
    Err(ApiError::new(StatusCode::FORBIDDEN, report))
}

/// The error for a missing or wrong token, session or code.
pub(super) fn token_needed(message: &str) -> ApiError {
    let report = Report::new(Exit::Refused, "TOKEN_REQUIRED", message).with_hint(
        "send `Authorization: Bearer TOKEN`; the token is in `server.token` in the state folder, or in the file of --token-file",
    );
    ApiError::new(StatusCode::UNAUTHORIZED, report)
}
