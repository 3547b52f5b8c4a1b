//! Replacement of requests, and changes of their priority.

use std::collections::HashMap;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::record::Priority;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::admission::{Existing, Refusal, Replacement, Submission, Submitted, replace};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresRunStore;
use super::rows::{
    COLUMNS, Definition, NewEvent, NewRun, Next, SELECT_STORED, json, param, run_from, stored_from,
};
use super::submit::{OWN_REQUESTS, appended};
use super::transaction::{Read, Write};
use crate::StoreError;
use crate::postgres::no_row;
use crate::postgres::rows::get;
use crate::runs::spec;

/// Locks requests, with those that depend on them.
const LOCK_REQUESTS: &str = "SELECT lockkeeper_runs.lock_requests($1, ARRAY(
    SELECT seq FROM lockkeeper_runs.request WHERE project = $1 AND id = ANY ($2)))";
/// Locks their latest runs, so that nobody claims them.
const LOCK_RUNS: &str = "SELECT FROM lockkeeper_runs.run WHERE project = $1 AND seq IN (
    SELECT latest FROM lockkeeper_runs.request WHERE project = $1 AND id = ANY ($2)) ORDER BY seq FOR NO KEY UPDATE";
/// Requests, and all that they depend on, directly or through others.
const REACHED: &str = "WITH RECURSIVE reached AS (
        SELECT seq FROM lockkeeper_runs.request WHERE project = $1 AND id = ANY ($2)
        UNION SELECT dependency.after FROM lockkeeper_runs.dependency JOIN reached ON dependency.request = reached.seq
    )";

impl PostgresRunStore {
    /// Submits requests whose ids may be in use.
    pub(super) fn replace_requests(
        &self,
        submission: &Submission<'_>,
    ) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        let (project, call) = (self.project(), self.leases.call_number()?);
        let ids: Vec<&str> = submission.requests.iter().map(|request| request.id.as_str()).collect();
        let after = submission.requests.iter().flat_map(|request| &request.after).map(|id| id.as_str());
        let with_after: Vec<&str> = ids.iter().copied().chain(after).collect();
        let is_limited = submission.queue_limit.is_some();
        let of_project = [param(&project)];
        let of_ids = [param(&project), param(&ids)];
        let reach = [param(&project), param(&with_after)];
        let length = [param(&project), param(&is_limited)];
        let specs = format!(
            "{REACHED} SELECT spec FROM lockkeeper_runs.request WHERE project = $1 AND seq IN (SELECT seq FROM reached)"
        );
        let runs = format!(
            "{REACHED} SELECT {COLUMNS} FROM lockkeeper_runs.record WHERE project = $1 AND seq IN (
                SELECT latest FROM lockkeeper_runs.request WHERE project = $1 AND seq IN (SELECT seq FROM reached))"
        );
        // Exclusive, because other submissions may read the dependencies that change.
        let reads = [
            (OWN_REQUESTS, &of_project[..]),
            (LOCK_REQUESTS, &of_ids[..]),
            (LOCK_RUNS, &of_ids[..]),
            (specs.as_str(), &reach[..]),
            (runs.as_str(), &reach[..]),
            (
                "SELECT count(*) FROM lockkeeper_runs.run WHERE project = $1 AND $2 AND status = 'queued'",
                &length[..],
            ),
        ];
        self.transaction(&reads, |Read { rows, now, .. }| {
            let found = self.found(&rows[3], &rows[4])?;
            let existing =
                Existing::read(submission.requests, |id| Ok::<_, StoreError>(found.get(id).cloned()))?;
            let queue_length: i64 = get(rows[5].first().ok_or_else(no_row)?, 0)?;
            Ok(match replace(submission, &existing, queue_length.cast_unsigned(), now) {
                Ok(replacements) => {
                    let answer = replacements.iter().map(Replacement::submitted).collect();
                    (replaced(project, call, &replacements), Ok(answer))
                }
                Err(refusal) => (Vec::new(), Err(refusal)),
            })
        })
    }

    /// Requests with their latest runs.
    fn found(
        &self,
        specs: &[Row],
        runs: &[Row],
    ) -> Result<HashMap<RequestId, (Request, Option<Run>)>, StoreError> {
        let mut found = HashMap::new();
        for row in specs {
            let request = spec::read(get(row, 0)?).map_err(|what| self.damaged(what))?;
            found.insert(request.id.clone(), (request, None));
        }
        for row in runs {
            let run = run_from(row)?.map_err(|what| self.damaged(what))?;
            if let Some((_, latest)) = found.get_mut(&run.request) {
                *latest = Some(run);
            }
        }
        Ok(found)
    }

    /// Changes the priority of a request and of its queued run.
    pub(super) fn change_priority(&self, id: &RequestId, priority: Priority) -> Result<bool, StoreError> {
        let (project, ids) = (self.project(), vec![id.as_str()]);
        let of_ids = [param(&project), param(&ids)];
        let stored = format!("{SELECT_STORED} WHERE request.project = $1 AND request.id = ANY ($2)");
        let reads = [(LOCK_REQUESTS, &of_ids[..]), (stored.as_str(), &of_ids[..])];
        self.transaction(&reads, |Read { rows, .. }| {
            let Some(row) = rows[1].first() else { return Ok((Vec::new(), false)) };
            let stored = stored_from(row)?.map_err(|what| self.damaged(what))?;
            let request = Request { priority, ..stored.request };
            let write = Write {
                sql: "WITH changed AS (
                        UPDATE lockkeeper_runs.request SET spec = $3, priority = $4 WHERE project = $1 AND id = $2 RETURNING seq
                      ) UPDATE lockkeeper_runs.run SET rank = -$4
                        FROM changed WHERE project = $1 AND request = changed.seq AND status = 'queued'",
                params: vec![
                    (Box::new(project), Type::INT4),
                    (Box::new(id.to_string()), Type::TEXT),
                    (Box::new(spec::write(&request)), Type::TEXT),
                    (Box::new(priority.get()), Type::INT4),
                ],
            };
            Ok((vec![write], true))
        })
    }
}

/// The statements that write replacements: queued runs are canceled, then definitions and new runs are written in order.
fn replaced(project: i32, call: i64, replacements: &[Replacement<'_>]) -> Vec<Write> {
    if replacements.is_empty() {
        return Vec::new();
    }
    let cancels = json(replacements.iter().filter_map(|one| one.cancel.as_ref()).map(Next::from));
    let runs = json(replacements.iter().map(|one| {
        let definition = if one.exists { Definition::Replaced } else { Definition::New };
        NewRun::new(one.request, &one.first, definition)
    }));
    let transitions = replacements.iter().flat_map(|one| one.cancel.iter().chain([&one.first]));
    let events: Vec<NewEvent<'_>> = transitions.map(NewEvent::from).collect();
    vec![
        Write {
            sql: "SELECT lockkeeper_runs.move($1, $2, $3)",
            params: vec![
                (Box::new(project), Type::INT4),
                (Box::new(call), Type::INT8),
                (Box::new(cancels), Type::TEXT),
            ],
        },
        Write {
            sql: "SELECT lockkeeper_runs.insert($1, $2)",
            params: vec![(Box::new(project), Type::INT4), (Box::new(runs), Type::TEXT)],
        },
        appended(project, call, events),
    ]
}
