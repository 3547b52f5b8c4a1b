//! Every backend, held to the contract.

use std::sync::Arc;
use std::time::Duration;

use super::harness::{self, InFolder};
use super::on_server::{NEEDED, OnServer, SERVER};
use super::through_proxy::ThroughProxy;
use super::twice::Retrying;
use super::{Harness, Place};
use lockkeeper_store::{
    EtcdAddress, EtcdStore, HttpAddress, HttpStore, LeaseStore, MemoryStore, PostgresStore, RedisAddress,
    RedisStore, SqliteStore,
};

/// The backend with this name, for another process.
pub(super) fn named(name: &str) -> Box<dyn Harness> {
    let backends: [Box<dyn Harness>; 10] = [
        Box::new(SQLITE),
        Box::new(retrying_sqlite()),
        Box::new(POSTGRES),
        Box::new(retrying_postgres()),
        Box::new(REDIS),
        Box::new(retrying_redis()),
        Box::new(ETCD),
        Box::new(retrying_etcd()),
        Box::new(HTTP),
        Box::new(retrying_http()),
    ];
    let found = backends.into_iter().find(|backend| backend.name() == name);
    found.unwrap_or_else(|| panic!("{name} is no backend for several processes"))
}

pub(super) const SQLITE: InFolder<dyn LeaseStore> =
    InFolder { name: "sqlite", open: |folder| Arc::new(SqliteStore::open(folder, "this-boot").unwrap()) };

fn retrying_sqlite() -> Retrying<InFolder<dyn LeaseStore>> {
    Retrying { name: "sqlite, twice", inner: SQLITE }
}

pub(super) const POSTGRES: OnServer<dyn LeaseStore> = OnServer {
    name: "postgres",
    server: (SERVER, NEEDED),
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

/// Names the Redis or Valkey server of the tests, as `unix:PATH`.
const REDIS_SERVER: &str = "LOCKKEEPER_TEST_REDIS";

/// What the tests on Redis need.
const REDIS_NEEDED: &str = "a Redis server in LOCKKEEPER_TEST_REDIS (scripts/with-redis COMMAND)";

pub(super) const REDIS: OnServer<dyn LeaseStore> = OnServer {
    name: "redis",
    server: (REDIS_SERVER, REDIS_NEEDED),
    open: |server, project| {
        let address = RedisAddress::parse(server, &|_| None, None).unwrap();
        Arc::new(RedisStore::open(address, project, Duration::from_secs(5)).unwrap())
    },
};

pub(super) const BROKEN_REDIS: ThroughProxy<dyn LeaseStore> = ThroughProxy(REDIS);

fn retrying_redis() -> Retrying<OnServer<dyn LeaseStore>> {
    Retrying { name: "redis, twice", inner: REDIS }
}

/// Names the member of etcd of the tests, as `HOST:PORT`.
const ETCD_SERVER: &str = "LOCKKEEPER_TEST_ETCD";

/// What the tests on etcd need.
const ETCD_NEEDED: &str = "an etcd member in LOCKKEEPER_TEST_ETCD (scripts/with-etcd COMMAND)";

pub(super) const ETCD: OnServer<dyn LeaseStore> = OnServer {
    name: "etcd",
    server: (ETCD_SERVER, ETCD_NEEDED),
    open: |server, project| {
        let address = EtcdAddress::parse(&format!("etcd://{server}"), &|_| None, None).unwrap();
        Arc::new(EtcdStore::open(address, project, Duration::from_secs(30)).unwrap())
    },
};

pub(super) const BROKEN_ETCD: ThroughProxy<dyn LeaseStore> = ThroughProxy(ETCD);

fn retrying_etcd() -> Retrying<OnServer<dyn LeaseStore>> {
    Retrying { name: "etcd, twice", inner: ETCD }
}

/// Served by the test itself.
pub(super) const HTTP: OnServer<dyn LeaseStore> = OnServer {
    name: "http",
    server: (super::serving::SERVER, ""),
    open: |server, project| {
        let address = HttpAddress::parse(&format!("{server}/{project}"), None).unwrap();
        Arc::new(HttpStore::open(address, project, Duration::from_secs(5)).unwrap())
    },
};

pub(super) const BROKEN_HTTP: ThroughProxy<dyn LeaseStore> = ThroughProxy(HTTP);

fn retrying_http() -> Retrying<OnServer<dyn LeaseStore>> {
    Retrying { name: "http, twice", inner: HTTP }
}

fn retrying_memory() -> Retrying<Memory> {
    Retrying { name: "memory, twice", inner: Memory }
}

// Invariants 2 and 6.
conformance_tests!(sqlite: crate::backends::SQLITE);
conformance_tests!(memory: crate::backends::Memory);
conformance_tests!(postgres: crate::backends::POSTGRES);
conformance_tests!(postgres_broken: crate::backends::BROKEN);
conformance_tests!(redis: crate::backends::REDIS);
conformance_tests!(redis_broken: crate::backends::BROKEN_REDIS);
conformance_tests!(etcd: crate::backends::ETCD);
conformance_tests!(etcd_broken: crate::backends::BROKEN_ETCD);
conformance_tests!(http: crate::backends::HTTP);
conformance_tests!(http_broken: crate::backends::BROKEN_HTTP);
// The contract lets decisions run twice.
conformance_tests!(sqlite_twice: crate::backends::retrying_sqlite());
conformance_tests!(memory_twice: crate::backends::retrying_memory());
conformance_tests!(postgres_twice: crate::backends::retrying_postgres());
conformance_tests!(redis_twice: crate::backends::retrying_redis());
conformance_tests!(etcd_twice: crate::backends::retrying_etcd());
conformance_tests!(http_twice: crate::backends::retrying_http());

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
