//! HTTP server: the API, the event stream and the web page, over the same engine as the command line.
//!
//! [`run`] serves a listening socket with an [`AppState`] until a [`Shutdown`] ends it. Calls to the engine block, so each
//! runs on a blocking thread of the runtime. No HTTP call waits for a lease.
//!
//! This crate is unstable: it has no semver promise. Programs use the crate `lockkeeper`.

mod access_policy;
mod api;
mod broadcast;
mod connections;
mod cookies;
mod error;
mod extract;
mod idempotency;
mod json;
pub mod log;
mod metrics;
mod otlp;
mod page;
mod run_spawner;
mod sessions;
mod settings;
mod shutdown;
mod stages_files;
mod state;
pub mod token;
mod unix_socket;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_engine::report::{Exit, Report};
use thiserror::Error;

use crate::connections::Listeners;

pub use otlp::{BadEndpoint, Endpoint};
pub use settings::{DoctorSettings, Limits, Settings};
pub use shutdown::Shutdown;
pub use state::AppState;
pub use unix_socket::UnixSocket;

/// The largest number of blocking threads, which call the engine.
const BLOCKING_THREADS: usize = 16;
/// How often a stopping server looks for runs that it has to cancel.
const STOP_AGAIN: Duration = Duration::from_millis(200);
/// How long blocking calls may go on after the last connection has closed.
const BLOCKING_GRACE: Duration = Duration::from_secs(2);

/// Serves until `shutdown` asks it to drain (open connections are served to their end) or to stop (they are closed).
pub fn run(
    listener: TcpListener,
    socket: Option<UnixSocket>,
    state: &AppState,
    shutdown: &Shutdown,
) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::Socket)?;
    check_exposure(address, state.settings())?;
    listener.set_nonblocking(true).map_err(ServeError::Socket)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).max_blocking_threads(BLOCKING_THREADS).thread_name("serve").enable_all();
    let runtime = builder.build().map_err(ServeError::Runtime)?;
    let watcher = state.broadcaster().start(state.leases(), state.location()).map_err(ServeError::Runtime)?;
    let rescue =
        run_spawner::watch_runs(state).map_err(|error| ServeError::Runtime(io::Error::other(error)))?;
    let served = runtime.block_on(async {
        let tcp = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Socket)?;
        let unix = socket.map(UnixSocket::into_listener).transpose().map_err(ServeError::Socket)?;
        let listeners = Listeners { tcp, unix };
        connections::serve(listeners, api::router(state, address, shutdown), state.limits(), shutdown).await;
        finish_runs(state, shutdown).await;
        Ok(())
    });
    drop(rescue);
    watcher.stop();
    runtime.shutdown_timeout(BLOCKING_GRACE);
    served
}

/// Waits for the runs that this server executes; a stop cancels them.
async fn finish_runs(state: &AppState, shutdown: &Shutdown) {
    state.run_spawner().drain(state);
    tokio::select! {
        () = state.run_spawner().ended() => {}
        () = shutdown.stopped() => {
            let limit = state.settings().grace + BLOCKING_GRACE;
            let _ = tokio::time::timeout(limit, stop_runs(state)).await;
        }
    }
}

/// Cancels the runs that this server executes, until none is left. The queue may have claimed one just after it was asked to
/// stop, so they are looked for again.
async fn stop_runs(state: &AppState) {
    loop {
        let stopped = state.blocking(|state| Ok(state.run_spawner().stop(state.runs())?)).await;
        if let Err(error) = stopped {
            tracing::error!(?error, "cannot cancel what is executed");
        }
        if tokio::time::timeout(STOP_AGAIN, state.run_spawner().ended()).await.is_ok() {
            return;
        }
    }
}

/// Why the server cannot serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The socket failed.
    #[error("cannot use the listening socket")]
    Socket(#[source] io::Error),
    /// Threads or the runtime could not be started.
    #[error("cannot start the threads that serve")]
    Runtime(#[source] io::Error),
    /// Other machines could connect, and no token protects the server.
    #[error("{0} can be reached from other machines, and no token protects it")]
    TokenNeeded(SocketAddr),
    /// The Unix socket cannot be made.
    #[error("cannot make the Unix socket {}", path.display())]
    UnixSocket {
        /// The socket, or its folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The token file cannot be used.
    #[error(transparent)]
    Token(#[from] token::TokenError),
}

impl ServeError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "another server has it: open its page, or choose another with --listen 127.0.0.1:PORT"
                    .to_owned()
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "ports below 1024 are for root: choose another with --listen 127.0.0.1:PORT".to_owned()
            }
            Self::Listen { .. } => {
                "give an address of this machine, such as --listen 127.0.0.1:7272".to_owned()
            }
            Self::Socket(_) | Self::Runtime(_) => {
                "check the limits of this process with `ulimit -a`".to_owned()
            }
            Self::TokenNeeded(_) => {
                "leave --no-token out, or name a file with --token-file FILE, or listen on 127.0.0.1"
                    .to_owned()
            }
            Self::UnixSocket { path, .. } => {
                format!("look at {}: it has to be yours, and closed to others", path.display())
            }
            Self::Token(error) => error.hint(),
        }
    }

    /// Whether the arguments were wrong, rather than the system.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::TokenNeeded(_) => true,
            Self::Listen { .. }
            | Self::Socket(_)
            | Self::Runtime(_)
            | Self::UnixSocket { .. }
            | Self::Token(_) => false,
        }
    }
}

impl From<ServeError> for Report {
    fn from(error: ServeError) -> Self {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failed };
        Self::of(exit, "SERVE_FAILED", &error).with_hint(error.hint())
    }
}

/// Binds the listening socket. An address that other machines can reach needs a token.
pub fn listen(address: SocketAddr, settings: &Settings) -> Result<TcpListener, ServeError> {
    check_exposure(address, settings)?;
    TcpListener::bind(address).map_err(|source| ServeError::Listen { address: address.to_string(), source })
}

fn check_exposure(address: SocketAddr, settings: &Settings) -> Result<(), ServeError> {
    if address.ip().is_loopback() || settings.token.is_some() {
        return Ok(());
    }
    Err(ServeError::TokenNeeded(address))
}
