//! A team: a project on the server of the tests, and machines that reach it.

use std::os::unix::fs::DirBuilderExt;

use lockkeeper_platform::random;
use lockkeeper_testing::{ServerProxy, World};

use super::server;

/// A project on the server.
pub(crate) struct Team {
    pub(crate) server: String,
    pub(crate) project: String,
    pub(crate) session: &'static str,
    /// What the server of the tests needs as long as the team is there.
    pub(crate) kept: server::Prepared,
}

/// A machine of the team, with a link of its own to the server.
pub(crate) struct Machine {
    pub(crate) world: World,
    pub(crate) link: ServerProxy,
}

impl Team {
    /// A team whose sessions never end while a test runs. None where there is no server.
    pub(crate) fn new() -> Option<Self> {
        Self::with_session("5m")
    }

    pub(crate) fn with_session(session: &'static str) -> Option<Self> {
        Some(Self::on(server::of_tests()?, session))
    }

    /// A team on a server of its own.
    pub(crate) fn on(server: String, session: &'static str) -> Self {
        let project = format!("team-{:x}", random::number().unwrap());
        Self { kept: server::prepare(&server, &project), server, project, session }
    }

    pub(crate) fn machine(&self) -> Machine {
        // Only some servers have something to keep.
        let _ = &self.kept;
        let link = ServerProxy::start(&self.server);
        let world = machine(&server::url(link.address()), &self.project)
            .set("LOCKKEEPER_SESSION", self.session)
            .set("LOCKKEEPER_CONNECT_TIMEOUT", server::LIMIT);
        Machine { world, link }
    }
}

/// A machine whose store is at this address.
pub(crate) fn machine(address: &str, project: &str) -> World {
    let world = World::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let runtime = world.beside("runtime");
    std::fs::DirBuilder::new().mode(0o700).create(&runtime).unwrap();
    world
        .set("LOCKKEEPER_RUNTIME_DIR", runtime)
        .set("LOCKKEEPER_STORE", address)
        .set("LOCKKEEPER_PROJECT", project)
        .set("LOCKKEEPER_GRACE", "1s")
}
