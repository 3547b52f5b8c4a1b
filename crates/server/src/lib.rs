//! The HTTP API and the page, over the same engine as the command line.
//!
//! [`run`] is all of it: it takes a listening socket, a state and a way to be stopped, and returns when everybody who was
//! being served has been. Engine calls block, so each runs on a thread of its own; no call waits for a lease.

mod access_policy;
mod api;
mod broadcast;
mod connections;
mod cookies;
mod error;
mod extract;
mod idempotency;
pub mod log;
mod metrics;
mod otlp;
mod page;
mod run_spawner;
mod settings;
mod shutdown;
mod stages_files;
mod state;
pub mod token;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use thiserror::Error;

use lockkeeper_engine::report::{Exit, Report};

pub use otlp::{BadEndpoint, Endpoint};
pub use settings::{DoctorSettings, Limits, Settings};
pub use shutdown::Shutdown;
pub use state::AppState;

/// How many threads wait for the store at the same time.
const ENGINE_THREADS: usize = 16;
/// How long calls to the store get to end after the last connection.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// Serves until told to stop: the first time those who are connected are served to their end, the second time not.
pub fn run(listener: TcpListener, state: &AppState, shutdown: &Shutdown) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::Socket)?;
    if !address.ip().is_loopback() && state.settings().token.is_none() {
        return Err(ServeError::TokenNeeded(address));
    }
    listener.set_nonblocking(true).map_err(ServeError::Socket)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).max_blocking_threads(ENGINE_THREADS).thread_name("serve").enable_all();
    let runtime = builder.build().map_err(ServeError::Runtime)?;
    let watcher =
        state.broadcaster().start(state.leases(), state.state_folder()).map_err(ServeError::Runtime)?;
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Socket)?;
        connections::serve(listener, api::router(state, address, shutdown), state.limits(), shutdown).await;
        finish(state, shutdown).await;
        Ok(())
    });
    watcher.stop();
    runtime.shutdown_timeout(LAST_CALLS);
    served
}

/// Waits for what is executed here; who is in a hurry has it ended.
async fn finish(state: &AppState, shutdown: &Shutdown) {
    state.run_spawner().drain(state);
    tokio::select! {
        () = state.run_spawner().ended() => {}
        () = shutdown.stopped() => {
            state.run_spawner().stop(state.runs());
            let patience = state.settings().grace + LAST_CALLS;
            let _ = tokio::time::timeout(patience, state.run_spawner().ended()).await;
        }
    }
}

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The socket failed.
    #[error("cannot use the listening socket")]
    Socket(#[source] io::Error),
    /// Threads or the runtime could not be started.
    #[error("cannot start the threads that serve")]
    Runtime(#[source] io::Error),
    /// Everybody could come, and nothing would stop them.
    #[error("{0} can be reached from other machines, and no token protects it")]
    TokenNeeded(SocketAddr),
    /// The token's file cannot be used.
    #[error(transparent)]
    AccessToken(#[from] token::TokenError),
}

impl ServeError {
    /// The way out.
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
                "add --token-file FILE, which is made if it is not there, or listen on 127.0.0.1".to_owned()
            }
            Self::AccessToken(error) => error.hint(),
        }
    }

    /// Whether somebody asked for what cannot be, rather than that something failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::TokenNeeded(_) => true,
            Self::Listen { .. } | Self::Socket(_) | Self::Runtime(_) | Self::AccessToken(_) => false,
        }
    }
}

impl From<ServeError> for Report {
    fn from(error: ServeError) -> Self {
        let exit = if error.is_usage() { Exit::Usage } else { Exit::Failed };
        Self::of(exit, "SERVE_FAILED", &error).with_hint(error.hint())
    }
}

/// Listens on an address; somebody else being there is told as such.
pub fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).map_err(|source| ServeError::Listen { address: address.to_string(), source })
}
