//! `lockkeeper serve` in a process of its own.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use crate::http::Http;
use crate::{Finished, Signal, Started, World};

/// A running server on a free port. Dropping it kills it.
pub struct ServerProcess {
    process: Started,
    address: SocketAddr,
    token: Option<String>,
}

impl ServerProcess {
    /// Starts a server in a world.
    #[must_use]
    #[track_caller]
    pub fn start(world: &World, args: &[&str]) -> Self {
        Self::of(world.lockkeeper(args_of(args)))
    }

    /// Starts a server by a command that prints its address as JSON, such as [`ServerProcess::start`] makes.
    #[must_use]
    #[track_caller]
    pub fn of(mut command: Command) -> Self {
        let mut process = Started::of(&mut command);
        let said = process.try_json().unwrap_or(Value::Null);
        let url = said["url"].as_str().and_then(|url| url.strip_prefix("http://")?.parse().ok());
        match url {
            Some(address) => {
                let token = said["token_file"].as_str().map(|path| std::fs::read_to_string(path).unwrap());
                Self { process, address, token: token.map(|token| token.trim().to_owned()) }
            }
            None => panic!("it does not serve: {said}; {}", process.wait().stderr()),
        }
    }

    /// Sends a signal to it.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills it, and waits for its death.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits for its end.
    #[must_use]
    #[track_caller]
    pub fn wait(self) -> Finished {
        self.process.wait()
    }
}

impl Http for ServerProcess {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }
}

fn args_of<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["--json", "serve", "--listen", "127.0.0.1:0"], args].concat()
}
