//! Check of a PostgreSQL server: what it is, what it promises, and whether this user may do what leases need.

use lockkeeper_core::records::Effect;
use lockkeeper_platform::{poll, wall_clock};

use super::{PostgresStore, no_row, rows};
use crate::{LeaseStore, StoreError};

/// What a check of the server found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerCheck {
    /// Name and version of the server.
    pub server: String,
    /// The version of the tables.
    pub schema: i32,
    /// How many seconds the server's clock is ahead of this machine's. Nothing depends on it.
    pub clock_ahead: i64,
    /// Whether notifications arrive. Behind a pooler in transaction mode they do not: waiters then poll every few seconds.
    pub is_notified: bool,
    /// What this user may not do, such as `UPDATE on lockkeeper.clock`.
    pub missing_privileges: Vec<String>,
    /// Whether a commit waits for the disk.
    pub is_durable: bool,
    /// Whether a commit waits for a standby: then a promoted standby has lost nothing.
    pub has_synchronous_standby: bool,
}

/// The privileges that leases and runs need, as SQL for a role.
pub const LEAST_PRIVILEGES: [&str; 3] = [
    "GRANT USAGE ON SCHEMA lockkeeper, lockkeeper_runs TO",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockkeeper, lockkeeper_runs TO",
    "GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA lockkeeper, lockkeeper_runs TO",
];

const MISSING: &str = "
    SELECT wanted.what || ' on ' || of.oid::regclass
    FROM pg_class AS of
    JOIN (VALUES ('r', 'SELECT'), ('r', 'INSERT'), ('r', 'UPDATE'), ('r', 'DELETE'), ('S', 'USAGE'), ('S', 'UPDATE'))
        AS wanted(kind, what) ON of.relkind::text = wanted.kind
    WHERE of.relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('lockkeeper', 'lockkeeper_runs')) AND NOT CASE of.relkind
        WHEN 'S' THEN has_sequence_privilege(of.oid, wanted.what)
        ELSE has_table_privilege(of.oid, wanted.what)
    END ORDER BY 1";

impl PostgresStore {
    /// Looks at the server without changing anything.
    pub fn check(&self) -> Result<ServerCheck, StoreError> {
        let found = self.call(|server| {
            server.query(
                "SELECT 'PostgreSQL ' || current_setting('server_version'), (SELECT version FROM lockkeeper.about),
                    lockkeeper.wall(), current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off',
                    current_setting('synchronous_standby_names') <> ''
                        AND current_setting('synchronous_commit') NOT IN ('off', 'local')",
                &[],
            )
        })?;
        let here = wall_clock::epoch_seconds();
        let row = found.first().ok_or_else(no_row)?;
        let missing = self.call(|server| server.query(MISSING, &[]))?;
        Ok(ServerCheck {
            server: rows::get(row, 0)?,
            schema: rows::get(row, 1)?,
            clock_ahead: rows::get::<i64>(row, 2)? / 1_000_000 - here,
            is_notified: self.is_notified()?,
            missing_privileges: missing.iter().map(|row| rows::get(row, 0)).collect::<Result<_, _>>()?,
            is_durable: rows::get(row, 3)?,
            has_synchronous_standby: rows::get(row, 4)?,
        })
    }

    /// Sends a notification to itself, and waits for it as long as a call may take.
    fn is_notified(&self) -> Result<bool, StoreError> {
        let waker = self.waker()?;
        self.wake(&[], &[Effect::Wake(waker.id())]);
        let waited = poll::wait(&[waker.as_fd()], Some(self.server.connect_timeout()));
        let waited = waited.map_err(|source| StoreError::Io {
            action: "wait for a notification of",
            address: self.server.address().to_owned(),
            source,
        })?;
        Ok(waited.any())
    }
}
