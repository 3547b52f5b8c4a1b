//! A team: a project on the etcd member of the tests, and machines that reach it.

use std::os::unix::fs::DirBuilderExt;

use lockkeeper_platform::random;
use lockkeeper_testing::{EtcdProxy, ServerProxy, World, skip};

/// Names the etcd member of the tests.
const SERVER: &str = "LOCKKEEPER_TEST_ETCD";

/// A project in etcd.
pub(crate) struct Team {
    server: String,
    project: String,
    session: &'static str,
}

/// A machine of the team, with a link of its own to the member.
pub(crate) struct Machine {
    pub(crate) world: World,
    pub(crate) link: EtcdProxy,
}

impl Team {
    /// A team whose sessions never end while a test runs. None where there is no member.
    pub(crate) fn new() -> Option<Self> {
        Self::with_session("5m")
    }

    pub(crate) fn with_session(session: &'static str) -> Option<Self> {
        let Ok(server) = std::env::var(SERVER) else {
            skip("an etcd member in LOCKKEEPER_TEST_ETCD (scripts/with-etcd COMMAND)");
            return None;
        };
        let project = format!("team-{:x}", random::number().unwrap());
        Some(Self { server, project, session })
    }

    pub(crate) fn machine(&self) -> Machine {
        let link = EtcdProxy::start(&self.server);
        let world = machine(&format!("etcd://{}", link.address()), &self.project)
            .set("LOCKKEEPER_SESSION", self.session)
            .set("LOCKKEEPER_CONNECT_TIMEOUT", "3s");
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
