//! Every backend, held to the contract.

use std::sync::Arc;
use std::time::Duration;

use super::Harness;
use super::harness::InFolder;
use super::on_server::{NEEDED, OnServer, SERVER};
use super::through_proxy::ThroughProxy;
use lockkeeper_store::{HttpAddress, HttpRunStore, PostgresRunStore, RunStore, SqliteRunStore};

/// The backend with this name, for another process.
pub(super) fn named(name: &str) -> Box<dyn Harness> {
    let backends: [Box<dyn Harness>; 3] = [Box::new(SQLITE), Box::new(POSTGRES), Box::new(HTTP)];
    let found = backends.into_iter().find(|backend| backend.name() == name);
    found.unwrap_or_else(|| panic!("{name} is no backend for several processes"))
}

pub(super) const SQLITE: InFolder<dyn RunStore> =
    InFolder { name: "sqlite", open: |folder| Arc::new(SqliteRunStore::open(folder, "this-boot").unwrap()) };

pub(super) const POSTGRES: OnServer<dyn RunStore> = OnServer {
    name: "postgres",
    server: (SERVER, NEEDED),
    open: |server, project| {
        let config: tokio_postgres::Config = server.parse().unwrap();
        Arc::new(PostgresRunStore::open(config, project, Duration::from_secs(5)).unwrap())
    },
};

/// The same behind a proxy that breaks connections.
pub(super) const BROKEN: ThroughProxy<dyn RunStore> = ThroughProxy(POSTGRES);

/// Served by the test itself.
pub(super) const HTTP: OnServer<dyn RunStore> = OnServer {
    name: "http",
    server: (super::serving::SERVER, ""),
    open: |server, project| {
        let address = HttpAddress::parse(&format!("{server}/{project}"), None).unwrap();
        Arc::new(HttpRunStore::open(address, project, Duration::from_secs(5)).unwrap())
    },
};

pub(super) const BROKEN_HTTP: ThroughProxy<dyn RunStore> = ThroughProxy(HTTP);

// Invariant 9.
conformance_tests!(sqlite: crate::backends::SQLITE);
conformance_tests!(postgres: crate::backends::POSTGRES);
conformance_tests!(postgres_broken: crate::backends::BROKEN);
conformance_tests!(http: crate::backends::HTTP);
conformance_tests!(http_broken: crate::backends::BROKEN_HTTP);
