//! Integrity check of the database of requests and runs.

use rusqlite::Connection;

use super::{SqliteRunStore, execute};
use crate::sqlite::pages;
use crate::{Examination, StoreError};

/// Contradictions that an intact database does not have: what the report says, and a query that counts them.
const CONTRADICTIONS: [(&str, &str); 4] = [
    ("runs belong to no request", "SELECT count(*) FROM run WHERE request NOT IN (SELECT seq FROM request)"),
    (
        "requests lead to no run",
        "SELECT count(*) FROM request WHERE latest IS NOT NULL AND latest NOT IN (SELECT seq FROM run)",
    ),
    (
        "events belong to no run",
        "SELECT count(*) FROM event WHERE run <> 0 AND run NOT IN (SELECT seq FROM run)",
    ),
    (
        "runs do not have the events that they count",
        "SELECT count(*) FROM run WHERE events <> (SELECT count(*) FROM event WHERE event.run = run.seq)
             OR events <> (SELECT coalesce(max(event.seq), 0) FROM event WHERE event.run = run.seq)",
    ),
];

/// Looks for damage without changing anything.
pub(super) fn examine(
    store: &SqliteRunStore,
    connection: &Connection,
    thorough: bool,
) -> Result<Examination, StoreError> {
    let number = |sql: &str| store.database(connection.query_row(sql, [], |row| row.get::<_, i64>(0)));
    let schema = Some(number("PRAGMA user_version")?);
    let mut flaws = store.database(pages(connection, thorough))?;
    if thorough && flaws.is_empty() {
        // One read transaction for all counts: what belongs together is committed together.
        store.database(execute(connection, "BEGIN"))?;
        let counted: Result<Vec<(i64, &str)>, StoreError> =
            CONTRADICTIONS.iter().map(|(what, sql)| Ok((number(sql)?, *what))).collect();
        store.database(execute(connection, "ROLLBACK"))?;
        let found = counted?.into_iter().filter(|(count, _)| *count > 0);
        flaws.extend(found.map(|(count, what)| format!("{count} {what}")));
    }
    Ok(Examination { backend: format!("SQLite {}", rusqlite::version()), schema, flaws, risks: Vec::new() })
}
