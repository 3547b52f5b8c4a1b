//! The tables of requests and runs. One program makes them, under an advisory lock.

use lockkeeper_core::run::{MOVES, Status};

use crate::postgres::rows::get;
use crate::postgres::{self, no_row};
use crate::{PostgresStore, StoreError};

/// The version of the tables. A newer one is refused.
const VERSION: i32 = FIRST + UPGRADES.len() as i32;
/// The version that [`SCHEMA`] makes.
const FIRST: i32 = 1;
/// What each later version adds.
const UPGRADES: [&str; 2] =
    [include_str!("output.sql"), concat!(include_str!("without_checks.sql"), include_str!("functions.sql"))];
const SCHEMA: &str = concat!(include_str!("tables.sql"), include_str!("functions.sql"));

/// Makes the tables where they are missing, and brings older ones up to date. Fails if they are of a newer version.
pub(super) fn set_up(leases: &PostgresStore) -> Result<(), StoreError> {
    let found =
        leases.call(|server| server.query("SELECT to_regclass('lockkeeper_runs.about') IS NOT NULL", &[]))?;
    let has_tables: bool = get(found.first().ok_or_else(no_row)?, 0)?;
    if !has_tables {
        let script = postgres::set_up("lockkeeper_runs", FIRST, &with_statuses(SCHEMA));
        leases.call(|server| server.execute(&script))?;
    }
    let found = leases.call(|server| server.query("SELECT version FROM lockkeeper_runs.about", &[]))?;
    let found: i32 = get(found.first().ok_or_else(no_row)?, 0)?;
    if found > VERSION {
        let address = leases.server.address().to_owned();
        return Err(StoreError::TooNew { address, found: found.into(), known: VERSION.into() });
    }
    for (version, script) in (FIRST..).zip(UPGRADES).filter(|(version, _)| *version >= found) {
        leases.call(|server| {
            server.execute(&postgres::upgrade("lockkeeper_runs", version, &with_statuses(script)))
        })?;
    }
    Ok(())
}

/// A script with the statuses and moves of runs.
fn with_statuses(script: &str) -> String {
    let any_of = |keep: fn(&Status) -> bool| {
        let words = Status::ALL.iter().filter(|status| keep(status)).map(|one| format!("'{one}'"));
        format!("status IN ({})", words.collect::<Vec<_>>().join(", "))
    };
    let moves = MOVES.iter().map(|one| format!("('{}', '{}')", one.from, one.to));
    let moves = format!("(old.status, new.status) IN ({})", moves.collect::<Vec<_>>().join(", "));
    script
        .replace("{statuses}", &any_of(|_| true))
        .replace("{terminal}", &any_of(|status| status.is_terminal()))
        .replace("{moves}", &moves)
}
