//! Writing: one call for transitions alone, and transactions of two round trips for what needs a decision.
//!
//! A connection may break before the answer of a commit has come. Then the outcome is looked up:
//!
//! - Transitions alone are made again, under the same call number. They cannot apply twice, and a transition that finds its
//!   own event has been applied.
//! - A transaction of two round trips knows its id before it commits, and asks the server for its outcome.

use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::run::transition::Transition;
use lockkeeper_core::run::{EventKind, Run, Stamp};
use lockkeeper_core::time::{Moment, Ttl};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::PostgresRunStore;
use super::rows::{COLUMNS, NewEvent, Next, json, param, run_from};
use crate::StoreError;
use crate::postgres::connection::{Exclusive, Failure, Statement};
use crate::postgres::rows::get;
use crate::postgres::{TRIES, no_row};
use crate::runs::{Moved, RunStore};

/// Waits until everything that was committed before is on the disk, and on the standbys that commits wait for: a small
/// transaction whose commit waits for them.
pub(super) const SYNC: Statement<'static> = ("SELECT pg_logical_emit_message(true, 'lockkeeper', '')", &[]);
/// How long to wait before another look at a transaction that is still going on.
const PAUSE: Duration = Duration::from_millis(10);

/// Writes transitions and their events.
const MOVE: &str =
    "SELECT applied, lockkeeper_runs.append($1, $2, $4, applied), lockkeeper.moment($1), lockkeeper.wall()
    FROM lockkeeper_runs.move($1, $2, $3) AS applied";
/// The same, if the server has lost nothing since `$5`.
const CLAIM: &str = "SELECT applied, lockkeeper_runs.append($1, $2, $4, applied), lockkeeper.moment($1), lockkeeper.wall(), since
    FROM (SELECT lockkeeper.remembers_since($1) AS since OFFSET 0) AS memory CROSS JOIN LATERAL (
        SELECT CASE WHEN since <= $5 THEN lockkeeper_runs.move($1, $2, $3) ELSE '{}' END AS applied OFFSET 0
    ) AS moved";

fn is_claim(kind: EventKind) -> bool {
    matches!(kind, EventKind::Claimed | EventKind::Retried)
}

/// A statement that owns its parameters.
pub(super) struct Write {
    pub(super) sql: &'static str,
    pub(super) params: Vec<(Box<dyn ToSql + Sync>, Type)>,
}

/// What a transaction knows after its first round trip.
pub(super) struct Read {
    /// The rows of each statement.
    pub(super) rows: Vec<Vec<Row>>,
    /// The time on the store's clock, after all locks were taken.
    pub(super) now: Stamp,
    /// Whether the server may have lost claims, so that nothing can be claimed.
    pub(super) is_silent: bool,
}

impl PostgresRunStore {
    /// Writes transitions in one round trip.
    pub(super) fn move_only(&self, transitions: &[Transition]) -> Result<Vec<Moved>, StoreError> {
        if transitions.is_empty() {
            return Ok(Vec::new());
        }
        let (project, call) = (self.project(), self.leases.call_number()?);
        let next = json(transitions.iter().map(Next::from));
        let events = json(transitions.iter().map(NewEvent::from));
        let claims = transitions.iter().any(|one| is_claim(one.event.kind));
        let mut params = vec![param(&project), param(&call), param(&next), param(&events)];
        let good_since = self.session.filter(|_| claims).map(|session| self.lost_nothing_since(session));
        let sql = match &good_since {
            None => MOVE,
            Some(since) => {
                params.push(param(since));
                CLAIM
            }
        };
        let rows = self.repeated(|connection| connection.pipeline(&[(sql, &params), SYNC]))?;
        let row = rows.first().and_then(|rows| rows.first()).ok_or_else(no_row)?;
        self.note(row, 2)?;
        let mut applied: Vec<bool> = get(row, 0)?;
        if good_since.is_some() {
            self.note_memory(get(row, 4)?)?;
            applied.resize(transitions.len(), false);
        }
        self.moved(transitions, &applied)
    }

    /// A claim needs a server that has lost nothing for longer than a session.
    fn lost_nothing_since(&self, session: Ttl) -> i64 {
        self.leases.clock.now().before(session.get()).as_micros() - 1
    }

    /// Notes since when the server has lost nothing. It has not noticed yet that it is a new incarnation if that is not known.
    pub(super) fn note_memory(&self, since: Option<i64>) -> Result<(), StoreError> {
        let since = since.map_or_else(|| self.leases.notice(false).map(Moment::as_micros), Ok)?;
        self.remember(since);
        Ok(())
    }

    /// The answers to transitions. Those that were not applied return the current records.
    pub(super) fn moved(
        &self,
        transitions: &[Transition],
        applied: &[bool],
    ) -> Result<Vec<Moved>, StoreError> {
        if applied.contains(&true) {
            self.announce();
        }
        let answers = transitions.iter().zip(applied).map(|(transition, applied)| {
            if *applied {
                return Ok(Moved::Applied);
            }
            Ok(Moved::Conflict(self.current(transition.run.id.as_str())?.map(Box::new)))
        });
        answers.collect()
    }

