//! What this engine does and no other: several programs make the tables, and a newer schema.

use std::thread;
use std::time::Duration;

use lockkeeper_store::{PostgresRunStore, RunStore, StoreError};

use super::harness::skip;
use super::on_server::NEEDED;
use super::own_database::Database;
use super::sample::{request, submit};

fn open(database: &Database) -> Result<PostgresRunStore, StoreError> {
    PostgresRunStore::open(database.config(), "shop", Duration::from_secs(5))
}

#[test]
fn many_programs_make_the_tables_once() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    thread::scope(|scope| {
        for number in 0..8 {
            let database = &database;
            scope.spawn(move || submit(&open(database).unwrap(), &request(&format!("r{number}"))));
        }
    });
    let store = open(&database).unwrap();
    assert_eq!(store.examine(true).unwrap().flaws, [""; 0]);
    assert_eq!(store.snapshot().unwrap().queue_head(99).unwrap().len(), 8);
}

#[test]
fn a_newer_schema_is_refused() {
    let Some(database) = Database::new() else { return skip(NEEDED) };
    drop(open(&database).unwrap());
    for schema in ["lockkeeper", "lockkeeper_runs"] {
        database.execute(&format!("UPDATE {schema}.about SET version = version + 1"));
        let Err(error) = open(&database) else { panic!("{schema} was opened") };
        assert!(matches!(error, StoreError::TooNew { found: 2, known: 1, .. }), "{error:?}");
        database.execute(&format!("UPDATE {schema}.about SET version = version - 1"));
    }
    open(&database).unwrap();
}
