//! Access policy: checks `Host`, `Origin` and the access token of every request, and sets the security headers.
//!
//! A browser sends requests on behalf of any page that it shows. Three checks keep pages of other origins out. `Host` must
//! be a known name, which stops DNS rebinding. `Origin` must be our own for every request that changes something, which
//! stops cross-site request forgery. The token must be right, if the server has one. There are no CORS headers, so a page
//! of another origin cannot read a response.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_engine::report::{Exit, Report};

use crate::cookies::cookie;
use crate::error::ApiError;
use crate::state::AppState;
use crate::token::AccessToken;

/// The cookie with the access token of a browser.
pub(super) const TOKEN_COOKIE: &str = "lockkeeper_token";
/// Paths that need no token: the health check, and what the login page consists of.
const OPEN_PATHS: [&str; 5] =
    ["/healthz", "/login", "/assets/page.css", "/assets/page.mjs", "/assets/icon.svg"];

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

/// Which requests are answered.
#[derive(Clone)]
pub(super) struct AccessPolicy {
    token: Option<AccessToken>,
    allowed_hosts: Vec<String>,
    /// Whether other machines can connect.
    is_public: bool,
}

impl AccessPolicy {
    pub(super) fn new(state: &AppState, address: SocketAddr) -> Self {
        let settings = state.settings();
        Self {
            token: settings.token.clone(),
            allowed_hosts: settings.allowed_hosts.iter().map(|name| name.to_ascii_lowercase()).collect(),
            is_public: !address.ip().is_loopback(),
        }
    }

    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let headers = request.headers();
        let host = host(request)?;
        let name = name_of(&host);
        if !self.accepts(name) {
            return Err(foreign_host(&host));
        }
        if !is_safe(request.method()) || is_full_doctor(request) {
            check_origin(headers, &host)?;
        }
        match &self.token {
            Some(token) if !OPEN_PATHS.contains(&request.uri().path()) => check_token(headers, token),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the server accepts this host name. IP addresses are safe from DNS rebinding, names are not.
    fn accepts(&self, name: &str) -> bool {
        let number: Option<IpAddr> = match name.strip_prefix('[') {
            Some(rest) => {
                rest.strip_suffix(']').and_then(|inside| inside.parse::<Ipv6Addr>().ok()).map(Into::into)
            }
            None => name.parse::<Ipv4Addr>().ok().map(Into::into),
        };
        match number {
            Some(number) => self.is_public || number.is_loopback(),
            None => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || name.ends_with(".localhost") || self.allowed_hosts.contains(&name)
            }
        }
    }
}

/// Middleware that rejects requests against the policy, and sets the security headers.
pub(super) async fn enforce(State(policy): State<AccessPolicy>, request: Request, next: Next) -> Response {
    let mut response = match policy.check(&request) {
        Ok(()) => next.run(request).await,
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

/// Whether this is a full pass of the doctor, a GET that removes stale locks.
fn is_full_doctor(request: &Request) -> bool {
    request.uri().path() == "/api/doctor" && request.uri().query().is_some_and(|query| query.contains("full"))
}

/// The host that the client named. There must be one `Host`, and an absolute address must name the same.
fn host(request: &Request) -> Result<String, ApiError> {
    let mut hosts = request.headers().get_all(HOST).into_iter();
    let host = match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) => host.to_owned(),
        (Some(_) | None, _) => return Err(foreign_host("")),
    };
    match request.uri().authority() {
        Some(authority) if authority.as_str() != host => Err(foreign_host(authority.as_str())),
        Some(_) | None => Ok(host),
    }
}

/// The host without its port.
fn name_of(host: &str) -> &str {
    match (host.starts_with('['), host.find(']')) {
        (true, Some(end)) => &host[..=end],
        (true, None) => host,
        (false, _) => host.split_once(':').map_or(host, |(name, _)| name),
    }
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

fn check_token(headers: &HeaderMap, token: &AccessToken) -> Result<(), ApiError> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, rest) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
    });
    match bearer.or_else(|| cookie(headers, TOKEN_COOKIE)) {
        Some(given) if token.matches(given) => Ok(()),
        given => Err(token_needed(given.is_some())),
    }
}

/// The error for a missing or wrong token.
pub(super) fn token_needed(is_wrong: bool) -> ApiError {
    let message = if is_wrong { "the token is wrong" } else { "a token is needed" };
    let report = Report::new(Exit::Refused, "TOKEN_REQUIRED", message)
        .with_hint("send `Authorization: Bearer TOKEN`; the server named the token's file when it started");
    ApiError::new(StatusCode::UNAUTHORIZED, report)
}

fn foreign_host(host: &str) -> ApiError {
    let report = Report::new(Exit::Refused, "FOREIGN_HOST", "the server is not called by this name")
        .with_hint(
            "use http://127.0.0.1 or http://localhost, or start with `lockkeeper serve --allow-host NAME`",
        )
        .with_context("host", host);
    ApiError::new(StatusCode::FORBIDDEN, report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(is_public: bool, allowed: &[&str]) -> AccessPolicy {
        let allowed_hosts = allowed.iter().map(|name| (*name).to_owned()).collect();
        AccessPolicy { token: None, allowed_hosts, is_public }
    }

    #[test]
    fn only_loopback_names_are_accepted() {
        let policy = policy(false, &["locks.example"]);
        for host in [
            "localhost",
            "LOCALHOST:7272",
            "a.localhost",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7272",
            "locks.example",
        ] {
            assert!(policy.accepts(name_of(host)), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::2]",
            "[::1",
            "notlocalhost",
        ] {
            assert!(!policy.accepts(name_of(host)), "{host}");
        }
    }

    #[test]
    fn a_public_server_accepts_any_ip_address_but_no_unknown_name() {
        let policy = policy(true, &[]);
        assert!(policy.accepts(name_of("192.168.1.5:80")));
        assert!(!policy.accepts(name_of("rebound.example")));
    }
}
