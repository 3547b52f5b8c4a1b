//! Requests that come twice with one `Idempotency-Key` happen once: the second gets the first one's answer.
//!
//! Only what succeeded is remembered. A refusal changed nothing, so that asking again is asking anew. The memory is this
//! server's own, bounded, and lasts a day; a request that has an id of its own is also known to every other server.

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

use super::error::ApiError;
use super::state::AppState;
use lockkeeper_engine::report::{Exit, Report};

/// How many answers are remembered.
const MOST: usize = 1_000;
/// How long.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// A longer key is no key.
const KEY_LENGTH: usize = 255;
/// A longer answer is not remembered.
const ANSWER_BYTES: usize = 64 * 1024;

/// The answers that were given to keys.
#[derive(Default)]
pub(super) struct IdempotencyCache(Mutex<Memory>);

#[derive(Default)]
struct Memory {
    entries: HashMap<Place, Entry>,
    /// Oldest first.
    order: VecDeque<(Instant, Place)>,
}

/// What a key is for: a key on one address has nothing to do with the same key on another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    path: String,
    key: String,
}

struct Entry {
    /// What the body was.
    print: u64,
    /// None while the first request is being answered.
    answer: Option<Answer>,
}

#[derive(Clone)]
struct Answer {
    status: StatusCode,
    location: Option<HeaderValue>,
    kind: Option<HeaderValue>,
    body: Bytes,
}

enum Turn {
    First,
    Again(Answer),
    InFlight,
    Another,
}

impl IdempotencyCache {
    fn begin(&self, place: &Place, print: u64, now: Instant) -> Turn {
        let mut memory = self.memory();
        memory.forget(now);
        match memory.entries.get(place) {
            Some(entry) if entry.print != print => Turn::Another,
            Some(Entry { answer: Some(answer), .. }) => Turn::Again(answer.clone()),
            Some(Entry { answer: None, .. }) => Turn::InFlight,
            None => {
                memory.entries.insert(place.clone(), Entry { print, answer: None });
                memory.order.push_back((now, place.clone()));
                Turn::First
            }
        }
    }

    fn end(&self, place: &Place, answer: Option<Answer>) {
        let mut memory = self.memory();
        match (memory.entries.get_mut(place), answer) {
            (Some(entry), Some(answer)) => entry.answer = Some(answer),
            (Some(_), None) => {
                memory.entries.remove(place);
                memory.order.retain(|(_, known)| known != place);
            }
            (None, _) => {}
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn forget(&mut self, now: Instant) {
        while let Some((since, place)) = self.order.front() {
            if self.order.len() < MOST && now.saturating_duration_since(*since) < AGE {
                break;
            }
            self.entries.remove(place);
            self.order.pop_front();
        }
    }
}

/// A first request that is being answered; its place is given back if that never comes to an end.
struct Underway<'r> {
    idempotency: &'r IdempotencyCache,
    place: Place,
    answer: Option<Answer>,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.idempotency.end(&self.place, self.answer.take());
    }
}

/// Answers a repeated request with what the first one got.
pub(super) async fn replay(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if *request.method() != Method::POST || !request.headers().contains_key("idempotency-key") {
        return next.run(request).await;
    }
    match once(&state, request, next).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    }
}

async fn once(state: &AppState, request: Request, next: Next) -> Result<Response, ApiError> {
    let key = request.headers()["idempotency-key"].to_str().unwrap_or_default().to_owned();
    if key.is_empty() || key.len() > KEY_LENGTH {
        let message = format!("an Idempotency-Key has 1 to {KEY_LENGTH} visible characters");
        return Err(Report::usage(message).with_hint("use a random UUID").into());
    }
    let place = Place { path: request.uri().path().to_owned(), key };
    let (parts, body) = request.into_parts();
    let limit = state.limits().body_bytes;
    let Ok(body) = to_bytes(body, limit).await else {
        let message = format!("the body has more than {limit} bytes");
        let report = Report::new(Exit::Usage, "BODY_TOO_LARGE", message).with_context("limit", limit);
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, report));
    };
    match state.idempotency().begin(&place, fingerprint(&body), Instant::now()) {
        Turn::Again(answer) => Ok(answer.into_response(true)),
        Turn::InFlight => Err(in_flight()),
        Turn::Another => Err(mismatch()),
        Turn::First => {
            let mut underway = Underway { idempotency: state.idempotency(), place, answer: None };
            let response = next.run(Request::from_parts(parts, Body::from(body))).await;
            if !response.status().is_success() {
                return Ok(response);
            }
            let (parts, body) = response.into_parts();
            let Ok(body) = to_bytes(body, ANSWER_BYTES).await else {
                return Err(ApiError::internal("the answer is too long to be remembered"));
            };
            let (location, kind) = (parts.headers.get(LOCATION), parts.headers.get(CONTENT_TYPE));
            let answer =
                Answer { status: parts.status, location: location.cloned(), kind: kind.cloned(), body };
            underway.answer = Some(answer.clone());
            Ok(answer.into_response(false))
        }
    }
}

impl Answer {
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

/// Tells bodies apart; a client that makes two collide deceives only itself.
fn fingerprint(body: &[u8]) -> u64 {
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

    fn place(key: &str) -> Place {
        Place { path: "/api/locks".to_owned(), key: key.to_owned() }
    }

    fn answer() -> Answer {
        Answer { status: StatusCode::CREATED, location: None, kind: None, body: Bytes::from_static(b"{}") }
    }

    #[test]
    fn the_memory_is_bounded_in_number_and_age() {
        let idempotency = IdempotencyCache::default();
        let start = Instant::now();
        for number in 0..2 * MOST {
            let place = place(&number.to_string());
            assert!(matches!(idempotency.begin(&place, 1, start), Turn::First));
            idempotency.end(&place, Some(answer()));
        }
        assert!(idempotency.memory().entries.len() <= MOST);
        let newest = place(&(2 * MOST - 1).to_string());
        assert!(matches!(idempotency.begin(&newest, 1, start), Turn::Again(_)));
        assert!(matches!(idempotency.begin(&newest, 1, start + AGE), Turn::First));
        let memory = idempotency.memory();
        assert_eq!(memory.entries.len(), memory.order.len());
    }

    #[test]
    fn what_failed_may_be_tried_again_under_the_same_key() {
        let (idempotency, now) = (IdempotencyCache::default(), Instant::now());
        assert!(matches!(idempotency.begin(&place("k"), 1, now), Turn::First));
        assert!(matches!(idempotency.begin(&place("k"), 1, now), Turn::InFlight));
        idempotency.end(&place("k"), None);
        assert!(matches!(idempotency.begin(&place("k"), 2, now), Turn::First));
        assert!(matches!(idempotency.begin(&place("k"), 1, now), Turn::Another));
    }
}
