//! `/api/events`: stream of server-sent events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use lockkeeper_engine::report::{Exit, Report};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access_policy::{Access, AccessPolicy};
use crate::broadcast::{Broadcaster, Event, Message, Missed, Subscription};
use crate::error::{ApiError, ErrorView};
use crate::extract::Params;
use crate::shutdown::Shutdown;
use crate::state::AppState;

/// How many events are buffered for a slow client.
const BUFFERED: usize = 32;
/// How many events are read from the store at once.
const STORED_EVENTS: usize = 500;
/// The size of the semaphore. The limit of the settings is checked when a stream is opened.
const MAX_PERMITS: usize = Semaphore::MAX_PERMITS;

/// State shared by all streams.
#[derive(Clone)]
struct Streams {
    permits: Arc<Semaphore>,
    shutdown: Shutdown,
}

pub(super) fn routes(shutdown: &Shutdown) -> OpenApiRouter<AppState> {
    let streams = Streams { permits: Arc::new(Semaphore::new(MAX_PERMITS)), shutdown: shutdown.clone() };
    OpenApiRouter::new().routes(routes!(events)).layer(Extension(streams))
}

/// Options of an event stream.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StreamQuery {
    /// Only these topics, separated by commas, such as `lease,ticket`; all by default.
    topics: Option<String>,
    /// The same as the header `Last-Event-ID`, for clients that cannot set headers.
    last_event_id: Option<String>,
}

/// All changes, as server-sent events.
///
/// The first event is `hello`. It is `reset` when the client missed more events than the server keeps: then load everything
/// again. Each event has an id; a client that sends it back as `Last-Event-ID` receives what it missed. The `data` of every
/// other event is a `StreamEvent`.
#[utoipa::path(get, path = "/api/events", tag = "events",
    params(StreamQuery, ("Last-Event-ID" = Option<String>, Header, description = "Continue after this event")),
    responses(
        (status = OK, description = "The stream, until the client or the server closes it", content_type = "text/event-stream", body = String),
        (status = SERVICE_UNAVAILABLE, description = "Too many streams", body = ErrorView),
    )
)]
async fn events(
    State(state): State<AppState>,
    Extension(streams): Extension<Streams>,
    Params(query): Params<StreamQuery>,
    Extension(policy): Extension<AccessPolicy>,
    Extension(access): Extension<Access>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let used = MAX_PERMITS - streams.permits.available_permits();
    let permit =
        Arc::clone(&streams.permits).try_acquire_owned().ok().filter(|_| used < state.limits().streams);
    let Some(permit) = permit else { return Err(too_many(state.limits().streams)) };
    let header = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let subscription = state.broadcaster().subscribe(header.or(query.last_event_id).as_deref());
    let topics = query.topics.map(|topics| topics.split(',').map(|topic| topic.trim().to_owned()).collect());
    let (sender, parts) = mpsc::channel(BUFFERED);
    let writer = StreamWriter { state, policy, access, topics, sender, _permit: permit };
    tokio::spawn(async move {
        tokio::select! {
            () = writer.run(subscription) => {}
            () = streams.shutdown.draining() => {}
        }
    });
    let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(StreamBody::new(parts))).into_response())
}

/// Writes events to one client.
struct StreamWriter {
    state: AppState,
    policy: AccessPolicy,
    access: Access,
    topics: Option<Vec<String>>,
    sender: mpsc::Sender<Bytes>,
    /// Released when the stream ends.
    _permit: OwnedSemaphorePermit,
}

