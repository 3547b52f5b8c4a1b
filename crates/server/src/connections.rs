//! Connections: accepts them up to a limit, serves them, and drains them at the end.

use std::fmt;
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
use lockkeeper_platform::connection_owner;
use rustix::process::{Uid, geteuid};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
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

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Peer {
    /// A client at an address.
    Tcp {
        /// The address.
        address: SocketAddr,
        /// Our own address of the connection.
        local: SocketAddr,
    },
    /// A process of this user, as the kernel reports it.
    Unix(Uid),
}

impl Peer {
    /// Whether the kernel says that it is the user of this server.
    pub(super) fn is_same_user(self) -> bool {
        match self {
            Self::Tcp { .. } => false,
            Self::Unix(user) => user == geteuid(),
        }
    }

    /// Whether it is known to belong to another user of this machine, who is not root.
    pub(super) fn is_other_user(self) -> bool {
        let user = match self {
            Self::Tcp { address, local } if address.ip().is_loopback() => {
                connection_owner::user_of(address, local).map(Uid::from_raw)
            }
            Self::Tcp { .. } => None,
            Self::Unix(user) => Some(user),
        };
        user.is_some_and(|user| user != geteuid() && !user.is_root())
    }

    /// Whether it is a process of this machine.
    pub(super) fn is_on_this_machine(self) -> bool {
        match self {
            Self::Tcp { address, .. } => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Unix(user) => write!(f, "user {}", user.as_raw()),
        }
    }
}

/// The sockets that connections come from.
pub(super) struct Listeners {
    pub(super) tcp: TcpListener,
    pub(super) unix: Option<UnixListener>,
}

/// A connection.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listeners {
    /// Waits for the next connection.
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        let local = async {
            match &self.unix {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, address) = accepted?;
                // Responses are written as a whole, so Nagle's algorithm would only delay them.
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr()?;
                Ok((Box::new(stream), Peer::Tcp { address, local }))
            }
            accepted = local => {
                let (stream, _) = accepted?;
                let user = Uid::from_raw(stream.peer_cred()?.uid());
                Ok((Box::new(stream), Peer::Unix(user)))
            }
        }
    }
}

/// Accepts connections until the server drains, then waits for the open ones.
pub(super) async fn serve(listeners: Listeners, router: Router, limits: Limits, shutdown: &Shutdown) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    // Every connection owns a clone of the sender; the receiver ends when the last connection has ended.
    let (open, mut all_closed) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.draining() => break,
            accepted = listeners.accept() => accepted,
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
    drop((listeners, open));
    tokio::select! {
        _ = all_closed.recv() => {}
        () = shutdown.stopped() => {}
    }
}

async fn serve_connection(
    stream: Box<dyn Stream>,
    peer: Peer,
    router: Router,
    limits: Limits,
    shutdown: &Shutdown,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
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
async fn reject(mut stream: Box<dyn Stream>) {
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
