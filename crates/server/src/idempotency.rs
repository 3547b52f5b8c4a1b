//! Idempotency keys: a POST that is repeated with the same `Idempotency-Key` gets the response of the first one.
//!
//! Only successful responses are cached. A refused request changed nothing, so it may be sent again. The cache is in the
//! memory of this server, bounded in size, and keeps a response for a day.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_engine::report::{Exit, Report};

use crate::error::ApiError;
use crate::state::AppState;

/// How many responses are cached.
const MAX_ENTRIES: usize = 1_000;
/// How long a response is cached.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest key.
const MAX_KEY_LENGTH: usize = 255;
/// The longest response that is cached.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Cache of responses by idempotency key.
#[derive(Default)]
pub(super) struct IdempotencyCache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_key: HashMap<CacheKey, Entry>,
    /// The keys with the time of their first request, the oldest first.
    order: VecDeque<(Instant, CacheKey)>,
}

/// Key of the cache. The same idempotency key on another path is another entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CacheKey {
    path: String,
    key: String,
}

struct Entry {
    /// Hash of the request body.
    body_hash: u64,
    /// None while the first request is in flight.
    response: Option<CachedResponse>,
}

/// A response that can be sent again.
#[derive(Clone)]
struct CachedResponse {
    status: StatusCode,
    location: Option<HeaderValue>,
    kind: Option<HeaderValue>,
    body: Bytes,
}

/// What to do with a request that has a key.
enum Lookup {
    /// It is the first with this key.
    First,
    /// It is a repetition: this is the response.
    Cached(CachedResponse),
    /// The first request is still in flight.
    InFlight,
    /// The key was used with another body.
    OtherBody,
}

impl IdempotencyCache {
    fn begin(&self, key: &CacheKey, body_hash: u64, now: Instant) -> Lookup {
        let mut entries = self.entries();
        entries.evict(now);
        match entries.by_key.get(key) {
            Some(entry) if entry.body_hash != body_hash => Lookup::OtherBody,
            Some(Entry { response: Some(response), .. }) => Lookup::Cached(response.clone()),
            Some(Entry { response: None, .. }) => Lookup::InFlight,
            None => {
                entries.by_key.insert(key.clone(), Entry { body_hash, response: None });
                entries.order.push_back((now, key.clone()));
                Lookup::First
            }
        }
    }

    fn end(&self, key: &CacheKey, response: Option<CachedResponse>) {
        let mut entries = self.entries();
        match (entries.by_key.get_mut(key), response) {
            (Some(entry), Some(response)) => entry.response = Some(response),
            (Some(_), None) => {
                entries.by_key.remove(key);
                entries.order.retain(|(_, known)| known != key);
            }
            (None, _) => {}
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn evict(&mut self, now: Instant) {
        while let Some((since, key)) = self.order.front() {
            if self.order.len() < MAX_ENTRIES && now.saturating_duration_since(*since) < MAX_AGE {
                break;
            }
            self.by_key.remove(key);
            self.order.pop_front();
        }
    }
}

/// A first request in flight. When it is dropped without a response, its key is free again.
struct InFlight<'r> {
    cache: &'r IdempotencyCache,
    key: CacheKey,
    response: Option<CachedResponse>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.cache.end(&self.key, self.response.take());
    }
}

