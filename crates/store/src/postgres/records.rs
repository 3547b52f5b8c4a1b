//! How decisions read and commit on a PostgreSQL server, and snapshots.

use std::ops::Range;
use std::sync::atomic::Ordering;

use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::time::Moment;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::connection::{Exclusive, Failure, Statement};
use super::rows::{self, ChangeArrays};
use super::{Head, PostgresStore, no_row};
use crate::optimistic::clock::{JUMP, StoreClock};
use crate::optimistic::known::Bundle;
use crate::optimistic::parts::{Found, parts_written};
use crate::optimistic::snapshot::OneMoment;
use crate::optimistic::{Answer, Decided, OptimisticStore, Wanted, collected};
use crate::{Commit, StoreError};

impl OptimisticStore for PostgresStore {
    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn read(&self, wanted: Wanted<'_>, _is_first: bool) -> Result<Answer, StoreError> {
        let drawn_before = self.drawn.load(Ordering::Relaxed);
        let project: (&(dyn ToSql + Sync), Type) = (&self.project, Type::INT4);
        match wanted {
            Wanted::In(range, parts) => {
                let versions = [project.clone(), (&parts, Type::TEXT_ARRAY)];
                let keys: Vec<&str> = range.exact.iter().map(|key| key.as_str()).collect();
                let (from, to) = range.range_below().unwrap_or_default();
                let records = [project, (&keys, Type::TEXT_ARRAY), (&from, Type::TEXT), (&to, Type::TEXT)];
                let (head, found) =
                    self.read_rows((rows::VERSIONS, &versions), (rows::RECORDS_IN, &records))?;
                self.answer(drawn_before, &head, rows::get(&head, 3)?, &found)
            }
            Wanted::One(id) => {
                let (wanted, parts) = (rows::integer(id.0), Vec::<String>::new());
                let versions = [project.clone(), (&parts as &(dyn ToSql + Sync), Type::TEXT_ARRAY)];
                let record = [project, (&wanted as &(dyn ToSql + Sync), Type::INT8)];
                let (head, found) = self.read_rows((rows::VERSIONS, &versions), (rows::RECORD, &record))?;
                let version = found.first().map_or(Ok(0), |row| rows::get(row, 1))?;
                self.answer(drawn_before, &head, vec![version], &found)
            }
            Wanted::All => {
                let project = [project];
                let (head, found) =
                    self.read_rows((rows::HIGHEST_VERSION, &project), (rows::ALL, &project))?;
                self.answer(drawn_before, &head, vec![rows::get(&head, 3)?], &found)
            }
        }
    }

    fn numbers(&self) -> Result<Range<u64>, StoreError> {
        let project: [(&(dyn ToSql + Sync), Type); 1] = [(&self.project, Type::INT4)];
        let rows =
            self.call(|server| server.query("SELECT lockkeeper.moment($1), lockkeeper.numbers()", &project))?;
        let answer = Head::from_row(rows.first().ok_or_else(no_row)?, 0)?;
        self.note(&answer);
        Ok(answer.numbers)
    }

    fn recall(&self, wanted: Wanted<'_>) -> Option<Bundle> {
        self.known.take(wanted)
    }

    fn commit(&self, decided: Decided<'_>) -> Result<Commit, StoreError> {
        let (changes, effects) = (decided.changes.clone(), decided.effects);
        if !changes.is_empty() && self.commit_changes(decided)? == Commit::Changed {
            return Ok(Commit::Changed);
        }
        self.wake(&changes, effects);
        Ok(Commit::Committed)
    }
}

