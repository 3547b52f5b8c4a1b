//! Every engine, held to the contract.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::{Harness, Place};
use lockkeeper_store::{RunStore, SqliteRunStore};

/// The engine with this name, for another process.
pub(super) fn named(name: &str) -> Box<dyn Harness> {
    let engines: [Box<dyn Harness>; 1] = [Box::new(Sqlite)];
    let found = engines.into_iter().find(|engine| engine.name() == name);
    found.unwrap_or_else(|| panic!("{name} is no engine for several processes"))
}

// Invariant 9.
conformance_tests!(sqlite: crate::engines::Sqlite);

pub(super) struct Sqlite;

impl Harness for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(SqlitePlace(tempfile::tempdir().unwrap()))
    }

    fn open(&self, address: &str) -> Arc<dyn RunStore> {
        Arc::new(SqliteRunStore::open(Path::new(address), "this-boot").unwrap())
    }
}

struct SqlitePlace(TempDir);

impl Place for SqlitePlace {
    fn open(&self) -> Arc<dyn RunStore> {
        Arc::new(SqliteRunStore::open(self.0.path(), "this-boot").unwrap())
    }

    fn address(&self) -> Option<String> {
        Some(self.0.path().to_str().unwrap().to_owned())
    }
}
