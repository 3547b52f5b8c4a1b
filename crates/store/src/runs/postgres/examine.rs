//! Looks for contradictions between the tables.

use super::PostgresRunStore;
use super::rows::param;
use crate::postgres::no_row;
use crate::postgres::rows::get;
use crate::{Examination, StoreError};

/// Contradictions that an intact database does not have: what the report says, and a query that counts them.
const CONTRADICTIONS: [(&str, &str); 5] = [
    (
        "runs belong to no request",
        "SELECT count(*) FROM lockkeeper_runs.run WHERE project = $1 AND NOT EXISTS (
            SELECT FROM lockkeeper_runs.request WHERE request.project = $1 AND request.seq = run.request)",
    ),
    (
        "requests lead to no run",
        "SELECT count(*) FROM lockkeeper_runs.request WHERE project = $1 AND latest IS NOT NULL AND NOT EXISTS (
            SELECT FROM lockkeeper_runs.run WHERE run.project = $1 AND run.seq = request.latest)",
    ),
    (
        "events belong to no run",
        "SELECT count(*) FROM lockkeeper_runs.event WHERE project = $1 AND NOT EXISTS (
            SELECT FROM lockkeeper_runs.run WHERE run.project = $1 AND run.seq = event.run)",
    ),
    (
        "runs do not have the events that they count",
        "SELECT count(*) FROM lockkeeper_runs.run WHERE project = $1 AND (
            version <> (SELECT count(*) FROM lockkeeper_runs.event WHERE event.run = run.seq)
            OR version <> (SELECT coalesce(max(event.seq), 0) FROM lockkeeper_runs.event WHERE event.run = run.seq))",
    ),
    (
        "requests count their dependencies wrong",
        "SELECT count(*) FROM lockkeeper_runs.request AS later WHERE project = $1 AND unmet <> (
            SELECT count(*) FROM lockkeeper_runs.dependency
            JOIN lockkeeper_runs.request AS before ON before.project = $1 AND before.seq = dependency.after
            WHERE dependency.request = later.seq AND before.status <> 'DONE')",
    ),
];

/// Looks for damage without changing anything.
pub(super) fn examine(store: &PostgresRunStore, thorough: bool) -> Result<Examination, StoreError> {
    let sql = "SELECT 'PostgreSQL ' || current_setting('server_version'), (SELECT version::bigint FROM lockkeeper_runs.about)";
    let about = store.query(sql, &[])?;
    let about = about.first().ok_or_else(no_row)?;
    let mut flaws = Vec::new();
    if thorough {
        // One snapshot for all counts: what belongs together is committed together.
        let records = super::snapshot::Snapshot::begin(store)?;
        for (what, sql) in CONTRADICTIONS {
            let rows = records.query(sql, &[param(&store.project())])?;
            let count: i64 = get(rows.first().ok_or_else(no_row)?, 0)?;
            flaws.extend((count > 0).then(|| format!("{count} {what}")));
        }
    }
    Ok(Examination { backend: get(about, 0)?, schema: Some(get(about, 1)?), flaws, risks: Vec::new() })
}
