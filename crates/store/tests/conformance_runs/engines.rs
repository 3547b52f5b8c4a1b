//! Every engine, held to the contract.

use std::sync::Arc;
use std::time::Duration;

use super::Harness;
use super::harness::InFolder;
use super::on_server::{OnServer, POSTGRES_SERVER};
use super::through_proxy::ThroughProxy;
use lockkeeper_store::{PostgresRunStore, RunStore, SqliteRunStore};

/// The engine with this name, for another process.
pub(super) fn named(name: &str) -> Box<dyn Harness> {
    let engines: [Box<dyn Harness>; 2] = [Box::new(SQLITE), Box::new(POSTGRES)];
    let found = engines.into_iter().find(|engine| engine.name() == name);
    found.unwrap_or_else(|| panic!("{name} is no engine for several processes"))
}

pub(super) const SQLITE: InFolder<dyn RunStore> =
    InFolder { name: "sqlite", open: |folder| Arc::new(SqliteRunStore::open(folder, "this-boot").unwrap()) };

pub(super) const POSTGRES: OnServer<dyn RunStore> = OnServer {
    name: "postgres",
    kind: POSTGRES_SERVER,
    open: |server, project| {
        let config: tokio_postgres::Config = server.parse().unwrap();
        Arc::new(PostgresRunStore::open(config, project, Duration::from_secs(5)).unwrap())
    },
};

/// The same behind a proxy that breaks connections.
pub(super) const BROKEN: ThroughProxy<dyn RunStore> = ThroughProxy(POSTGRES);

// Invariant 9.
conformance_tests!(sqlite: crate::engines::SQLITE);
conformance_tests!(postgres: crate::engines::POSTGRES);
conformance_tests!(postgres_broken: crate::engines::BROKEN);