impl PostgresStore {
    fn commit_changes(&self, decided: Decided<'_>) -> Result<Commit, StoreError> {
        let Decided { now, remembers_since, footprint, changes, is_recalled, .. } = &decided;
        let written: Vec<String> = parts_written(changes).into_iter().collect();
        let (parts, versions): (Vec<&String>, Vec<i64>) = footprint.parts.iter().unzip();
        let ids: Vec<i64> = footprint.ids.keys().map(|id| rows::integer(id.0)).collect();
        let id_versions: Vec<i64> = footprint.ids.values().copied().collect();
        let arrays = ChangeArrays::of(changes);
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&self.project, Type::INT4),
            (&parts, Type::TEXT_ARRAY),
            (&versions, Type::INT8_ARRAY),
            (&ids, Type::INT8_ARRAY),
            (&id_versions, Type::INT8_ARRAY),
            (&footprint.all, Type::INT8),
            (&written, Type::TEXT_ARRAY),
        ];
        params.extend(arrays.params());
        let memory = remembers_since.map(Moment::as_micros);
        let (moment, call) = (now.as_micros(), self.call_number()?);
        let drawn = is_recalled.then(|| rows::integer(self.drawn.load(Ordering::Relaxed)));
        let latest = now.after(JUMP).as_micros();
        params.extend([
            (&memory as &(dyn ToSql + Sync), Type::INT8),
            (&moment, Type::INT8),
            (&call, Type::INT8),
            (&drawn, Type::INT8),
            (&latest, Type::INT8),
        ]);
        match self.server.query(rows::COMMIT, &params) {
            Ok(answer) => {
                let row = answer.first().ok_or_else(no_row)?;
                let head = Head::from_row(row, 1)?;
                self.note(&head);
                let Some(version) = rows::get::<Option<i64>>(row, 0)? else {
                    self.known.forget(footprint);
                    return Ok(Commit::Changed);
                };
                drop(params);
                self.known.keep(decided, &written, version, head.numbers);
                Ok(Commit::Committed)
            }
            Err(failure) if failure.is_conflict() => Ok(Commit::Changed),
            Err(failure) if failure.is_broken() => match self.was_committed(moment, call) {
                Ok(true) => Ok(Commit::Committed),
                Ok(false) => Ok(Commit::Changed),
                Err(_) => Err(self.in_doubt(failure)),
            },
            Err(failure) => Err(failure.explain(self.server.address())),
        }
    }

    /// Reads moment, numbers and versions, and then records, in one round trip.
    fn read_rows(&self, head: Statement<'_>, body: Statement<'_>) -> Result<(Row, Vec<Row>), StoreError> {
        let [head, body] = self.call(|server| server.query_two(head, body))?;
        Ok((head.into_iter().next().ok_or_else(no_row)?, body))
    }

    /// `drawn_before`: the largest number that this process knew when it asked.
    fn answer(
        &self,
        drawn_before: u64,
        row: &Row,
        versions: Vec<i64>,
        found: &[Row],
    ) -> Result<Answer, StoreError> {
        let head = Head::from_row(row, 0)?;
        let has_forgotten = head.numbers.start < drawn_before;
        let since = rows::get::<Option<i64>>(row, 2)?.filter(|_| !has_forgotten).map(Moment::from_micros);
        let (remembers_since, numbers) = match since {
            Some(since) => (Some(since), Some(head.numbers.clone())),
            // These numbers may be smaller than earlier ones.
            None => (Some(self.notice(has_forgotten)?), None),
        };
        self.note(&head);
        let records = found.iter().map(|row| rows::record_from(row).map(|(found, _)| found));
        let records = records.collect::<Result<_, _>>()?;
        Ok(Answer { numbers, good_from: u64::MAX, remembers_since, version: None, versions, records })
    }

    /// Whether the server committed this decision before the connection broke. If it did not, it never will.
    fn was_committed(&self, moment: i64, call: i64) -> Result<bool, StoreError> {
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&self.project, Type::INT4), (&moment, Type::INT8), (&call, Type::INT8)];
        let settled = self.call(|server| server.query("SELECT lockkeeper.settle($1, $2, $3)", &params))?;
        rows::get(settled.first().ok_or_else(no_row)?, 0)
    }
}

/// Snapshot: a read-only transaction of the server that sees no later commit.
pub(super) struct PostgresMoment<'s> {
    store: &'s PostgresStore,
    connection: Exclusive<'s>,
    now: Moment,
    remembers_since: Moment,
}

impl<'s> PostgresMoment<'s> {
    pub(super) fn begin(store: &'s PostgresStore) -> Result<Self, StoreError> {
        let begin = || -> Result<_, Failure> {
            let connection = store.server.exclusive()?;
            let project: [(&(dyn ToSql + Sync), Type); 1] = [(&store.project, Type::INT4)];
            let rows = connection.begin(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                "SELECT lockkeeper.moment($1), lockkeeper.remembers_since($1)",
                &project,
            )?;
            Ok((connection, rows))
        };
        // An idle connection may have been closed by the server meanwhile: the second try opens a new one.
        let begun = begin().or_else(|failure| if failure.is_broken() { begin() } else { Err(failure) });
        let (connection, rows) = begun.map_err(|failure| failure.explain(store.server.address()))?;
        let row = rows.first().ok_or_else(no_row)?;
        let now = Moment::from_micros(rows::get(row, 0)?);
        // An incarnation that no client has noticed yet may have lost anything.
        let remembers_since = rows::get::<Option<i64>>(row, 1)?.map_or(now, Moment::from_micros);
        Ok(Self { store, connection, now, remembers_since })
    }

    fn query(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<InMemoryRecords, StoreError> {
        let rows = self.connection.query(sql, params);
        let rows = rows.map_err(|failure| failure.explain(self.store.server.address()))?;
        let found: Result<Vec<Found>, _> =
            rows.iter().map(|row| rows::record_from(row).map(|(found, _)| found)).collect();
        collected(found?)
    }
}

impl OneMoment for PostgresMoment<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn remembers_since(&self) -> Option<Moment> {
        Some(self.remembers_since)
    }

    fn read(&self, wanted: Wanted<'_>) -> Result<InMemoryRecords, StoreError> {
        let project: (&(dyn ToSql + Sync), Type) = (&self.store.project, Type::INT4);
        match wanted {
            Wanted::In(range, _) => {
                let keys: Vec<&str> = range.exact.iter().map(|key| key.as_str()).collect();
                let (from, to) = range.range_below().unwrap_or_default();
                self.query(
                    rows::RECORDS_IN,
                    &[project, (&keys, Type::TEXT_ARRAY), (&from, Type::TEXT), (&to, Type::TEXT)],
                )
            }
            Wanted::One(id) => self.query(rows::RECORD, &[project, (&rows::integer(id.0), Type::INT8)]),
            Wanted::All => self.query(rows::ALL, &[project]),
        }
    }
}
