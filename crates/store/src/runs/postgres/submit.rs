//! Submissions, claims and pruning: decisions that need facts of a write transaction.

use std::collections::HashMap;

use lockkeeper_core::id::RequestId;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::admission::{Insert, Known, Refusal, Submission, Submitted, admit};
use lockkeeper_core::run::transition::{self, Claimant, Transition};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresRunStore;
use super::rows::{
    COLUMNS, Definition, NewEvent, NewRun, Next, SELECT_STORED, json, param, run_and_request_from,
    stored_from,
};
use super::transaction::{Read, Write};
use crate::StoreError;
use crate::postgres::no_row;
use crate::postgres::rows::get;
use crate::runs::columns::parse;
use crate::runs::prunable::Old;
use crate::runs::{ClaimOrder, Claims, MovedAndClaimed, Removed, Requeue, StoredRequest};

/// A lock that submissions take shared and a prune exclusively: no new request can depend on a request that is being removed.
const SHARE_REQUESTS: &str =
    "SELECT pg_advisory_xact_lock_shared(hashtextextended($1::integer || ' requests', 0))";
pub(super) const OWN_REQUESTS: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended($1::integer || ' requests', 0))";

impl PostgresRunStore {
    /// Submits requests as admission control decides.
    pub(super) fn submit_requests(
        &self,
        submission: &Submission<'_>,
    ) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        let (project, call) = (self.project(), self.leases.call_number()?);
        let requests = submission.requests;
        let keys: Vec<&str> = requests.iter().filter_map(|request| request.key.as_deref()).collect();
        let ids: Vec<&str> = requests.iter().map(|request| request.id.as_str()).collect();
        let after: Vec<&str> =
            requests.iter().flat_map(|request| &request.after).map(|id| id.as_str()).collect();
        let mut names: Vec<String> = keys.iter().map(|key| format!("key {key}")).collect();
        names.extend(ids.iter().map(|id| format!("request {id}")));
        // Submissions with a queue limit run one after the other, so that each counts the queue correctly.
        names.extend(submission.queue_limit.map(|_| "queue limit".to_owned()));
        let is_limited = submission.queue_limit.is_some();
        let of_project = [param(&project)];
        let locks = [param(&project), param(&names)];
        let by_key = [param(&project), param(&keys)];
        let by_id = [param(&project), param(&ids)];
        let dependencies = [param(&project), param(&after)];
        let length = [param(&project), param(&is_limited)];
        let reads = [
            (SHARE_REQUESTS, &of_project[..]),
            ("SELECT lockkeeper_runs.lock_names($1, $2)", &locks[..]),
            (
                "SELECT request.key, request.id, run.id FROM lockkeeper_runs.request
                 JOIN lockkeeper_runs.run ON run.project = $1 AND run.seq = request.latest
                 WHERE request.project = $1 AND request.key = ANY ($2)",
                &by_key[..],
            ),
            ("SELECT id FROM lockkeeper_runs.request WHERE project = $1 AND id = ANY ($2)", &by_id[..]),
            // Locked, so that their statuses do not change before the commit.
            (
                "SELECT id FROM lockkeeper_runs.request WHERE project = $1 AND id = ANY ($2) ORDER BY seq FOR SHARE",
                &dependencies[..],
            ),
            (
                "SELECT count(*) FROM lockkeeper_runs.run WHERE project = $1 AND $2 AND status = 'queued'",
                &length[..],
            ),
        ];
        self.transaction(&reads, |Read { rows, now, .. }| {
            let known = self.known(&rows[2..])?;
            let admission = admit(submission, known, now);
            let new = admission.inserts.iter().map(|Insert { request, is_new_request, first }| {
                let definition = if *is_new_request { Definition::New } else { Definition::Kept };
                (NewRun::new(request, first, definition), NewEvent::from(first))
            });
            Ok((inserted(project, call, new), admission.answer.clone()))
        })
    }

    /// What the store has that matters for a submission: rows of keys, ids, dependencies, and the length of the queue.
    fn known(&self, rows: &[Vec<Row>]) -> Result<Known, StoreError> {
        let mut known = Known::default();
        for row in &rows[0] {
            let (request, run): (&str, &str) = (get(row, 1)?, get(row, 2)?);
            let found = parse(request).and_then(|request| Ok((request, parse(run)?)));
            known.keys.insert(get(row, 0)?, found.map_err(|what| self.damaged(what))?);
        }
        for row in rows[1].iter().chain(&rows[2]) {
            known.ids.insert(parse(get(row, 0)?).map_err(|what| self.damaged(what))?);
        }
        known.queue_length = get::<i64>(rows[3].first().ok_or_else(no_row)?, 0)?.cast_unsigned();
        Ok(known)
    }

    /// Queues new runs of requests whose latest run is the expected one.
    pub(super) fn requeue_runs(&self, runs: &[Requeue]) -> Result<Vec<bool>, StoreError> {
        let (project, call) = (self.project(), self.leases.call_number()?);
        let ids: Vec<&str> = runs.iter().map(|requeue| requeue.first.run.request.as_str()).collect();
        let of_project = [param(&project)];
        let params = [param(&project), param(&ids)];
        let stored = format!("{SELECT_STORED} WHERE request.project = $1 AND request.id = ANY ($2)");
        let reads = [
            (SHARE_REQUESTS, &of_project[..]),
            (
                "SELECT lockkeeper_runs.lock_requests($1, ARRAY(
                    SELECT seq FROM lockkeeper_runs.request WHERE project = $1 AND id = ANY ($2)))",
                &params[..],
            ),
            (stored.as_str(), &params[..]),
        ];
        self.transaction(&reads, |Read { rows, .. }| {
            let mut found: HashMap<RequestId, StoredRequest> = HashMap::new();
            for row in &rows[2] {
                let stored = stored_from(row)?.map_err(|what| self.damaged(what))?;
                found.insert(stored.request.id.clone(), stored);
            }
            let mut queued: Vec<(Request, &Transition)> = Vec::new();
            let mut answers = Vec::new();
            for Requeue { first, expected } in runs {
                let stored = found.get_mut(&first.run.request).filter(|stored| stored.latest == *expected);
                answers.push(stored.is_some());
                if let Some(stored) = stored {
                    stored.latest = Some(first.run.id.clone());
                    queued.push((stored.request.clone(), first));
                }
            }
            let new = queued.iter().map(|(request, first)| {
                (NewRun::new(request, first, Definition::Kept), NewEvent::from(*first))
            });
            Ok((inserted(project, call, new), answers))
        })
    }

    /// Writes transitions, then claims runs.
    pub(super) fn move_then_claim(
        &self,
        transitions: &[Transition],
        claims: &Claims<'_>,
    ) -> Result<MovedAndClaimed, StoreError> {
        let (project, call) = (self.project(), self.leases.call_number()?);
        let next = json(transitions.iter().map(Next::from));
        let limit = i32::try_from(claims.locks.len()).unwrap_or(i32::MAX);
        let is_strict = claims.order == ClaimOrder::Strict;
        let moves = [param(&project), param(&call), param(&next)];
        let take = [param(&project), param(&limit), param(&is_strict), param(&call)];
        let select = format!(
            "SELECT {COLUMNS}, spec, seq, rank FROM lockkeeper_runs.take($1, $4, lockkeeper.moment($1), $2, $3)"
        );
        let mut reads = vec![(select.as_str(), &take[..])];
        if !transitions.is_empty() {
            reads.insert(0, ("SELECT lockkeeper_runs.move($1, $2, $3)", &moves[..]));
        }
        let (applied, claimed) = self.transaction(&reads, |Read { rows, now, is_silent }| {
            let (moved, taken) = rows.split_at(rows.len() - 1);
            let moved = moved.first().and_then(|rows| rows.first());
            let applied: Vec<bool> = moved.map_or_else(|| Ok(Vec::new()), |row| get(row, 0))?;
            let candidates = if is_silent { Vec::new() } else { self.in_order(&taken[0])? };
            let mut claimed: Vec<(Transition, Request)> = Vec::new();
            for ((run, request), lock) in candidates.into_iter().zip(claims.locks) {
                if !request.is_plain() || run.is_given_up(now.moment) {
                    break;
                }
                let claimant = Claimant { worker: claims.worker.clone(), holder: Some(*lock), lease: None };
                let Ok(claim) = transition::claim(&run, claimant, now) else { break };
                claimed.push((claim, request));
            }
            if claimed.is_empty() && !applied.contains(&true) {
                return Ok((Vec::new(), (applied, Vec::new())));
            }
            let claims = claimed.iter().map(|(claim, _)| claim);
            let events = json(transitions.iter().chain(claims.clone()).map(NewEvent::from));
            let write = Write {
                sql: "SELECT lockkeeper_runs.append($1, $2, $3, $4 || claimed)
                      FROM lockkeeper_runs.move($1, $2, $5) AS claimed",
                params: vec![
                    (Box::new(project), Type::INT4),
                    (Box::new(call), Type::INT8),
                    (Box::new(events), Type::TEXT),
                    (Box::new(applied.clone()), Type::BOOL_ARRAY),
                    (Box::new(json(claims.map(Next::from))), Type::TEXT),
                ],
            };
            let claimed = claimed.into_iter().map(|(claim, request)| (claim.run, request)).collect();
            Ok((vec![write], (applied, claimed)))
        })?;
        Ok(MovedAndClaimed { moved: self.moved(transitions, &applied)?, claimed })
    }

    /// Runs that were taken, in the order of the queue: by priority, and among equals the due attempts first.
    fn in_order(&self, rows: &[Row]) -> Result<Vec<(Run, Request)>, StoreError> {
        let mut taken = Vec::new();
        for row in rows {
            let (run, request) = run_and_request_from(row)?.map_err(|what| self.damaged(what))?;
            let (seq, rank): (i64, i32) = (get(row, 27)?, get(row, 28)?);
            let retry_at = run.retry_at();
            taken.push(((rank, retry_at.is_none(), retry_at, seq), (run, request)));
        }
        taken.sort_by_key(|(key, _)| *key);
        Ok(taken.into_iter().map(|(_, taken)| taken).collect())
    }

    /// Removes requests that ended before this time, with all runs and events.
    pub(super) fn prune_requests(&self, before_unix_micros: i64) -> Result<Vec<Removed>, StoreError> {
        let project = self.project();
        let of_project = [param(&project)];
        let ended = [param(&project), param(&before_unix_micros)];
        let reads = [
            (OWN_REQUESTS, &of_project[..]),
            (super::requests::ENDED, &ended[..]),
            (super::requests::EDGES, &of_project[..]),
        ];
        self.transaction(&reads, |Read { rows, .. }| {
            let old = super::requests::old_from(&rows[1], &rows[2])?.map_err(|what| self.damaged(what))?;
            let seqs: Vec<i64> = old.iter().map(|old| old.seq).collect();
            let writes = if seqs.is_empty() { Vec::new() } else { removal(project, &seqs) };
            let removed = old.into_iter().map(|Old { request, runs, .. }| Removed { request, runs });
            Ok((writes, removed.collect()))
        })
    }
}

