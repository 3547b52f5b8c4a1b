//! Integrity check of the database and of the file `tokens`.

use rusqlite::Connection;

use super::{SqliteStore, schema};
use crate::{Examination, StoreError};

/// How many flaws SQLite lists.
const MOST: usize = 10;

/// What a sound database never has: a message, and a query that counts it.
const CONTRADICTIONS: [(&str, &str); 4] = [
    (
        "leases are filed under no key",
        "SELECT count(*) FROM record WHERE rank IS NULL AND -id NOT IN (SELECT id FROM filed WHERE waits = 0)",
    ),
    (
        "keys lead to no lease",
        "SELECT count(*) FROM filed WHERE waits = 0 AND -id NOT IN (SELECT id FROM record WHERE rank IS NULL)",
    ),
    (
        "tickets are filed under no key",
        "SELECT count(*) FROM record
         WHERE rank IS NOT NULL AND (rank, -id) NOT IN (SELECT rank, id FROM filed WHERE waits = 1)",
    ),
    (
        "keys lead to no ticket",
        "SELECT count(*) FROM filed
         WHERE waits <> 0 AND (rank, -id) NOT IN (SELECT rank, id FROM record WHERE rank IS NOT NULL)",
    ),
];

/// Checks the database in one snapshot. Changes nothing.
pub(super) fn examine(
    store: &SqliteStore,
    connection: &Connection,
    thorough: bool,
) -> Result<Examination, StoreError> {
    let number = |sql: &str| store.database(connection.query_row(sql, [], |row| row.get::<_, i64>(0)));
    let found = number("PRAGMA user_version")?;
    let backend = format!("SQLite {}", rusqlite::version());
    let mut flaws = store.database(pages(connection, thorough))?;
    if thorough && flaws.is_empty() {
        // All counts come from one snapshot, because records and keys are committed together.
        store.database(super::execute(connection, "BEGIN"))?;
        let contradictions = contradictions(store, &number);
        store.database(super::execute(connection, "ROLLBACK"))?;
        flaws.extend(contradictions?);
    }
    if found != schema::VERSION {
        flaws.push(format!("its tables have version {found}, not {}", schema::VERSION));
    }
    Ok(Examination { backend, schema: Some(found), flaws, risks: Vec::new() })
}

/// What SQLite finds wrong with its pages and indexes.
pub(crate) fn pages(connection: &Connection, thorough: bool) -> rusqlite::Result<Vec<String>> {
    let pragma = if thorough { "integrity_check" } else { "quick_check" };
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}({MOST})"))?;
    let told = statement.query_map([], |row| row.get::<_, String>(0))?;
    told.filter(|line| line.as_ref().map_or(true, |line| line != "ok")).collect()
}

fn contradictions(
    store: &SqliteStore,
    number: &dyn Fn(&str) -> Result<i64, StoreError>,
) -> Result<Vec<String>, StoreError> {
    let mut flaws = Vec::new();
    for (what, sql) in CONTRADICTIONS {
        let count = number(sql)?;
        if count > 0 {
            flaws.push(format!("{count} {what}"));
        }
    }
    let highest = number("SELECT coalesce(max(token), 0) FROM record")?;
    let last = store.tokens.last()?;
    if last.is_some_and(|last| last < highest.cast_unsigned()) {
        flaws.push(format!("the token {highest} is in use, but the file of tokens does not know of it"));
    }
    Ok(flaws)
}
