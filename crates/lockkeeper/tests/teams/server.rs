//! The PostgreSQL server of the tests.

use lockkeeper_testing::skip_server;

/// Nothing has to be kept for a project.
pub(crate) type Prepared = ();

/// How long the server may take to answer.
pub(crate) const LIMIT: &str = "1s";

/// The server, or a visible skip.
pub(crate) fn of_tests() -> Option<String> {
    let server = std::env::var("LOCKKEEPER_TEST_POSTGRES").ok();
    if server.is_none() {
        skip_server("a PostgreSQL server in LOCKKEEPER_TEST_POSTGRES (scripts/with-postgres COMMAND)");
    }
    server
}

/// Nothing has to be done for a new project.
pub(crate) fn prepare(_server: &str, _project: &str) {}

/// `host=NAME port=NUMBER user=NAME dbname=NAME` as a URL.
pub(crate) fn url(address: &str) -> String {
    let part = |name: &str| {
        let found = address.split_whitespace().find_map(|part| part.strip_prefix(&format!("{name}=")));
        found.unwrap().to_owned()
    };
    format!("postgres://{}@{}:{}/{}", part("user"), part("host"), part("port"), part("dbname"))
}