/// Middleware that answers a repeated request with the response of the first one.
pub(super) async fn replay(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if *request.method() != Method::POST || !request.headers().contains_key("idempotency-key") {
        return next.run(request).await;
    }
    match once(&state, request, next).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn once(state: &AppState, request: Request, next: Next) -> Result<Response, ApiError> {
    let key = request.headers()["idempotency-key"].to_str().unwrap_or_default().to_owned();
    if key.is_empty() || key.len() > MAX_KEY_LENGTH {
        let message = format!("an Idempotency-Key has 1 to {MAX_KEY_LENGTH} visible characters");
        return Err(Report::usage(message).with_hint("use a random UUID").into());
    }
    let key = CacheKey { path: request.uri().path().to_owned(), key };
    let (parts, body) = request.into_parts();
    let limit = state.limits().body_bytes;
    let Ok(body) = to_bytes(body, limit).await else {
        let message = format!("the body has more than {limit} bytes");
        let report = Report::new(Exit::Usage, "BODY_TOO_LARGE", message).with_context("limit", limit);
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, report));
    };
    match state.idempotency().begin(&key, body_hash(&body), Instant::now()) {
        Lookup::Cached(response) => Ok(response.into_response(true)),
        Lookup::InFlight => Err(in_flight()),
        Lookup::OtherBody => Err(mismatch()),
        Lookup::First => {
            let mut in_flight = InFlight { cache: state.idempotency(), key, response: None };
            let response = next.run(Request::from_parts(parts, Body::from(body))).await;
            if !response.status().is_success() {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let Ok(body) = to_bytes(body, MAX_RESPONSE_BYTES).await else {
                return Err(ApiError::internal("the answer is too long to be remembered"));
            };
            let (location, kind) = (parts.headers.get(LOCATION), parts.headers.get(CONTENT_TYPE));
            let response = CachedResponse {
                status: parts.status,
                location: location.cloned(),
                kind: kind.cloned(),
                body,
            };
            in_flight.response = Some(response.clone());
            Ok(response.into_response(false))
        }
    }
}

impl CachedResponse {
    fn into_response(self, replayed: bool) -> Response {
        let mut response = (self.status, self.body).into_response();
        let headers = response.headers_mut();
        headers.remove(CONTENT_TYPE);
        headers.extend(self.location.map(|value| (LOCATION, value)));
        headers.extend(self.kind.map(|value| (CONTENT_TYPE, value)));
        if replayed {
            headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
        }
        response
    }
}

/// Hash of a body. It need not be collision-proof: a client that forges a collision only harms itself.
fn body_hash(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

fn in_flight() -> ApiError {
    let message = "the first request with this key is still being answered";
    Report::new(Exit::Refused, "IDEMPOTENCY_IN_FLIGHT", message).with_hint("try again in a moment").into()
}

fn mismatch() -> ApiError {
    let message = "this key was used with another body";
    let report = Report::new(Exit::Usage, "IDEMPOTENCY_MISMATCH", message)
        .with_hint("use a new key for a new request");
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str) -> CacheKey {
        CacheKey { path: "/api/locks".to_owned(), key: key.to_owned() }
    }

    fn response() -> CachedResponse {
        CachedResponse {
            status: StatusCode::CREATED,
            location: None,
            kind: None,
            body: Bytes::from_static(b"{}"),
        }
    }

    #[test]
    fn the_cache_is_bounded_in_size_and_age() {
        let cache = IdempotencyCache::default();
        let start = Instant::now();
        for number in 0..2 * MAX_ENTRIES {
            let key = key(&number.to_string());
            assert!(matches!(cache.begin(&key, 1, start), Lookup::First));
            cache.end(&key, Some(response()));
        }
        assert!(cache.entries().by_key.len() <= MAX_ENTRIES);
        let newest = key(&(2 * MAX_ENTRIES - 1).to_string());
        assert!(matches!(cache.begin(&newest, 1, start), Lookup::Cached(_)));
        assert!(matches!(cache.begin(&newest, 1, start + MAX_AGE), Lookup::First));
        let entries = cache.entries();
        assert_eq!(entries.by_key.len(), entries.order.len());
    }

    #[test]
    fn a_failed_request_may_be_repeated_with_the_same_key() {
        let (cache, now) = (IdempotencyCache::default(), Instant::now());
        assert!(matches!(cache.begin(&key("k"), 1, now), Lookup::First));
        assert!(matches!(cache.begin(&key("k"), 1, now), Lookup::InFlight));
        cache.end(&key("k"), None);
        assert!(matches!(cache.begin(&key("k"), 2, now), Lookup::First));
        assert!(matches!(cache.begin(&key("k"), 1, now), Lookup::OtherBody));
    }
}
