//! Every engine, held to the contract.

use std::sync::Arc;
use std::time::Duration;

use super::harness::{self, InFolder};
use super::on_server::{Kind, OnServer, POSTGRES_SERVER};
use super::through_proxy::ThroughProxy;
use super::twice::Retrying;
use super::{Harness, Place};
use lockkeeper_store::{EtcdAddress, EtcdStore, LeaseStore, MemoryStore, PostgresStore, SqliteStore};
use lockkeeper_testing::EtcdProxy;

/// The engine with this name, for another process.
pub(super) fn named(name: &str) -> Box<dyn Harness> {
    let engines: [Box<dyn Harness>; 6] = [
        Box::new(SQLITE),
        Box::new(retrying_sqlite()),
        Box::new(POSTGRES),
        Box::new(retrying_postgres()),
        Box::new(ETCD),
        Box::new(retrying_etcd()),
    ];
    let found = engines.into_iter().find(|engine| engine.name() == name);
    found.unwrap_or_else(|| panic!("{name} is no engine for several processes"))
}

pub(super) const SQLITE: InFolder<dyn LeaseStore> =
    InFolder { name: "sqlite", open: |folder| Arc::new(SqliteStore::open(folder, "this-boot").unwrap()) };

fn retrying_sqlite() -> Retrying<InFolder<dyn LeaseStore>> {
    Retrying { name: "sqlite, twice", inner: SQLITE }
}

pub(super) const POSTGRES: OnServer<dyn LeaseStore> = OnServer {
    name: "postgres",
    kind: POSTGRES_SERVER,
    open: |server, project| {
        let config: tokio_postgres::Config = server.parse().unwrap();
        Arc::new(PostgresStore::open(config, project, Duration::from_secs(5)).unwrap())
    },
};

/// The same behind a proxy that breaks connections.
pub(super) const BROKEN: ThroughProxy<dyn LeaseStore> = ThroughProxy(POSTGRES);

fn retrying_postgres() -> Retrying<OnServer<dyn LeaseStore>> {
    Retrying { name: "postgres, twice", inner: POSTGRES }
}

pub(super) const ETCD: OnServer<dyn LeaseStore> = OnServer {
    name: "etcd",
    kind: Kind {
        variable: "LOCKKEEPER_TEST_ETCD",
        needed: "an etcd member in LOCKKEEPER_TEST_ETCD (scripts/with-etcd COMMAND)",
        proxy: |server| Box::new(EtcdProxy::start(server)),
    },
    open: |server, project| {
        let address = EtcdAddress::parse(&format!("etcd://{server}"), &|_| None, None).unwrap();
        Arc::new(EtcdStore::open(address, project, Duration::from_secs(30)).unwrap())
    },
};

/// The same behind a proxy that breaks connections.
pub(super) const BROKEN_ETCD: ThroughProxy<dyn LeaseStore> = ThroughProxy(ETCD);

fn retrying_etcd() -> Retrying<OnServer<dyn LeaseStore>> {
    Retrying { name: "etcd, twice", inner: ETCD }
}

fn retrying_memory() -> Retrying<Memory> {
    Retrying { name: "memory, twice", inner: Memory }
}

// Invariants 2 and 6.
conformance_tests!(sqlite: crate::engines::SQLITE);
conformance_tests!(memory: crate::engines::Memory);
conformance_tests!(postgres: crate::engines::POSTGRES);
conformance_tests!(postgres_broken: crate::engines::BROKEN);
conformance_tests!(etcd: crate::engines::ETCD);
conformance_tests!(etcd_broken: crate::engines::BROKEN_ETCD);
// The contract lets decisions run twice.
conformance_tests!(sqlite_twice: crate::engines::retrying_sqlite());
conformance_tests!(memory_twice: crate::engines::retrying_memory());
conformance_tests!(postgres_twice: crate::engines::retrying_postgres());
conformance_tests!(etcd_twice: crate::engines::retrying_etcd());

pub(super) struct Memory;

impl harness::Harness<dyn LeaseStore> for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn place(&self) -> Box<Place> {
        Box::new(MemoryPlace(Arc::new(MemoryStore::new())))
    }

    fn open(&self, address: &str) -> Arc<dyn LeaseStore> {
        panic!("memory has no address such as {address}");
    }
}

struct MemoryPlace(Arc<MemoryStore>);

impl harness::Place<dyn LeaseStore> for MemoryPlace {
    fn open(&self) -> Arc<dyn LeaseStore> {
        self.0.clone()
    }

    fn address(&self) -> Option<String> {
        None
    }
}