/// The statements that insert new runs with their events.
fn inserted<'r>(
    project: i32,
    call: i64,
    new: impl Iterator<Item = (NewRun<'r>, NewEvent<'r>)>,
) -> Vec<Write> {
    let (runs, events): (Vec<_>, Vec<_>) = new.unzip();
    if runs.is_empty() {
        return Vec::new();
    }
    vec![
        Write {
            sql: "SELECT lockkeeper_runs.insert($1, $2)",
            params: vec![(Box::new(project), Type::INT4), (Box::new(json(runs.into_iter())), Type::TEXT)],
        },
        appended(project, call, events),
    ]
}

/// The statement that appends the events of changes that were all made.
pub(super) fn appended(project: i32, call: i64, events: Vec<NewEvent<'_>>) -> Write {
    let applied = vec![true; events.len()];
    Write {
        sql: "SELECT lockkeeper_runs.append($1, $2, $3, $4)",
        params: vec![
            (Box::new(project), Type::INT4),
            (Box::new(call), Type::INT8),
            (Box::new(json(events.into_iter())), Type::TEXT),
            (Box::new(applied), Type::BOOL_ARRAY),
        ],
    }
}

/// The statements that remove requests. The last position stays known.
fn removal(project: i32, seqs: &[i64]) -> Vec<Write> {
    let both = || -> Vec<(Box<dyn tokio_postgres::types::ToSql + Sync>, Type)> {
        vec![(Box::new(project), Type::INT4), (Box::new(seqs.to_vec()), Type::INT8_ARRAY)]
    };
    let statements = [
        "INSERT INTO lockkeeper_runs.pruned
         SELECT $1, max(position) FROM lockkeeper_runs.event WHERE project = $1 AND $2::bigint[] IS NOT NULL
         ON CONFLICT (project) DO UPDATE SET position = greatest(pruned.position, excluded.position)",
        "DELETE FROM lockkeeper_runs.event WHERE project = $1 AND run IN (
            SELECT seq FROM lockkeeper_runs.run WHERE project = $1 AND request = ANY ($2))",
        "DELETE FROM lockkeeper_runs.output WHERE project = $1 AND run IN (
            SELECT seq FROM lockkeeper_runs.run WHERE project = $1 AND request = ANY ($2))",
        "DELETE FROM lockkeeper_runs.run WHERE project = $1 AND request = ANY ($2)",
        "DELETE FROM lockkeeper_runs.dependency
         WHERE $1::integer IS NOT NULL AND (request = ANY ($2) OR after = ANY ($2))",
        "DELETE FROM lockkeeper_runs.request WHERE project = $1 AND seq = ANY ($2)",
    ];
    statements.into_iter().map(|sql| Write { sql, params: both() }).collect()
}
