//! How clients of `serve` get in: the token, the Unix socket, the link for a browser.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::Report;
use lockkeeper_platform::browser;
use lockkeeper_server::{AppState, ServeError, UnixSocket};
use rustix::process::geteuid;
use serde_json::json;

use super::Args;
use crate::cli::context::Context;
use crate::cli::print;

/// Refuses `--no-token` where it is too dangerous, before anything is made or claimed.
pub(super) fn check_no_token(args: &Args) -> Result<(), Report> {
    if args.no_token && !args.listen.ip().is_loopback() {
        return Err(ServeError::TokenNeeded(args.listen).into());
    }
    if args.no_token && !args.yes && geteuid().is_root() {
        let message =
            "without a token every user and program of this machine can run commands as root over the port";
        return Err(Report::usage(message).with_hint("leave --no-token out, or confirm it with --yes"));
    }
    Ok(())
}

/// The file of the token; none without a token.
pub(super) fn token_file(context: &Context, args: &Args) -> Option<PathBuf> {
    let default = || context.location.state.join(token_name(&context.location.state));
    (!args.no_token).then(|| args.token_file.clone().unwrap_or_else(default))
}

/// The name of the token file in the state folder. A server of another user than the owner of the folder (root, a
/// member of its group) has its own file: everybody who can read the token can run commands as the user of the server.
fn token_name(state: &Path) -> String {
    let own = geteuid().as_raw();
    match std::fs::metadata(state) {
        Ok(folder) if folder.uid() != own => format!("server-{own}.token"),
        Ok(_) | Err(_) => "server.token".to_owned(),
    }
}

/// The Unix socket for programs. A server without one still serves its port.
pub(super) fn bind_socket(context: &Context) -> Option<UnixSocket> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match UnixSocket::bind(&context.location.state, runtime.as_deref()) {
        Ok(socket) => Some(socket),
        Err(error) => {
            let report = Report::from(error);
            print::talk(&format!("no Unix socket: {report}; {}", report.hint().unwrap_or_default()));
            None
        }
    }
}

/// How the server can be reached.
pub(super) struct Serving<'s> {
    pub(super) address: SocketAddr,
    pub(super) token_file: Option<&'s Path>,
    pub(super) socket: Option<&'s UnixSocket>,
}

impl Serving<'_> {
    /// Prints how the server can be reached; stdout has it for programs. Opens the page, if that was asked for.
    pub(super) fn print(&self, context: &Context, args: &Args, state: &AppState) -> Result<(), Report> {
        let url = format!("http://{}", self.address);
        let link = || Ok::<_, OpenError>(format!("{url}{}", state.login_path().map_err(OpenError::Machine)?));
        let login_url = args.print_url.then(link).transpose()?;
        if context.json {
            let mut said = json!({
                "url": url,
                "state": context.location.state,
                "token_file": self.token_file.map(|file| file.display().to_string()),
                "socket": self.socket.map(|socket| socket.path().display().to_string()),
            });
            if let Some(login_url) = login_url {
                said["login_url"] = login_url.into();
            }
            print::json(&said);
        } else {
            print::data(login_url.as_ref().unwrap_or(&url));
            print::talk(&format!("serving {}; Ctrl-C to stop", context.location.state.display()));
        }
        match self.token_file {
            None => print::talk("no token: every user and program of this machine can run commands as you"),
            Some(file) if !context.json => print::talk(&format!("the token is in {}", file.display())),
            Some(_) => {}
        }
        if args.open && browser::open(&link()?).is_err() {
            print::talk(&format!("no browser could be opened: open {url} yourself"));
        }
        Ok(())
    }
}
