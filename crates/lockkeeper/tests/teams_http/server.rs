//! The machine that serves its folder.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use lockkeeper_testing::{Started, World};

/// How long the server may take to answer.
pub(crate) const LIMIT: &str = "1s";

/// The server ends with the team.
pub(crate) type Prepared = Mutex<Serving>;

/// A machine, and its server.
pub(crate) struct Serving {
    pub(crate) world: World,
    address: String,
    started: Started,
}

/// Where the server will listen.
pub(crate) fn of_tests() -> Option<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    Some(format!("http://{}", listener.local_addr().unwrap()))
}

/// Starts the server of a project.
pub(crate) fn prepare(server: &str, project: &str) -> Prepared {
    Mutex::new(Serving::start(server, project, &["--no-token", "--yes"]))
}

pub(crate) fn url(address: &str) -> String {
    address.to_owned()
}

impl Serving {
    pub(crate) fn start(server: &str, project: &str, access: &[&str]) -> Self {
        let world = World::new(env!("CARGO_BIN_EXE_lockkeeper")).set("LOCKKEEPER_SESSION", "8s");
        let world = if project.is_empty() { world } else { world.set("LOCKKEEPER_PROJECT", project) };
        let address = server.strip_prefix("http://").unwrap().to_owned();
        let started = start(&world, &address, access);
        Self { world, address, started }
    }

    /// Kills the server, changes something, and starts it again.
    pub(crate) fn restart(&mut self, meanwhile: impl FnOnce(&World)) {
        self.started.kill();
        meanwhile(&self.world);
        self.started = start(&self.world, &self.address, &["--no-token", "--yes"]);
    }
}

fn start(world: &World, address: &str, access: &[&str]) -> Started {
    let mut started = world.start([&["serve", "--log-level", "error", "--listen", address], access].concat());
    started.line_with(address);
    started
}
