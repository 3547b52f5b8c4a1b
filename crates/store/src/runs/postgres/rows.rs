//! Rows: runs, requests and events as JSON for the server's functions, and back from rows.

use lockkeeper_core::request::{Request, RequestStatus};
use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{EventId, Run, Status};
use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::StoreError;
use crate::postgres::rows::get;
use crate::runs::columns::{Columns, number, parse, read_status, stored_status};
use crate::runs::{StoredEvent, StoredRequest, spec};

/// The columns that [`run_from`] reads, in its order.
pub(super) const COLUMNS: &str = "id, request, status, attempt, claim, worker, holder, pid, pid_started, lease, token, queued_at, \
    queued_moment, give_up_at, started_at, started_moment, timeout, retry_at, completed_at, completed_moment, exit_code, signal, \
    reason, message, help, version";
/// The column after those of the run.
const SPEC: usize = 26;

/// A parameter of a statement, and its type on the server.
pub(super) trait Parameter: ToSql + Sync {
    const TYPE: Type;
}

macro_rules! parameters {
    ($($rust:ty => $sql:ident,)+) => { $(impl Parameter for $rust { const TYPE: Type = Type::$sql; })+ };
}

parameters! {
    i32 => INT4,
    i64 => INT8,
    Option<i64> => INT8,
    &str => TEXT,
    String => TEXT,
    Option<&str> => TEXT,
    Option<String> => TEXT,
    bool => BOOL,
    Vec<bool> => BOOL_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<&[u8]> => BYTEA_ARRAY,
    Vec<&str> => TEXT_ARRAY,
    Vec<String> => TEXT_ARRAY,
    Option<Vec<&'static str>> => TEXT_ARRAY,
    Option<Vec<String>> => TEXT_ARRAY,
}

/// A parameter of a statement, with its type: so the statement needs no round trip to be prepared.
pub(super) fn param<T: Parameter>(value: &T) -> (&(dyn ToSql + Sync), Type) {
    (value, T::TYPE)
}

/// The next record of a run, for `lockkeeper_runs.move`.
#[derive(Serialize)]
pub(super) struct Next<'r> {
    #[serde(flatten)]
    columns: Columns<&'r str>,
    request_status: Option<&'static str>,
}

impl<'r> From<&'r Transition> for Next<'r> {
    fn from(transition: &'r Transition) -> Self {
        let run = &transition.run;
        let request_status =
            run.status().is_terminal().then(|| stored_status(RequestStatus::from(run)).as_str());
        Self { columns: Columns::from(run), request_status }
    }
}

/// What a new run says about the definition of its request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Definition {
    /// The request exists and stays as it is.
    Kept,
    /// The request is new.
    New,
    /// The request exists and gets a new definition.
    Replaced,
}

/// A new run, for `lockkeeper_runs.insert`.
#[derive(Serialize)]
pub(super) struct NewRun<'r> {
    #[serde(flatten)]
    columns: Columns<&'r str>,
    request_status: &'static str,
    is_new_request: bool,
    is_redefined: bool,
    title: &'r str,
    spec: String,
    priority: i32,
    key: Option<&'r str>,
    after: Vec<&'r str>,
    created_at: i64,
    wish: String,
    by_id: bool,
}

impl<'r> NewRun<'r> {
    pub(super) fn new(request: &'r Request, first: &'r Transition, definition: Definition) -> Self {
        Self {
            columns: Columns::from(&first.run),
            request_status: stored_status(RequestStatus::from(&first.run)).as_str(),
            is_new_request: definition == Definition::New,
            is_redefined: definition == Definition::Replaced,
            title: &request.title,
            spec: spec::write(request),
            priority: request.priority.get(),
            key: request.key.as_deref(),
            after: request.after.iter().map(|id| id.as_str()).collect(),
            created_at: first.event.at.unix_micros,
            wish: request.lease_key(),
            // The worker of a stage claims its runs by their ids; no other worker may find them.
            by_id: request.conductor().is_some(),
        }
    }
}

/// An event, with the names of `lockkeeper_runs.new_event`.
#[derive(Serialize)]
pub(super) struct NewEvent<'r> {
    run: &'r str,
    seq: u32,
    at: i64,
    kind: &'r str,
    from_status: Option<&'r str>,
    to_status: &'r str,
    attempt: u32,
    claim: i64,
    reason: Option<&'r str>,
    message: Option<&'r str>,
}

impl<'r> From<&'r Transition> for NewEvent<'r> {
    fn from(Transition { run, event }: &'r Transition) -> Self {
        Self {
            run: run.id.as_str(),
            seq: run.version,
            at: event.at.unix_micros,
            kind: event.kind.as_str(),
            from_status: event.from.map(Status::as_str),
            to_status: event.to.as_str(),
            attempt: run.attempt(),
            claim: run.claim().cast_signed(),
            reason: event.reason.map(|reason| reason.as_str()),
            message: event.message.as_deref(),
        }
    }
}

