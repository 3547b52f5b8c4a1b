//! Every engine, held to the contract.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::twice::Retrying;
use super::{Harness, Place, run_all};
use lockkeeper_store::{MemoryStore, SqliteStore, Store};

/// The engine with this name, for another process.
pub(super) fn named(name: &str) -> Box<dyn Harness> {
    let engines: [Box<dyn Harness>; 2] = [Box::new(Sqlite), Box::new(retrying_sqlite())];
    let found = engines.into_iter().find(|engine| engine.name() == name);
    found.unwrap_or_else(|| panic!("{name} is no engine for several processes"))
}

fn retrying_sqlite() -> Retrying<Sqlite> {
    Retrying { name: "sqlite, twice", inner: Sqlite }
}

/// Invariants 2 and 6.
#[test]
fn sqlite_keeps_the_contract() {
    run_all(&Sqlite);
}

#[test]
fn memory_keeps_the_contract() {
    run_all(&Memory);
}

#[test]
fn the_contract_lets_decisions_run_twice() {
    run_all(&Retrying { name: "memory, twice", inner: Memory });
    run_all(&retrying_sqlite());
}

pub(super) struct Sqlite;

impl Harness for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(SqlitePlace(tempfile::tempdir().unwrap()))
    }

    fn open(&self, address: &str) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(Path::new(address), "this-boot").unwrap())
    }
}

struct SqlitePlace(TempDir);

impl Place for SqlitePlace {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.0.path(), "this-boot").unwrap())
    }

    fn address(&self) -> Option<String> {
        Some(self.0.path().to_str().unwrap().to_owned())
    }
}

pub(super) struct Memory;

impl Harness for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(MemoryPlace(Arc::new(MemoryStore::new())))
    }

    fn open(&self, address: &str) -> Arc<dyn Store> {
        panic!("memory has no address such as {address}");
    }
}

struct MemoryPlace(Arc<MemoryStore>);

impl Place for MemoryPlace {
    fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn address(&self) -> Option<String> {
        None
    }
}
