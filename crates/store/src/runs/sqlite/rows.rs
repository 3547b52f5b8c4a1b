//! Rows of the table of runs: columns to a run and back, and lists of runs.

use std::str::FromStr;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, Token};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Ending, Process, Reason, Run, RunRow, Stamp, Status};
use lockkeeper_core::time::Moment;
use rusqlite::Row;

use super::spec;
use super::tables::Tables;
use crate::StoreError;
use crate::runs::{RunFilter, Timing};

/// The columns that [`read_run`] reads, in its order.
pub(super) const COLUMNS: &str = "run.id, request.id, run.status, run.attempt, run.claim, run.worker, run.holder, \
    run.pid, run.pid_started, run.lease, run.token, run.queued_at, run.queued_moment, run.give_up_at, \
    run.started_at, run.started_moment, run.timeout, run.retry_at, run.completed_at, run.completed_moment, \
    run.exit_code, run.signal, run.reason, run.message, run.help, run.events";

/// The columns of a run that need a conversion.
pub(super) struct Columns {
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

impl From<&Run> for Columns {
    fn from(run: &Run) -> Self {
        let command = run.process().and_then(|process| process.command);
        let (exit_code, signal) = match run.ending() {
            Some(Ending::Exited(code)) => (Some(code), None),
            Some(Ending::Signaled(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        Self {
            holder: run.process().map(|process| process.holder.0.cast_signed()),
            pid: command.map(|command| command.pid),
            pid_started: command.map(|command| command.started.cast_signed()),
            lease: run.lease().map(|(lease, _)| lease.0.cast_signed()),
            token: run.lease().map(|(_, token)| token.0.cast_signed()),
            give_up_at: run.give_up_at().map(Moment::as_micros),
            started_at: run.started_at().map(|at| at.unix_micros),
            started_moment: run.started_at().map(|at| at.moment.as_micros()),
            timeout: run.timeout.map(|span| i64::try_from(span.as_micros()).unwrap_or(i64::MAX)),
            retry_at: run.retry_at().map(Moment::as_micros),
            completed_at: run.completed_at().map(|at| at.unix_micros),
            completed_moment: run.completed_at().map(|at| at.moment.as_micros()),
            exit_code,
            signal,
            reason: run.reason().map(Reason::as_str),
        }
    }
}

/// Reads a run, or says why the row cannot be one.
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
    let (completed_at, message, help, version) = (stamp(18, 19)?, row.get(23)?, row.get(24)?, row.get(25)?);
    let build = || {
        let reason = match reason {
            Some(code) => Some(Reason::from_code(&code).ok_or_else(|| format!("the reason `{code}`"))?),
            None => None,
        };
        let row = RunRow {
            id: parse(&id)?,
            request: parse(&request)?,
            version,
            status: parse(&status)?,
            attempt,
            claim,
            worker: worker.as_deref().map(parse).transpose()?,
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
        Run::try_from(row).map_err(|error| error.to_string())
    };
    Ok(build())
}

/// Reads a run and its request; `request.spec` is the column after those of the run.
pub(super) fn read_run_and_request(row: &Row<'_>) -> rusqlite::Result<Result<(Run, Request), String>> {
    let spec: String = row.get("spec")?;
    Ok(read_run(row)?.and_then(|run| Ok((run, spec::read(&spec)?))))
}

/// Parses a text of the database, or says what is wrong with it.
pub(super) fn parse<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

impl Tables<'_> {
    /// The timestamps of all runs that were submitted since then, the oldest first.
    pub(super) fn timings(&self, since_unix_micros: i64) -> Result<Vec<Timing>, StoreError> {
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

    /// The runs that match, the latest first.
    pub(super) fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
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
            // Each status is looked up by itself, so that SQLite does not read all runs that have one of them.
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
    pub(super) fn runs_ending_with(&self, text: &str) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM run JOIN request ON request.seq = run.request
             WHERE substr(run.id, -length(?1)) = ?1 LIMIT 2"
        );
        self.many(&sql, [text])
    }

    /// How many runs have each status.
    pub(super) fn run_counts(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        self.rows("SELECT status, count(*) FROM run GROUP BY status", [], |row| {
            let (status, count) = (row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned());
            Ok(status.parse::<Status>().map(|status| (status, count)).map_err(|error| error.to_string()))
        })
    }
}
