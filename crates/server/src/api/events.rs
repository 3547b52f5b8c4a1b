//! `/api/events`: one stream of everything that happens.

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
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::broadcast::{Event, Missed, Subscription};
use crate::error::{ApiError, ErrorView};
use crate::extract::Params;
use crate::shutdown::Shutdown;
use crate::state::AppState;
use lockkeeper_engine::report::{Exit, Report};

/// So many parts of a stream are ready for a reader who is slow.
const READY: usize = 32;
/// The limit before the state is known, lowered by the first stream to what the settings say.
const STREAMS: usize = Semaphore::MAX_PERMITS;

/// What all streams share.
#[derive(Clone)]
struct Streams {
    places: Arc<Semaphore>,
    shutdown: Shutdown,
}

pub(super) fn routes(shutdown: &Shutdown) -> OpenApiRouter<AppState> {
    let streams = Streams { places: Arc::new(Semaphore::new(STREAMS)), shutdown: shutdown.clone() };
    OpenApiRouter::new().routes(routes!(events)).layer(Extension(streams))
}

/// What to listen to.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// Only these topics, with commas between: `lease,ticket`; all if not said.
    topics: Option<String>,
    /// As the header `Last-Event-ID`, for those who cannot set headers.
    last_event_id: Option<String>,
}

/// Everything that happens, as server-sent events.
///
/// The first event is `hello`, or `reset` when more was missed than is kept: then look at everything again. Each event
/// has an id; whoever comes back with the header `Last-Event-ID` hears what it missed.
#[utoipa::path(get, path = "/api/events", tag = "events",
    params(Wanted, ("Last-Event-ID" = Option<String>, Header, description = "Go on after this event")),
    responses(
        (status = OK, description = "The stream, until the reader or the server ends it", content_type = "text/event-stream", body = String),
        (status = SERVICE_UNAVAILABLE, description = "Too many streams", body = ErrorView),
    )
)]
async fn events(
    State(state): State<AppState>,
    Extension(streams): Extension<Streams>,
    Params(wanted): Params<Wanted>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let used = STREAMS - streams.places.available_permits();
    let place =
        Arc::clone(&streams.places).try_acquire_owned().ok().filter(|_| used < state.limits().streams);
    let Some(place) = place else { return Err(too_many(state.limits().streams)) };
    let header = headers.get("last-event-id").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let subscription = state.broadcaster().subscribe(header.or(wanted.last_event_id).as_deref());
    let topics = wanted.topics.map(|topics| topics.split(',').map(|topic| topic.trim().to_owned()).collect());
    let (sender, parts) = mpsc::channel(READY);
    let speaker = Speaker { state, topics, sender, _place: place };
    tokio::spawn(async move {
        tokio::select! {
            () = speaker.speak(subscription) => {}
            () = streams.shutdown.draining() => {}
        }
    });
    let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(Stream { parts })).into_response())
}

/// Speaks to one reader.
struct Speaker {
    state: AppState,
    topics: Option<Vec<String>>,
    sender: mpsc::Sender<Bytes>,
    /// Given back with everything else.
    _place: OwnedSemaphorePermit,
}

impl Speaker {
    /// Speaks until the reader is gone.
    async fn speak(self, subscription: Subscription) {
        let Subscription { missed, mut last, mut receiver } = subscription;
        let mut going_on = match missed {
            Missed::New => self.mark("hello", last).await,
            Missed::TooMuch => self.mark("reset", last).await,
            Missed::Events(events) => self.all(&events).await,
        };
        while going_on {
            let silence = tokio::time::sleep(self.state.limits().keep_alive);
            going_on = tokio::select! {
                () = self.sender.closed() => false,
                () = silence => self.say(": alive\n\n".to_owned()).await,
                heard = receiver.recv() => match heard {
                    Ok(event) => {
                        last = event.number;
                        self.all(std::slice::from_ref(&event)).await
                    }
                    Err(RecvError::Lagged(lost)) => {
                        last += lost;
                        self.mark("reset", last).await
                    }
                    Err(RecvError::Closed) => false,
                },
            };
        }
    }

    async fn all(&self, events: &[Event]) -> bool {
        for event in events {
            let wanted =
                self.topics.as_ref().is_none_or(|topics| topics.iter().any(|topic| topic == event.topic));
            let id = self.state.broadcaster().cursor(event.number);
            if wanted
                && !self.say(format!("id: {id}\nevent: {}\ndata: {}\n\n", event.topic, event.data)).await
            {
                return false;
            }
        }
        true
    }

    /// An event about the stream itself.
    async fn mark(&self, name: &str, last: u64) -> bool {
        let id = self.state.broadcaster().cursor(last);
        self.say(format!("retry: 1000\nid: {id}\nevent: {name}\ndata: {{}}\n\n")).await
    }

    /// False when nobody reads any more.
    async fn say(&self, text: String) -> bool {
        self.sender.send(Bytes::from(text)).await.is_ok()
    }
}

/// A body whose parts come one by one.
struct Stream {
    parts: mpsc::Receiver<Bytes>,
}

impl HttpBody for Stream {
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
