//! Removal of all records of a project.

use super::PostgresRunStore;
use super::rows::param;
use super::snapshot::Snapshot;
use crate::StoreError;

/// Removes all requests and runs. Rows that refer to others come first.
pub(super) const RECORDS: [&str; 7] = [
    "DELETE FROM lockkeeper_runs.dependency WHERE request IN (
        SELECT seq FROM lockkeeper_runs.request WHERE project = $1)",
    "DELETE FROM lockkeeper_runs.event WHERE project = $1",
    "DELETE FROM lockkeeper_runs.output WHERE project = $1",
    "DELETE FROM lockkeeper_runs.run WHERE project = $1",
    "DELETE FROM lockkeeper_runs.request WHERE project = $1",
    "DELETE FROM lockkeeper_runs.auto_run WHERE project = $1",
    "DELETE FROM lockkeeper_runs.pruned WHERE project = $1",
];
/// Removes the rest of a project.
const REST: [&str; 8] = [
    "DELETE FROM lockkeeper_runs.worker WHERE project = $1",
    "DELETE FROM lockkeeper.record WHERE project = $1",
    "DELETE FROM lockkeeper.key WHERE project = $1",
    "DELETE FROM lockkeeper.part WHERE project = $1",
    "DELETE FROM lockkeeper.decision WHERE project = $1",
    "DELETE FROM lockkeeper.moved WHERE project = $1",
    "DELETE FROM lockkeeper.clock WHERE project = $1",
    "DELETE FROM lockkeeper.project WHERE id = $1",
];

impl PostgresRunStore {
    /// Removes the project with all its leases, requests and runs. No process may use it any more.
    pub fn remove_project(self) -> Result<(), StoreError> {
        let project = self.project();
        let transaction = Snapshot::begin_to_write(&self)?;
        for sql in RECORDS.iter().chain(&REST) {
            transaction.query(sql, &[param(&project)])?;
        }
        transaction.query("COMMIT", &[]).map(|_| ())
    }
}
