//! A run as the columns of a database row, the same for all backends.

use std::str::FromStr;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, Name, Token};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Ending, Process, Reason, Run, RunRow, Stamp};
use lockkeeper_core::time::{Moment, Ttl};
use serde::Serialize;

/// The columns of a run. Texts are borrowed to write a run, and owned after reading one. Numbers are signed, as databases
/// have them.
#[derive(Serialize)]
pub(super) struct Columns<T> {
    pub(super) id: T,
    pub(super) request: T,
    pub(super) status: T,
    pub(super) attempt: i64,
    pub(super) claim: i64,
    pub(super) worker: Option<T>,
    pub(super) holder: Option<i64>,
    pub(super) pid: Option<i64>,
    pub(super) pid_started: Option<i64>,
    pub(super) lease: Option<i64>,
    pub(super) token: Option<i64>,
    pub(super) queued_at: i64,
    pub(super) queued_moment: i64,
    pub(super) give_up_at: Option<i64>,
    pub(super) started_at: Option<i64>,
    pub(super) started_moment: Option<i64>,
    pub(super) timeout: Option<i64>,
    pub(super) retry_at: Option<i64>,
    pub(super) completed_at: Option<i64>,
    pub(super) completed_moment: Option<i64>,
    pub(super) exit_code: Option<i64>,
    pub(super) signal: Option<i64>,
    pub(super) reason: Option<T>,
    pub(super) message: Option<T>,
    pub(super) help: bool,
    pub(super) version: i64,
}

impl<'r> From<&'r Run> for Columns<&'r str> {
    fn from(run: &'r Run) -> Self {
        let command = run.process().and_then(|process| process.command);
        let (exit_code, signal) = match run.ending() {
            Some(Ending::Exited(code)) => (Some(code.into()), None),
            Some(Ending::Signaled(signal)) => (None, Some(signal.into())),
            None => (None, None),
        };
        Self {
            id: run.id.as_str(),
            request: run.request.as_str(),
            status: run.status().as_str(),
            attempt: run.attempt().into(),
            claim: run.claim().cast_signed(),
            worker: run.worker().map(|worker| worker.as_str()),
            holder: run.process().map(|process| process.holder.0.cast_signed()),
            pid: command.map(|command| command.pid.into()),
            pid_started: command.map(|command| command.started.cast_signed()),
            lease: run.lease().map(|(lease, _)| lease.0.cast_signed()),
            token: run.lease().map(|(_, token)| token.0.cast_signed()),
            queued_at: run.queued_at.unix_micros,
            queued_moment: run.queued_at.moment.as_micros(),
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
            message: run.message(),
            help: run.help(),
            version: run.version.into(),
        }
    }
}

impl TryFrom<Columns<String>> for Run {
    type Error = String;

    /// Reads a run, or says why the row cannot be one.
    fn try_from(row: Columns<String>) -> Result<Self, String> {
        let stamp = |wall: Option<i64>, moment: Option<i64>| {
            wall.zip(moment)
                .map(|(unix_micros, moment)| Stamp { unix_micros, moment: Moment::from_micros(moment) })
        };
        let command = match row.pid.zip(row.pid_started) {
            Some((pid, started)) => {
                Some(ProcessRef { pid: number(pid, "pid")?, started: started.cast_unsigned() })
            }
            None => None,
        };
        let ending = match (row.exit_code, row.signal) {
            (Some(code), _) => Some(Ending::Exited(number(code, "exit code")?)),
            (None, Some(signal)) => Some(Ending::Signaled(number(signal, "signal")?)),
            (None, None) => None,
        };
        let reason = match row.reason {
            Some(code) => Some(Reason::from_code(&code).ok_or_else(|| format!("the reason `{code}`"))?),
            None => None,
        };
        let row = RunRow {
            id: parse(&row.id)?,
            request: parse(&row.request)?,
            version: number(row.version, "version")?,
            status: parse(&row.status)?,
            attempt: number(row.attempt, "attempt")?,
            claim: row.claim.cast_unsigned(),
            worker: row.worker.as_deref().map(parse).transpose()?,
            process: row.holder.map(|holder| Process { holder: HolderId(holder.cast_unsigned()), command }),
            lease: row
                .lease
                .zip(row.token)
                .map(|(lease, token)| (LeaseId(lease.cast_unsigned()), Token(token.cast_unsigned()))),
            queued_at: Stamp { unix_micros: row.queued_at, moment: Moment::from_micros(row.queued_moment) },
            give_up_at: row.give_up_at.map(Moment::from_micros),
            started_at: stamp(row.started_at, row.started_moment),
            timeout: row.timeout.map(|span| Duration::from_micros(span.cast_unsigned())),
            retry_at: row.retry_at.map(Moment::from_micros),
            completed_at: stamp(row.completed_at, row.completed_moment),
            ending,
            reason,
            message: row.message,
            help: row.help,
        };
        Self::try_from(row).map_err(|error| error.to_string())
    }
}

/// Parses a text of the database, or says what is wrong with it.
pub(super) fn parse<T: FromStr<Err: ToString>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// A number of the database as a smaller one, or what is wrong with it.
pub(super) fn number<T: TryFrom<i64>>(found: i64, what: &str) -> Result<T, String> {
    T::try_from(found).map_err(|_| format!("the {what} {found}"))
}

/// The span of a session, in microseconds, or what is wrong with it.
pub(super) fn session_from(micros: i64) -> Result<Ttl, String> {
    let span = Duration::from_micros(number(micros, "session")?);
    Ttl::new(span).map_err(|error| error.to_string())
}

/// A limit as SQL has it.
pub(super) fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The status of a request in the table: a request stays queued until its run has ended.
pub(super) fn stored_status(status: RequestStatus) -> RequestStatus {
    match status {
        RequestStatus::Queued | RequestStatus::Running => RequestStatus::Queued,
        RequestStatus::NeedsInput | RequestStatus::Failed | RequestStatus::Done | RequestStatus::Canceled => {
            status
        }
    }
}

/// Reads the status of a request in the table.
pub(super) fn read_status(text: &str) -> Result<RequestStatus, String> {
    let found = RequestStatus::ALL.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| format!("the state `{text}` of a request"))
}

/// A `LIKE` pattern that finds this text anywhere.
pub(super) fn pattern(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

/// Labels as a text: one in each line.
pub(super) fn write_labels(labels: &[Name]) -> String {
    labels.iter().map(Name::as_str).collect::<Vec<_>>().join("\n")
}

/// The labels of such a text.
pub(super) fn read_labels(text: &str) -> Result<Vec<Name>, String> {
    text.lines().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_of_a_text_are_escaped() {
        assert_eq!(pattern("50%_a\\b"), "%50\\%\\_a\\\\b%");
    }
}
