//! A team: a project on the two servers of the tests, and machines that reach both.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use lockkeeper_platform::random;
use lockkeeper_store::{RedisAddress, RedisStore};
use lockkeeper_testing::{ServerProxy, World, redis_command, skip_server};

/// A project on the servers.
pub(crate) struct Team {
    redis: String,
    postgres: String,
    project: String,
    session: &'static str,
}

/// A machine of the team, with links of its own to the servers.
pub(crate) struct Machine {
    pub(crate) world: World,
    /// To the server of requests and runs.
    pub(crate) link: ServerProxy,
    /// To the server of leases.
    pub(crate) lease_link: ServerProxy,
}

impl Team {
    /// A team whose sessions never end while a test runs. None where the servers are not there.
    pub(crate) fn new() -> Option<Self> {
        Self::with_session("5m")
    }

    pub(crate) fn with_session(session: &'static str) -> Option<Self> {
        let servers = ["REDIS", "POSTGRES"].map(|kind| std::env::var(format!("LOCKKEEPER_TEST_{kind}")).ok());
        let [Some(redis), Some(postgres)] = servers else {
            skip_server("two servers (scripts/with-postgres scripts/with-redis COMMAND)");
            return None;
        };
        let project = format!("team-{:x}", random::number().unwrap());
        // Nobody holds anything from before the server was started, so it remembers everything.
        let address = RedisAddress::parse(&redis, &|_| None, None).unwrap();
        RedisStore::open(address, &project, Duration::from_secs(30)).unwrap();
        let socket = Path::new(redis.strip_prefix("unix:").unwrap());
        redis_command(socket, &format!("HSET lockkeeper:{{{project}}}:about since 0")).unwrap();
        Some(Self { redis, postgres, project, session })
    }

    pub(crate) fn machine(&self) -> Machine {
        let (link, lease_link) = (ServerProxy::start(&self.postgres), ServerProxy::start(&self.redis));
        let world = World::new(env!("CARGO_BIN_EXE_lockkeeper"));
        let runtime = world.beside("runtime");
        std::fs::DirBuilder::new().mode(0o700).create(&runtime).unwrap();
        let world = world
            .set("LOCKKEEPER_RUNTIME_DIR", runtime)
            .set("LOCKKEEPER_STORE", lease_link.address())
            .set("LOCKKEEPER_RUNS", url(link.address()))
            .set("LOCKKEEPER_PROJECT", &self.project)
            .set("LOCKKEEPER_GRACE", "1s")
            .set("LOCKKEEPER_SESSION", self.session)
            .set("LOCKKEEPER_CONNECT_TIMEOUT", "1s");
        Machine { world, link, lease_link }
    }
}

/// `host=NAME port=NUMBER user=NAME dbname=NAME` as a URL.
fn url(address: &str) -> String {
    let part = |name: &str| {
        let found = address.split_whitespace().find_map(|part| part.strip_prefix(&format!("{name}=")));
        found.unwrap().to_owned()
    };
    format!("postgres://{}@{}:{}/{}", part("user"), part("host"), part("port"), part("dbname"))
}