impl<'r> From<&'r StoredEvent> for NewEvent<'r> {
    fn from(event: &'r StoredEvent) -> Self {
        Self {
            run: event.id.run.as_str(),
            seq: event.id.seq,
            at: event.at,
            kind: &event.kind,
            from_status: event.from.as_deref(),
            to_status: &event.to,
            attempt: event.attempt,
            claim: event.claim.cast_signed(),
            reason: event.reason.as_deref(),
            message: event.message.as_deref(),
        }
    }
}

/// A list as JSON. PostgreSQL cannot store a NUL in a text: each becomes a replacement character.
pub(super) fn json<T: Serialize>(list: impl Iterator<Item = T>) -> String {
    let list: Vec<T> = list.collect();
    let text = serde_json::to_string(&list).expect("texts and numbers can always be written");
    if !text.contains("\\u0000") {
        return text;
    }
    let mut value = serde_json::to_value(&list).expect("texts and numbers can always be written");
    replace_nul(&mut value);
    value.to_string()
}

fn replace_nul(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace('\0', "\u{fffd}"),
        Value::Array(items) => items.iter_mut().for_each(replace_nul),
        Value::Object(fields) => fields.values_mut().for_each(replace_nul),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads a run, or says why the row cannot be one.
pub(super) fn run_from(row: &Row) -> Result<Result<Run, String>, StoreError> {
    let columns = Columns {
        id: get(row, 0)?,
        request: get(row, 1)?,
        status: get(row, 2)?,
        attempt: get(row, 3)?,
        claim: get(row, 4)?,
        worker: get(row, 5)?,
        holder: get(row, 6)?,
        pid: get(row, 7)?,
        pid_started: get(row, 8)?,
        lease: get(row, 9)?,
        token: get(row, 10)?,
        queued_at: get(row, 11)?,
        queued_moment: get(row, 12)?,
        give_up_at: get(row, 13)?,
        started_at: get(row, 14)?,
        started_moment: get(row, 15)?,
        timeout: get(row, 16)?,
        retry_at: get(row, 17)?,
        completed_at: get(row, 18)?,
        completed_moment: get(row, 19)?,
        exit_code: get(row, 20)?,
        signal: get(row, 21)?,
        reason: get(row, 22)?,
        message: get(row, 23)?,
        help: get(row, 24)?,
        version: get(row, 25)?,
    };
    Ok(Run::try_from(columns))
}

/// Reads a run and its request; the statement selects `spec` after the columns of the run.
pub(super) fn run_and_request_from(row: &Row) -> Result<Result<(Run, Request), String>, StoreError> {
    let spec: &str = get(row, SPEC)?;
    Ok(run_from(row)?.and_then(|run| Ok((run, spec::read(spec)?))))
}

/// The columns that [`stored_from`] reads, in its order, with the tables that they are in.
pub(super) const SELECT_STORED: &str = "SELECT request.spec, request.created_at, request.status, run.id, request.unmet, run.status
    FROM lockkeeper_runs.request LEFT JOIN lockkeeper_runs.run ON run.project = request.project AND run.seq = request.latest";

/// Reads a request with what the store knows about it.
pub(super) fn stored_from(row: &Row) -> Result<Result<StoredRequest, String>, StoreError> {
    let (spec, status): (&str, &str) = (get(row, 0)?, get(row, 2)?);
    let (latest, run): (Option<&str>, Option<&str>) = (get(row, 3)?, get(row, 5)?);
    let (created_at, unmet): (i64, i32) = (get(row, 1)?, get(row, 4)?);
    let build = || {
        let run = run.map(parse::<Status>).transpose()?;
        let status = match read_status(status)? {
            RequestStatus::Queued if run.is_some_and(Status::is_active) => RequestStatus::Running,
            status => status,
        };
        let latest = latest.map(parse).transpose()?;
        let unmet = number(unmet.into(), "number of dependencies")?;
        Ok(StoredRequest { request: spec::read(spec)?, created_at, status, latest, unmet })
    };
    Ok(build())
}

/// Reads an event.
pub(super) fn event_from(row: &Row) -> Result<Result<StoredEvent, String>, StoreError> {
    let (run, seq, attempt): (&str, i64, i64) = (get(row, 1)?, get(row, 2)?, get(row, 8)?);
    let (position, request, at): (i64, String, i64) = (get(row, 0)?, get(row, 3)?, get(row, 4)?);
    let (kind, from, to) = (get(row, 5)?, get(row, 6)?, get(row, 7)?);
    let (claim, reason, message): (i64, _, _) = (get(row, 9)?, get(row, 10)?, get(row, 11)?);
    let build = || {
        let id = EventId { run: parse(run)?, seq: number(seq, "number of an event")? };
        let attempt = number(attempt, "attempt")?;
        let (position, claim) = (position.cast_unsigned(), claim.cast_unsigned());
        Ok(StoredEvent { position, id, request, at, kind, from, to, attempt, claim, reason, message })
    };
    Ok(build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_a_nul_can_be_written() {
        let list = ["a\0b", "\\u0000", "c"];
        assert_eq!(json(list.into_iter()), r#"["a�b","\\u0000","c"]"#);
    }
}
