//! Submission: the write transaction reads what admission control needs, and inserts what it decides.

use std::collections::{HashMap, HashSet};

use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::admission::{
    Existing, Insert, Known, Refusal, Replacement, Submission, Submitted, admit, replace,
};
use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{Run, Status};
use rusqlite::{named_params, params};

use super::tables::Tables;
use crate::StoreError;
use crate::runs::Requeue;
use crate::runs::columns::Columns;

impl Tables<'_> {
    /// Submits requests as admission control decides.
    pub(super) fn submit(
        &self,
        submission: &Submission<'_>,
    ) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        let admission = admit(submission, self.known(submission)?, self.now());
        for Insert { request, is_new_request, first } in &admission.inserts {
            let seq =
                if *is_new_request { self.insert_request(request)? } else { self.request_seq(&request.id)? };
            self.insert_run(seq, request, first)?;
        }
        Ok(admission.answer)
    }

    /// Submits requests whose ids may be in use.
    pub(super) fn replace_requests(
        &self,
        submission: &Submission<'_>,
    ) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        let existing = Existing::read(submission.requests, |id| {
            let Some(stored) = self.request(id)? else { return Ok(None) };
            Ok(Some((stored.request, self.latest_run(id)?)))
        })?;
        let queue_length = self.queue_length_for(submission)?;
        let replacements = match replace(submission, &existing, queue_length, self.now()) {
            Ok(replacements) => replacements,
            Err(refusal) => return Ok(Err(refusal)),
        };
        for Replacement { cancel, request, exists, first } in &replacements {
            if let Some(cancel) = cancel
                && !self.apply(cancel)?
            {
                return Err(StoreError::Mismatch(format!(
                    "run {} changed within a transaction",
                    cancel.run.id
                )));
            }
            let seq = if *exists { self.redefine_request(request)? } else { self.insert_request(request)? };
            self.insert_run(seq, request, first)?;
        }
        Ok(Ok(replacements.iter().map(Replacement::submitted).collect()))
    }

    /// Queues a new run of a request. False if the latest run of the request is not the expected one.
    pub(super) fn requeue(&self, requeue: &Requeue) -> Result<bool, StoreError> {
        let Some(stored) = self.request(&requeue.first.run.request)? else { return Ok(false) };
        if stored.latest != requeue.expected {
            return Ok(false);
        }
        let seq = self.request_seq(&stored.request.id)?;
        self.insert_run(seq, &stored.request, &requeue.first).map(|()| true)
    }

    fn known(&self, submission: &Submission<'_>) -> Result<Known, StoreError> {
        let (mut keys, mut ids) = (HashMap::new(), HashSet::new());
        for request in submission.requests {
            if let Some(key) = &request.key
                && let Some(known) = self.request_by_key(key)?
                && let Some(run) = known.latest
            {
                keys.insert(key.clone(), (known.request.id, run));
            }
            for id in request.after.iter().chain([&request.id]) {
                if !ids.contains(id) && self.has_request(id)? {
                    ids.insert(id.clone());
                }
            }
        }
        Ok(Known { keys, ids, queue_length: self.queue_length_for(submission)? })
    }

    /// How many runs are queued; 0 if that does not matter for the submission.
    fn queue_length_for(&self, submission: &Submission<'_>) -> Result<u64, StoreError> {
        if submission.queue_limit.is_some() { self.queue_length() } else { Ok(0) }
    }

    /// Inserts a new run of a request, with its first event.
    fn insert_run(&self, request_seq: i64, request: &Request, first: &Transition) -> Result<(), StoreError> {
        let Transition { run, event } = first;
        let seq = self.insert_run_row(request_seq, request, run)?;
        self.append(run, event)?;
        // A rejected run does not change the status of a request that has other runs.
        if run.status() == Status::Rejected {
            let sql = "UPDATE request SET status = ?1 WHERE seq = ?2 AND latest IS NULL";
            return self.execute(sql, params![RequestStatus::from(run).as_str(), request_seq]);
        }
        self.execute("UPDATE request SET latest = ?1 WHERE seq = ?2", params![seq, request_seq])?;
        self.set_request_status(request_seq, RequestStatus::from(run))
    }

    /// Inserts the row of a run. Returns its number.
    pub(super) fn insert_run_row(
        &self,
        request_seq: i64,
        request: &Request,
        run: &Run,
    ) -> Result<i64, StoreError> {
        // The worker of a stage claims its runs by their ids; no other worker may find them.
        let is_of_stage = request.conductor().is_some();
        let is_queued = run.status() == Status::Queued;
        let row = Columns::from(run);
        self.execute(
            "INSERT INTO run (id, request, status, attempt, claim, worker, holder, pid, pid_started, lease, token,
                 priority, ready, wish, queued_at, queued_moment, give_up_at, started_at, started_moment, timeout, retry_at,
                 completed_at, completed_moment, exit_code, signal, reason, message, help, events)
             VALUES (:id, :request, :status, :attempt, :claim, :worker, :holder, :pid, :pid_started, :lease, :token,
                 :priority, (SELECT CASE WHEN :is_of_stage THEN -1 WHEN :is_queued THEN unmet = 0 ELSE 1 END
                     FROM request WHERE seq = :request), :lease_key,
                 :queued_at, :queued_moment, :give_up_at, :started_at, :started_moment, :timeout, :retry_at,
                 :completed_at, :completed_moment, :exit_code, :signal, :reason, :message, :help, :version)",
            named_params! {
                ":id": row.id, ":request": request_seq, ":status": row.status, ":attempt": row.attempt,
                ":claim": row.claim, ":worker": row.worker, ":holder": row.holder, ":pid": row.pid,
                ":pid_started": row.pid_started, ":lease": row.lease, ":token": row.token,
                ":priority": request.priority.get(), ":is_of_stage": is_of_stage, ":is_queued": is_queued,
                ":lease_key": request.lease_key(), ":queued_at": row.queued_at,
                ":queued_moment": row.queued_moment, ":give_up_at": row.give_up_at,
                ":started_at": row.started_at, ":started_moment": row.started_moment, ":timeout": row.timeout,
                ":retry_at": row.retry_at, ":completed_at": row.completed_at,
                ":completed_moment": row.completed_moment, ":exit_code": row.exit_code, ":signal": row.signal,
                ":reason": row.reason, ":message": row.message, ":help": row.help, ":version": row.version,
            },
        )?;
        Ok(self.last_insert_rowid())
    }
}
