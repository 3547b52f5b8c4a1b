//! Taking connections in, as many as there is room for, and seeing them out.

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

use super::settings::Limits;
use super::shutdown::Shutdown;

/// A request's head is not larger than this.
const HEAD_BYTES: usize = 64 * 1024;
/// How long to leave a socket alone that cannot take anybody in, as when there are no descriptors left.
const BREATHER: Duration = Duration::from_millis(100);
/// How long somebody who is turned away may take to hear it.
const FAREWELL: Duration = Duration::from_secs(1);

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Serves connections until told to drain, then sees out those that are there.
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits, shutdown: &Shutdown) {
    let places = Arc::new(Semaphore::new(limits.connections));
    // Every connection keeps a clone; the last one to go closes the channel.
    let (present, mut all_gone) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.draining() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection in");
                tokio::time::sleep(BREATHER).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%peer, limit = limits.connections, "turned away: too many connections");
            tokio::spawn(turn_away(stream));
            continue;
        };
        let (router, shutdown, present) = (router.clone(), shutdown.clone(), present.clone());
        tokio::spawn(async move {
            converse(stream, peer, router, limits, &shutdown).await;
            drop((place, present));
        });
    }
    drop((listener, present));
    tokio::select! {
        _ = all_gone.recv() => {}
        () = shutdown.stopped() => {}
    }
}

async fn converse(stream: TcpStream, peer: SocketAddr, router: Router, limits: Limits, shutdown: &Shutdown) {
    // Answers are small and complete: waiting for more to send only delays them.
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

/// Says that there is no room, in the shape of every error.
async fn turn_away(mut stream: TcpStream) {
    let body = r#"{"error":{"category":"ENVIRONMENT","reason_code":"TOO_MANY_CONNECTIONS","message":"too many connections are open","hint":"try again in a moment","context":{}}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         retry-after: 1\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let told: Result<io::Result<()>, _> = tokio::time::timeout(FAREWELL, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    })
    .await;
    // Who does not listen is gone all the same.
    let _ = told;
}
