//! Connections: accepts them up to a limit, serves them, and drains them at the end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;

use crate::settings::Limits;
use crate::shutdown::Shutdown;

/// The largest head of a request.
const HEAD_BYTES: usize = 64 * 1024;
/// The pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long sending a rejection may take.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The address of the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Accepts connections until the server drains, then waits for the open ones.
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits, shutdown: &Shutdown) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    // Every connection owns a clone of the sender; the receiver ends when the last connection has ended.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.draining() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(%peer, limit = limits.connections, "rejected: too many connections");
            tokio::spawn(reject(stream));
            continue;
        };
        let (router, shutdown, open) = (router.clone(), shutdown.clone(), open.clone());
        tokio::spawn(async move {
            serve_connection(stream, peer, router, limits, &shutdown).await;
            drop((permit, open));
        });
    }
    drop((listener, open));
    tokio::select! {
        _ = all_closed.recv() => {}
        () = shutdown.stopped() => {}
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: Limits,
    shutdown: &Shutdown,
) {
    // Responses are written as a whole, so Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        router.clone().oneshot(request.map(Body::new))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(HEAD_BYTES);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = shutdown.draining() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                served = connection.as_mut() => served,
                () = shutdown.stopped() => return,
            }
        }
    };
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

/// Answers that there are too many connections, as a JSON error like any other.
async fn reject(mut stream: TcpStream) {
    let body = r#"{"error":{"category":"ENVIRONMENT","reason_code":"TOO_MANY_CONNECTIONS","message":"too many connections are open","hint":"try again in a moment","context":{}}}"#;
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let sent: Result<io::Result<()>, _> = tokio::time::timeout(REJECT_TIMEOUT, async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
    // A client that does not read is disconnected all the same.
    let _ = sent;
}
