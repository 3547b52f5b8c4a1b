//! MCP server on standard input and output: agents see the board, claim files, wait for them, commit them and hand them over.
//!
//! 1. `handler` speaks the protocol with `rmcp`. Tools run in threads, since the lease store blocks.
//! 2. `arguments` reads what a call wants. What does not fit the schema is an error of the protocol.
//! 3. `caller` finds out who calls. No argument names the owner, so no model can take another one's name.
//! 4. `server` finds the repository; `claiming`, `committing`, `giving` and `reading` are the tools. A conflict is a result.
//!
//! The end of standard input ends what only this server held.

mod arguments;
mod caller;
mod claiming;
mod committing;
mod giving;
mod handler;
mod input_end;
mod reading;
mod server;
mod tools;
mod wording;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio;

use crate::claims::Settings;
use handler::Handler;
use input_end::watched;
use server::Server;
pub(crate) use tools::is_tool;

/// How long calls get to end after the end of the input.
const GRACE: Duration = Duration::from_secs(10);

/// What the server depends on.
#[derive(Clone)]
pub struct McpOptions {
    /// The folder in which the server was started. Relative paths start there.
    pub cwd: PathBuf,
    /// The state folder that a flag or the environment names.
    pub state: Option<PathBuf>,
    /// Reads an environment variable that names the agent's process.
    pub variable: fn(&str) -> Option<String>,
    /// The settings of the project with this root.
    pub settings: fn(&Path) -> Settings,
}

/// Serves until standard input ends.
///
/// # Errors
///
/// The machine cannot be asked about this process, or the other side does not speak the protocol.
pub fn serve_mcp(options: McpOptions) -> io::Result<()> {
    let server = Arc::new(Server::new(options)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(talk(Arc::clone(&server)));
    runtime.shutdown_timeout(GRACE);
    server.end();
    served
}

async fn talk(server: Arc<Server>) -> io::Result<()> {
    let (input, output) = stdio();
    let (input, ended) = watched(input);
    match Handler::new(server, ended).serve((input, output)).await {
        Ok(running) => running.waiting().await.map(|_| ()).map_err(io::Error::other),
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(io::Error::other(error)),
    }
}