impl StreamWriter {
    /// Writes events until the client disconnects.
    async fn run(self, subscription: Subscription) {
        let Subscription { missed, mut last, mut position, mut receiver } = subscription;
        // Events of runs up to here were read from the store, or the client has them.
        let mut stored = 0;
        let mut connected = match missed {
            Missed::New => self.write_control("hello", last, position).await,
            Missed::TooMuch => self.write_control("reset", last, position).await,
            Missed::Events(events) => self.write_events(&events).await,
            Missed::Stored(after) => {
                let written = self.write_stored(after, position).await;
                stored = if written.is_some() { after } else { 0 };
                match written {
                    Some(true) if self.wants_only("run") => true,
                    Some(false) => false,
                    Some(true) | None => self.write_control("reset", last, position).await,
                }
            }
        };
        while connected {
            let keep_alive = tokio::time::sleep(self.state.limits().keep_alive);
            connected = tokio::select! {
                () = self.sender.closed() => false,
                () = keep_alive => self.write(": alive\n\n".to_owned()).await,
                received = receiver.recv() => match received {
                    Ok(event) => {
                        (last, position) = (event.number, event.position);
                        let is_known = event.topic == "run" && event.position <= stored;
                        is_known || self.write_events(std::slice::from_ref(&event)).await
                    }
                    Err(RecvError::Lagged(lost)) => {
                        last += lost;
                        self.write_control("reset", last, position).await
                    }
                    Err(RecvError::Closed) => false,
                },
            };
        }
    }

    fn wants(&self, topic: &str) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.iter().any(|one| one == topic))
    }

    fn wants_only(&self, topic: &str) -> bool {
        self.topics.as_ref().is_some_and(|topics| topics.iter().all(|one| one == topic))
    }

    /// Writes the events of runs between two positions of the store; false when the client has disconnected. None if they are not
    /// known: the position is that of another store.
    async fn write_stored(&self, after: u64, until: u64) -> Option<bool> {
        let last = self.state.blocking(|state| Ok(state.runs().last_position()?)).await.ok()?;
        if after > last {
            return None;
        }
        let mut at = after;
        while self.wants("run") && at < until {
            let read = move |state: &AppState| Ok(state.runs().changes_after(at, STORED_EVENTS)?.events);
            let events = self.state.blocking(read).await.ok()?;
            let Some(end) = events.last() else { break };
            at = end.position;
            for event in events.iter().filter(|event| event.position <= until) {
                let (id, line) = (Broadcaster::stored_cursor(event.position), Message::run(event).to_line());
                if !self.write(format!("id: {id}\nevent: run\ndata: {line}\n\n")).await {
                    return Some(false);
                }
            }
        }
        Some(true)
    }

    /// Writes events of the query topics; false when the client has disconnected.
    async fn write_events(&self, events: &[Event]) -> bool {
        for event in events.iter().filter(|event| self.wants(event.topic)) {
            let id = self.state.broadcaster().cursor(event.number, event.position);
            if !self.write(format!("id: {id}\nevent: {}\ndata: {}\n\n", event.topic, event.data)).await {
                return false;
            }
        }
        true
    }

    /// Writes an event about the stream itself; false when the client has disconnected.
    async fn write_control(&self, name: &str, last: u64, position: u64) -> bool {
        let id = self.state.broadcaster().cursor(last, position);
        self.write(format!("retry: 1000\nid: {id}\nevent: {name}\ndata: {{}}\n\n")).await
    }

    /// Writes a part of the stream; false when the client has disconnected, has logged out, or the token was rotated.
    async fn write(&self, text: String) -> bool {
        self.policy.still_allows(&self.access) && self.sender.send(Bytes::from(text)).await.is_ok()
    }
}

/// Response body that is sent part by part.
pub(super) struct StreamBody {
    parts: mpsc::Receiver<Bytes>,
}

impl StreamBody {
    pub(super) const fn new(parts: mpsc::Receiver<Bytes>) -> Self {
        Self { parts }
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.parts.poll_recv(context).map(|part| part.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn too_many(limit: usize) -> ApiError {
    let message = format!("{limit} event streams are open already");
    let report = Report::new(Exit::Unreachable, "TOO_MANY_STREAMS", message)
        .with_hint("close pages that you do not look at")
        .with_context("limit", limit);
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, report)
}
