//! Runs as rows: one function each way, and impossible rows are refused.

use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, RequestId, Token};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::run::{Ending, Process, Reason, Run, Stamp, Status};
use lockkeeper_core::time::Moment;
use rusqlite::Row;

use super::Tables;
use crate::StoreError;

/// The columns that [`read_run`] reads, in its order.
pub(super) const COLUMNS: &str = "run.id, request.id, run.status, run.attempt, run.claim, run.worker, run.holder, \
    run.pid, run.pid_started, run.lease, run.token, run.queued_at, run.queued_moment, run.give_up_at, \
    run.started_at, run.started_moment, run.timeout, run.retry_at, run.completed_at, run.completed_moment, \
    run.exit_code, run.signal, run.reason, run.message, run.help";

/// The parts of a run as columns have them.
pub(super) struct Columns<'r> {
    pub(super) status: &'static str,
    pub(super) claim: i64,
    pub(super) worker: Option<&'r str>,
    pub(super) holder: Option<i64>,
    pub(super) pid: Option<u32>,
    pub(super) pid_started: Option<i64>,
    pub(super) lease: Option<i64>,
    pub(super) token: Option<i64>,
    pub(super) give_up_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) started_moment: Option<i64>,
    pub(super) timeout: Option<i64>,
    pub(super) retry_at: Option<i64>,
    pub(super) completed_at: Option<i64>,
    pub(super) completed_moment: Option<i64>,
    pub(super) exit_code: Option<u8>,
    pub(super) signal: Option<u8>,
    pub(super) reason: Option<&'static str>,
}

/// Takes a run apart.
pub(super) fn split(run: &Run) -> Columns<'_> {
    let command = run.process.and_then(|process| process.command);
    let (exit_code, signal) = match run.ending {
        Some(Ending::Exited(code)) => (Some(code), None),
        Some(Ending::Signaled(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    Columns {
        status: run.status.as_str(),
        claim: run.claim.cast_signed(),
        worker: run.worker.as_ref().map(|worker| worker.as_str()),
        holder: run.process.map(|process| process.holder.0.cast_signed()),
        pid: command.map(|command| command.pid),
        pid_started: command.map(|command| command.started.cast_signed()),
        lease: run.lease.map(|(lease, _)| lease.0.cast_signed()),
        token: run.lease.map(|(_, token)| token.0.cast_signed()),
        give_up_at: run.give_up_at.map(Moment::as_micros),
        started_at: run.started_at.map(|at| at.unix_micros),
        started_moment: run.started_at.map(|at| at.moment.as_micros()),
        timeout: run.timeout.map(|span| i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
        retry_at: run.retry_at.map(Moment::as_micros),
        completed_at: run.completed_at.map(|at| at.unix_micros),
        completed_moment: run.completed_at.map(|at| at.moment.as_micros()),
        exit_code,
        signal,
        reason: run.reason.map(Reason::as_str),
    }
}

/// Puts a run together, or says why it cannot be one.
pub(super) fn read_run(row: &Row<'_>) -> rusqlite::Result<Result<Run, String>> {
    let id: String = row.get(0)?;
    let request: String = row.get(1)?;
    let status: String = row.get(2)?;
    let worker: Option<String> = row.get(5)?;
    let unsigned =
        |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(i64::cast_unsigned));
    let moment =
        |column: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(Moment::from_micros));
    let stamp = |wall: usize, store: usize| {
        let (at, moment) = (row.get::<_, Option<i64>>(wall)?, moment(store)?);
        Ok::<_, rusqlite::Error>(at.zip(moment).map(|(unix_micros, moment)| Stamp { moment, unix_micros }))
    };
    let command = row.get::<_, Option<u32>>(7)?.zip(unsigned(8)?);
    let command = command.map(|(pid, started)| ProcessRef { pid, started });
    let process = unsigned(6)?.map(|holder| Process { holder: HolderId(holder), command });
    let lease = unsigned(9)?.zip(unsigned(10)?).map(|(lease, token)| (LeaseId(lease), Token(token)));
    let exited = row.get::<_, Option<u8>>(20)?.map(Ending::Exited);
    let ending = exited.or(row.get::<_, Option<u8>>(21)?.map(Ending::Signaled));
    let reason: Option<String> = row.get(22)?;
    let queued_at = Stamp { unix_micros: row.get(11)?, moment: Moment::from_micros(row.get(12)?) };
    let (attempt, claim) = (row.get(3)?, row.get::<_, i64>(4)?.cast_unsigned());
    let (give_up_at, started_at, retry_at) = (moment(13)?, stamp(14, 15)?, moment(17)?);
    let timeout = unsigned(16)?.map(Duration::from_micros);
    let (completed_at, message, help) = (stamp(18, 19)?, row.get(23)?, row.get(24)?);
    let build = || {
        let reason = match reason {
            Some(code) => Some(Reason::from_code(&code).ok_or_else(|| format!("the reason `{code}`"))?),
            None => None,
        };
        let worker = worker.map(|worker| worker.parse()).transpose();
        let run = Run {
            id: id.parse().map_err(|error| format!("{error}"))?,
            request: request.parse::<RequestId>().map_err(|error| format!("{error}"))?,
            status: status.parse::<Status>().map_err(|error| error.to_string())?,
            attempt,
            claim,
            worker: worker.map_err(|error| format!("{error}"))?,
            process,
            lease,
            queued_at,
            give_up_at,
            started_at,
            timeout,
            retry_at,
            completed_at,
            ending,
            reason,
            message,
            help,
        };
        run.check().map_err(|error| error.to_string())?;
        Ok(run)
    };
    Ok(build())
}

/// Which runs are listed.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only those in one of these states; all when there are none.
    pub statuses: Vec<Status>,
    /// Only those of this request.
    pub request: Option<RequestId>,
    /// Only those that came before the one with this id.
    pub before: Option<lockkeeper_core::id::RunId>,
    /// At most so many.
    pub limit: usize,
}

