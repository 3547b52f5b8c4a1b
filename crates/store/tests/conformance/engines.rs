//! Every engine, held to the contract.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::twice::Retrying;
use super::{Harness, Place};
use lockkeeper_store::{LeaseStore, MemoryStore, SqliteStore};

/// The engine with this name, for another process.
pub(super) fn named(name: &str) -> Box<dyn Harness> {
    let engines: [Box<dyn Harness>; 2] = [Box::new(Sqlite), Box::new(retrying_sqlite())];
    let found = engines.into_iter().find(|engine| engine.name() == name);
    found.unwrap_or_else(|| panic!("{name} is no engine for several processes"))
}

fn retrying_sqlite() -> Retrying<Sqlite> {
    Retrying { name: "sqlite, twice", inner: Sqlite }
}

fn retrying_memory() -> Retrying<Memory> {
    Retrying { name: "memory, twice", inner: Memory }
}

// Invariants 2 and 6.
conformance_tests!(sqlite: crate::engines::Sqlite);
conformance_tests!(memory: crate::engines::Memory);
// The contract lets decisions run twice.
conformance_tests!(sqlite_twice: crate::engines::retrying_sqlite());
conformance_tests!(memory_twice: crate::engines::retrying_memory());

pub(super) struct Sqlite;

impl Harness for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(SqlitePlace(tempfile::tempdir().unwrap()))
    }

    fn open(&self, address: &str) -> Arc<dyn LeaseStore> {
        Arc::new(SqliteStore::open(Path::new(address), "this-boot").unwrap())
    }
}

struct SqlitePlace(TempDir);

impl Place for SqlitePlace {
    fn open(&self) -> Arc<dyn LeaseStore> {
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

    fn open(&self, address: &str) -> Arc<dyn LeaseStore> {
        panic!("memory has no address such as {address}");
    }
}

struct MemoryPlace(Arc<MemoryStore>);

impl Place for MemoryPlace {
    fn open(&self) -> Arc<dyn LeaseStore> {
        self.0.clone()
    }

    fn address(&self) -> Option<String> {
        None
    }
}
