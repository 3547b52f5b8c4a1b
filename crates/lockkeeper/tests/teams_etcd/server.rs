//! The etcd member of the tests.

use std::time::Duration;

use lockkeeper_store::{EtcdAddress, EtcdStore};
use lockkeeper_testing::{etcd_remembers, skip_server};

/// How long the members may take to answer.
/// Nothing has to be kept for a project.
pub(crate) type Prepared = ();

pub(crate) const LIMIT: &str = "3s";

/// The member, or a visible skip.
pub(crate) fn of_tests() -> Option<String> {
    let server = std::env::var("LOCKKEEPER_TEST_ETCD").ok();
    if server.is_none() {
        skip_server("an etcd member in LOCKKEEPER_TEST_ETCD (scripts/with-etcd COMMAND)");
    }
    server
}

/// Makes the project, and notes that the cluster remembers everything: nobody holds anything from before it was started.
pub(crate) fn prepare(server: &str, project: &str) {
    let address = EtcdAddress::parse(&url(server), &|_| None, None).unwrap();
    EtcdStore::open(address, project, Duration::from_secs(30)).unwrap();
    etcd_remembers(server, project);
}

pub(crate) fn url(address: &str) -> String {
    format!("etcd://{address}")
}
