//! The Redis server of the tests.

use std::path::Path;
use std::time::Duration;

use lockkeeper_store::{RedisAddress, RedisStore};
use lockkeeper_testing::{redis_command, skip_server};

/// Nothing has to be kept for a project.
pub(crate) type Prepared = ();

/// How long the server may take to answer.
pub(crate) const LIMIT: &str = "1s";

/// The server, or a visible skip.
pub(crate) fn of_tests() -> Option<String> {
    let server = std::env::var("LOCKKEEPER_TEST_REDIS").ok();
    if server.is_none() {
        skip_server("a Redis server in LOCKKEEPER_TEST_REDIS (scripts/with-redis COMMAND)");
    }
    server
}

/// Makes the project, and notes that the server remembers everything: nobody holds anything from before the server was started.
pub(crate) fn prepare(server: &str, project: &str) {
    let address = RedisAddress::parse(server, &|_| None, None).unwrap();
    RedisStore::open(address, project, Duration::from_secs(30)).unwrap();
    let socket = Path::new(server.strip_prefix("unix:").unwrap());
    redis_command(socket, &format!("HSET lockkeeper:{{{project}}}:about since 0")).unwrap();
}

pub(crate) fn url(address: &str) -> String {
    address.to_owned()
}