    fn current(&self, run: &str) -> Result<Option<Run>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM lockkeeper_runs.record WHERE project = $1 AND id = $2");
        let rows = self.query(&sql, &[param(&self.project()), param(&run)])?;
        let run = rows.first().map(run_from).transpose()?.transpose();
        run.map_err(|what| self.damaged(what))
    }

    /// Makes a call that may be made twice. Makes it again if its connection breaks.
    fn repeated<T>(&self, call: impl Fn(&Exclusive<'_>) -> Result<T, Failure>) -> Result<T, StoreError> {
        let mut broken = None;
        for _ in 0..TRIES {
            let called = self.leases.server.exclusive().and_then(|connection| {
                let called = call(&connection)?;
                connection.give_back();
                Ok(called)
            });
            match called {
                Ok(called) => return Ok(called),
                Err(failure) if failure.is_conflict() => {}
                Err(failure) if failure.is_broken() => broken = Some(failure),
                // An earlier try may have been executed.
                Err(failure) => {
                    return Err(match broken {
                        Some(_) => self.leases.in_doubt(failure),
                        None => self.explain(failure),
                    });
                }
            }
        }
        Err(broken.map_or_else(|| self.explain(Failure::Ended), |failure| self.leases.in_doubt(failure)))
    }

    /// One transaction. The first round trip takes locks and reads, `decide` says what to write, and the second round trip
    /// writes it and commits. Without anything to write the transaction is rolled back.
    pub(super) fn transaction<T>(
        &self,
        reads: &[Statement<'_>],
        mut decide: impl FnMut(Read) -> Result<(Vec<Write>, T), StoreError>,
    ) -> Result<T, StoreError> {
        let project = self.project();
        let head = [param(&project)];
        let mut first: Vec<Statement<'_>> = vec![("BEGIN", &[])];
        first.extend_from_slice(reads);
        first.push((
            "SELECT lockkeeper.moment($1), lockkeeper.wall(), pg_current_xact_id()::text, lockkeeper.remembers_since($1)",
            &head,
        ));
        let mut breaks = 0;
        loop {
            let begun = self.leases.server.exclusive().and_then(|connection| {
                let rows = connection.pipeline(&first)?;
                Ok((connection, rows))
            });
            let (connection, mut rows) = match begun {
                Ok(begun) => begun,
                // Nothing was committed.
                Err(failure) if failure.is_conflict() => continue,
                Err(failure) if failure.is_broken() && breaks < TRIES => {
                    breaks += 1;
                    continue;
                }
                Err(failure) => return Err(self.explain(failure)),
            };
            let head = rows.pop().and_then(|rows| rows.into_iter().next()).ok_or_else(no_row)?;
            let (now, id) = (self.note(&head, 0)?, get::<String>(&head, 2)?);
            self.note_memory(get(&head, 3)?)?;
            rows.remove(0);
            let is_silent = self.silent_until().is_some();
            let (writes, answer) = decide(Read { rows, now, is_silent })?;
            if writes.is_empty() {
                return Ok(answer);
            }
            match commit(&connection, &writes) {
                Ok(()) => connection.give_back(),
                Err(failure) if failure.is_conflict() => continue,
                Err(failure) if failure.is_broken() => {
                    drop(connection);
                    match self.was_committed(&id) {
                        Ok(true) => {}
                        Ok(false) if breaks < TRIES => {
                            breaks += 1;
                            continue;
                        }
                        Ok(false) => return Err(self.explain(failure)),
                        Err(_) => return Err(self.leases.in_doubt(failure)),
                    }
                }
                Err(failure) => return Err(self.explain(failure)),
            }
            self.announce();
            return Ok(answer);
        }
    }

    /// Whether a transaction was committed whose connection broke during the commit. Waits until it is over.
    pub(super) fn was_committed(&self, id: &str) -> Result<bool, StoreError> {
        let deadline = Instant::now() + self.leases.server.connect_timeout();
        loop {
            let found = self.query("SELECT pg_xact_status($1::xid8)", &[param(&id)])?;
            match get::<Option<&str>>(found.first().ok_or_else(no_row)?, 0)? {
                Some("committed") => {
                    return self.query(SYNC.0, SYNC.1).map(|_| true);
                }
                // The server has not noticed yet that the connection is gone.
                Some("in progress") if Instant::now() < deadline => thread::sleep(PAUSE),
                Some("aborted") => return Ok(false),
                found => {
                    let what = found.unwrap_or("forgotten").to_owned();
                    return Err(StoreError::Mismatch(format!("transaction {id} is {what}")));
                }
            }
        }
    }
}

fn commit(connection: &Exclusive<'_>, writes: &[Write]) -> Result<(), Failure> {
    let params: Vec<Vec<(&(dyn ToSql + Sync), Type)>> = writes
        .iter()
        .map(|write| write.params.iter().map(|(value, kind)| (&**value, kind.clone())).collect())
        .collect();
    let mut statements: Vec<Statement<'_>> =
        writes.iter().zip(&params).map(|(write, params)| (write.sql, params.as_slice())).collect();
    statements.extend([("COMMIT", &[][..]), SYNC]);
    connection.pipeline(&statements).map(|_| ())
}
