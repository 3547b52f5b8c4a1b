//! A team: a project on the server of the tests, and machines that reach it.

use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

use lockkeeper_platform::random;
use lockkeeper_store::{RedisAddress, RedisStore};
use lockkeeper_testing::{ServerProxy, World, skip};

/// Names the PostgreSQL server of the tests.
const SERVER: &str = "LOCKKEEPER_TEST_POSTGRES";

/// A project on the server.
pub(crate) struct Team {
    server: String,
    project: String,
    session: &'static str,
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
        let Ok(server) = std::env::var(SERVER) else {
            skip("a PostgreSQL server in LOCKKEEPER_TEST_POSTGRES (scripts/with-postgres COMMAND)");
            return None;
        };
        let project = format!("team-{:x}", random::number().unwrap());
        Some(Self { server, project, session })
    }

    /// A team on this Redis server. Nobody holds anything from before it was started.
    pub(crate) fn on_redis(server: String, session: &'static str) -> Self {
        let project = format!("team-{:x}", random::number().unwrap());
        let address = RedisAddress::parse(&server, &|_| None, None).unwrap();
        RedisStore::open(address, &project, Duration::from_secs(30), Duration::ZERO).unwrap();
        Self { server, project, session }
    }

    pub(crate) fn machine(&self) -> Machine {
        let link = ServerProxy::start(&self.server);
        let world = World::new(env!("CARGO_BIN_EXE_lockkeeper"));
        let runtime = world.beside("runtime");
        std::fs::DirBuilder::new().mode(0o700).create(&runtime).unwrap();
        let world = world
            .set("LOCKKEEPER_RUNTIME_DIR", runtime)
            .set("LOCKKEEPER_STORE", url(link.address()))
            .set("LOCKKEEPER_PROJECT", &self.project)
            .set("LOCKKEEPER_SESSION", self.session)
            .set("LOCKKEEPER_CONNECT_TIMEOUT", "1s")
            .set("LOCKKEEPER_GRACE", "1s");
        Machine { world, link }
    }
}

/// `host=NAME port=NUMBER user=NAME dbname=NAME` as a URL. That of Redis is one.
fn url(address: &str) -> String {
    if address.starts_with("redis://") {
        return address.to_owned();
    }
    let part = |name: &str| {
        let found = address.split_whitespace().find_map(|part| part.strip_prefix(&format!("{name}=")));
        found.unwrap().to_owned()
    };
    format!("postgres://{}@{}:{}/{}", part("user"), part("host"), part("port"), part("dbname"))
}
