//! `/api/store`: the leases and runs of this machine's state folder, for other machines. Not for people: the messages are those of one version.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use lockkeeper_engine::report::{Exit, Report};
use lockkeeper_engine::served::{ALIVE, RemoteChanges, RemoteWaker, ServedStore};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::events::StreamBody;
use crate::error::ApiError;
use crate::shutdown::Shutdown;
use crate::state::AppState;

/// The largest call, in bytes: a decision about some ten thousand leases.
const LARGEST: usize = 32 * 1024 * 1024;
/// How many wake-ups are buffered for a slow client. More of them say the same.
const BUFFERED: usize = 32;
/// The pause between two changes that a client is told of.
const PAUSE: Duration = Duration::from_millis(5);

pub(super) fn routes(shutdown: &Shutdown) -> Router<AppState> {
    Router::new()
        .route("/api/store", post(call))
        .route("/api/store/wakers/{id}", get(wake_ups))
        .route("/api/store/changes", get(changes))
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(Extension(shutdown.clone()))
}

/// Answers one call of another machine.
async fn call(State(state): State<AppState>, body: Bytes) -> Result<Response, ApiError> {
    let store = store_of(&state)?;
    let answer = state.blocking(move |state| Ok(store.answer(state.leases(), &body)?)).await?;
    Ok(([(CONTENT_TYPE, "application/json")], answer).into_response())
}

/// The wake-ups of a process on another machine, one on each line, until it disconnects.
async fn wake_ups(
    State(state): State<AppState>,
    Path(id): Path<u64>,
    Extension(shutdown): Extension<Shutdown>,
) -> Result<Response, ApiError> {
    let store = store_of(&state)?;
    let mut waker = state.blocking(move |_| Ok(store.waker(id)?)).await?;
    let descriptor = waker.take_descriptor().and_then(|descriptor| watched(descriptor).ok());
    let descriptor = descriptor.ok_or_else(|| ApiError::internal("the server cannot watch a waker"))?;
    let (sender, parts) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        tokio::select! {
            () = pass_on(&state, &waker, &descriptor, &sender) => {}
            () = shutdown.draining() => {}
        }
    });
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::new(StreamBody::new(parts))).into_response())
}

/// The changes of requests and runs, one on each line, until the client disconnects.
async fn changes(
    State(state): State<AppState>,
    Extension(shutdown): Extension<Shutdown>,
) -> Result<Response, ApiError> {
    let store = store_of(&state)?;
    let mut changes = state.blocking(move |_| Ok(store.changes()?)).await?;
    let failed = |_| ApiError::internal("the server cannot watch its store");
    let descriptor = changes.take_descriptor().map(watched).transpose().map_err(failed)?;
    let (sender, parts) = mpsc::channel(BUFFERED);
    tokio::spawn(async move {
        tokio::select! {
            () = pass_changes_on(&changes, descriptor.as_ref(), &sender) => {}
            () = shutdown.draining() => {}
        }
    });
    Ok(([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::new(StreamBody::new(parts))).into_response())
}

async fn pass_changes_on(
    changes: &RemoteChanges,
    descriptor: Option<&AsyncFd<OwnedFd>>,
    sender: &mpsc::Sender<Bytes>,
) {
    let mut text = "ready\n";
    loop {
        if sender.send(Bytes::from_static(text.as_bytes())).await.is_err() {
            return;
        }
        // Changes in between share one line.
        tokio::time::sleep(PAUSE).await;
        let changed = async {
            match descriptor {
                Some(descriptor) => descriptor.readable().await.map(|mut ready| ready.clear_ready()),
                None => std::future::pending().await,
            }
        };
        text = tokio::select! {
            () = sender.closed() => return,
            ready = changed => match ready {
                Ok(()) => {
                    changes.receive();
                    "wake\n"
                }
                Err(_) => return,
            },
            // Where the system signals nothing, something may have changed.
            () = tokio::time::sleep(ALIVE / 5) => if descriptor.is_some() { "alive\n" } else { "wake\n" },
        };
    }
}

async fn pass_on(
    state: &AppState,
    waker: &RemoteWaker,
    descriptor: &AsyncFd<OwnedFd>,
    sender: &mpsc::Sender<Bytes>,
) {
    let mut text = "ready\n".to_owned();
    loop {
        if sender.send(Bytes::from(text)).await.is_err() {
            return;
        }
        let woken = tokio::select! {
            () = sender.closed() => return,
            ready = descriptor.readable() => match ready {
                Ok(mut ready) => {
                    ready.clear_ready();
                    true
                }
                Err(_) => return,
            },
            () = tokio::time::sleep(ALIVE / 5) => false,
        };
        text = if woken {
            match waker.receive() {
                Some(text) => text,
                None => return,
            }
        } else {
            // A holder of this machine may have died, for which this process waits.
            let reaped = store_of(state).map(|store| {
                state.in_background("remove dead holders", move |leases| Ok(store.reap(leases)?));
            });
            if reaped.is_err() {
                return;
            }
            "alive\n".to_owned()
        };
    }
}

#[expect(unsafe_code, reason = "tokio watches descriptors of others in no other way")]
fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is open, and stays so and the same one until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?)
}

/// The store, if this server has one for other machines.
fn store_of(state: &AppState) -> Result<Arc<ServedStore>, ApiError> {
    state.served().cloned().ok_or_else(|| {
        let report = Report::new(Exit::Usage, "STORE_SETTINGS", "this server is not the store of a project")
            .with_hint("start it with LOCKKEEPER_PROJECT=NAME, on a folder of its own machine");
        ApiError::new(StatusCode::CONFLICT, report)
    })
}
