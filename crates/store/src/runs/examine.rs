//! Looking for damage in the database of requests and runs.

use super::{RunStore, execute};
use crate::sqlite::{Purpose, pages};
use crate::{Examination, StoreError};

/// What a sound database never has, and how it is told; each query counts.
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

impl RunStore {
    /// Looks for damage without changing anything; `thorough` looks at every record and what it leads to.
    pub fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        self.connected(Purpose::Read, |connection| {
            let number = |sql: &str| self.database(connection.query_row(sql, [], |row| row.get::<_, i64>(0)));
            let schema = Some(number("PRAGMA user_version")?);
            let mut flaws = self.database(pages(connection, thorough))?;
            if thorough && flaws.is_empty() {
                // They must be of one moment: what belongs together is committed together.
                self.database(execute(connection, "BEGIN"))?;
                let counted: Result<Vec<(i64, &str)>, StoreError> =
                    CONTRADICTIONS.iter().map(|(what, sql)| Ok((number(sql)?, *what))).collect();
                self.database(execute(connection, "ROLLBACK"))?;
                let found = counted?.into_iter().filter(|(count, _)| *count > 0);
                flaws.extend(found.map(|(count, what)| format!("{count} {what}")));
            }
            Ok(Examination { engine: format!("SQLite {}", rusqlite::version()), schema, flaws })
        })
    }
}