/// When the parts of a run's life were, on the wall clock in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What its request is about.
    pub title: String,
    /// Where it is.
    pub status: Status,
    /// How many attempts there were.
    pub attempts: u32,
    /// When it came.
    pub queued_at: i64,
    /// When somebody began with it first.
    pub claimed_at: Option<i64>,
    /// When it ended.
    pub completed_at: Option<i64>,
}

impl Tables<'_> {
    /// The times of all runs that came since then, the oldest first.
    pub fn timings(&self, since_unix_micros: i64) -> Result<Vec<Timing>, StoreError> {
        let sql = "SELECT request.title, run.status, run.attempt, run.queued_at,
                       CASE WHEN run.attempt = 1 THEN run.started_at ELSE
                           (SELECT min(event.at) FROM event WHERE event.run = run.seq AND event.kind = 'claimed')
                       END,
                       run.completed_at
                   FROM run JOIN request ON request.seq = run.request
                   WHERE run.queued_at >= ?1 ORDER BY run.seq";
        self.rows(sql, [since_unix_micros], |row| {
            let status: String = row.get(1)?;
            let (title, attempts, queued_at) = (row.get(0)?, row.get(2)?, row.get(3)?);
            let (claimed_at, completed_at) = (row.get(4)?, row.get(5)?);
            let status = status.parse::<Status>().map_err(|error| error.to_string());
            Ok(status.map(|status| Timing { title, status, attempts, queued_at, claimed_at, completed_at }))
        })
    }

    /// Runs, the latest first.
    pub fn runs(&self, filter: &Filter) -> Result<Vec<Run>, StoreError> {
        let mut conditions = Vec::new();
        let mut values: Vec<Box<dyn rusqlite::ToSql>> = Vec::new();
        if let Some(request) = &filter.request {
            values.push(Box::new(request.as_str().to_owned()));
            conditions.push(format!("request.id = ?{}", values.len()));
        }
        if let Some(before) = &filter.before {
            values.push(Box::new(before.as_str().to_owned()));
            conditions.push(format!("run.seq < (SELECT seq FROM run WHERE id = ?{})", values.len()));
        }
        let words: Vec<String> = filter.statuses.iter().map(|status| format!("'{status}'")).collect();
        if words.len() > 1 && filter.request.is_none() {
            // Several states are looked up one by one, so that what is read is not all that is in them.
            values.push(Box::new(i64::try_from(filter.limit).unwrap_or(i64::MAX)));
            let range = conditions.first().map_or("1", String::as_str);
            let each = words.iter().map(|word| {
                format!(
                    "SELECT * FROM (SELECT seq FROM run WHERE {range} AND run.status = {word}
                     ORDER BY seq DESC LIMIT ?{})",
                    values.len()
                )
            });
            conditions = vec![format!("run.seq IN ({})", each.collect::<Vec<_>>().join(" UNION ALL "))];
        } else if !words.is_empty() {
            conditions.push(format!("run.status IN ({})", words.join(", ")));
        }
        let condition =
            if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
        values.push(Box::new(i64::try_from(filter.limit).unwrap_or(i64::MAX)));
        let sql = format!(
            "SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request {condition}
             ORDER BY run.seq DESC LIMIT ?{}",
            values.len()
        );
        self.many(&sql, rusqlite::params_from_iter(values))
    }

    /// Runs whose id ends with this text, two at most.
    pub fn runs_ending_with(&self, text: &str) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request
             WHERE substr(run.id, -length(?1)) = ?1 LIMIT 2"
        );
        self.many(&sql, [text])
    }

    /// How many runs there are in each state that any is in.
    pub fn counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.rows("SELECT status, count(*) FROM run GROUP BY status", [], |row| {
            let (status, count) = (row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned());
            Ok(status.parse::<Status>().map(|status| (status, count)).map_err(|error| error.to_string()))
        })
    }
}
