//! The records of one decision, read when they are asked for, and the conditional commit that ends it.

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Change, Effect, Records, Scan};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::connection::{Exclusive, Failure, Statement};
use super::rows::{self, ChangeArrays};
use super::{Answer, PostgresStore, no_row};
use crate::parts::{Footprint, Found, add, collected, parts_of, parts_written};
use crate::{Commit, Granted, StoreError, Transaction};

/// The records of one decision.
///
/// It reads without a lock. Each read asks for the versions first and for the records afterwards: if a commit comes in between,
/// the versions are old, and the commit of this decision finds that out.
pub(super) struct PostgresRecords<'s> {
    store: &'s PostgresStore,
    now: Moment,
    /// What was read so far.
    records: InMemoryRecords,
    ranges: Vec<KeyRange>,
    footprint: Footprint,
    /// Numbers that were drawn for this decision after its last read.
    numbers: Option<std::ops::Range<u64>>,
    /// Whether what was read cannot be of one moment, or is later than `now`. Then the decision has to run again.
    is_torn: bool,
}

impl<'s> PostgresRecords<'s> {
    pub(super) fn new(store: &'s PostgresStore) -> Self {
        Self {
            store,
            now: store.estimated_now(),
            records: InMemoryRecords::default(),
            ranges: Vec::new(),
            footprint: Footprint::default(),
            numbers: None,
            is_torn: false,
        }
    }

    /// Reads the records of a range, unless they were read before.
    fn load(&mut self, range: &KeyRange) -> Result<(), StoreError> {
        if self.footprint.all.is_some() || self.ranges.contains(range) {
            return Ok(());
        }
        let parts: Vec<String> = parts_of(range).into_iter().collect();
        let project = self.store.project;
        let versions: [(&(dyn ToSql + Sync), Type); 2] = [(&project, Type::INT4), (&parts, Type::TEXT_ARRAY)];
        let keys: Vec<&str> = range.exact.iter().map(|key| key.as_str()).collect();
        let (from, to) = range.range_below().unwrap_or_default();
        let records: [(&(dyn ToSql + Sync), Type); 4] =
            [(&project, Type::INT4), (&keys, Type::TEXT_ARRAY), (&from, Type::TEXT), (&to, Type::TEXT)];
        let (head, found) = self.read((rows::VERSIONS, &versions), (rows::RECORDS_IN, &records))?;
        let seen: Vec<i64> = rows::get(&head, 2)?;
        for (part, version) in parts.into_iter().zip(seen) {
            let known = *self.footprint.parts.entry(part).or_insert(version);
            self.is_torn |= known != version;
        }
        self.add(&found)?;
        self.ranges.push(range.clone());
        Ok(())
    }

    /// Reads one record, unless it was read before.
    fn load_one(&mut self, id: LeaseId) -> Result<(), StoreError> {
        let is_known = self.records.lease(id).is_some() || self.records.ticket(id).is_some();
        if self.footprint.all.is_some() || is_known || self.footprint.ids.contains_key(&id) {
            return Ok(());
        }
        let (project, wanted, parts) = (self.store.project, rows::integer(id.0), Vec::<String>::new());
        let versions: [(&(dyn ToSql + Sync), Type); 2] = [(&project, Type::INT4), (&parts, Type::TEXT_ARRAY)];
        let record: [(&(dyn ToSql + Sync), Type); 2] = [(&project, Type::INT4), (&wanted, Type::INT8)];
        let (_, found) = self.read((rows::VERSIONS, &versions), (rows::RECORD, &record))?;
        let version = found.first().map_or(Ok(0), |row| rows::get(row, 1))?;
        self.footprint.ids.insert(id, version);
        self.add(&found)
    }

    fn load_all(&mut self) -> Result<(), StoreError> {
        if self.footprint.all.is_some() {
            return Ok(());
        }
        let project: [(&(dyn ToSql + Sync), Type); 1] = [(&self.store.project, Type::INT4)];
        let (head, found) = self.read((rows::HIGHEST_VERSION, &project), (rows::ALL, &project))?;
        self.footprint.all = Some(rows::get(&head, 2)?);
        self.add(&found)
    }

    /// Reads moment, numbers and versions, and then records, in one round trip.
    fn read(&mut self, head: Statement<'_>, body: Statement<'_>) -> Result<(Row, Vec<Row>), StoreError> {
        let [head, body] = self.store.call(|server| server.query_two(head, body))?;
        let head = head.into_iter().next().ok_or_else(no_row)?;
        let answer = Answer::from_row(&head, 0)?;
        self.store.note(&answer);
        self.numbers = Some(answer.numbers);
        Ok((head, body))
    }

    /// Adds records that were read to those that are known.
    fn add(&mut self, found: &[Row]) -> Result<(), StoreError> {
        for row in found {
            let (record, _) = rows::record_from(row)?;
            self.is_torn |=
                record.latest_moment() > self.now.as_micros() && self.store.is_later(record.latest_moment());
            self.is_torn |= !add(record, &mut self.records)?;
        }
        Ok(())
    }

    /// Whether the server committed this decision, although the connection broke before it could answer. If not, it never will.
    fn was_committed(&self, call: i64) -> Result<bool, StoreError> {
        let (project, moment) = (self.store.project, self.now.as_micros());
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&project, Type::INT4), (&moment, Type::INT8), (&call, Type::INT8)];
        let settled =
            self.store.call(|server| server.query("SELECT lockkeeper.settle($1, $2, $3)", &params))?;
        rows::get(settled.first().ok_or_else(no_row)?, 0)
    }
}

impl Records<StoreError> for PostgresRecords<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        if let Some(next) = self.numbers.as_mut().and_then(Iterator::next) {
            return Ok(next);
        }
        let answer = self.store.ask()?;
        self.store.note(&answer);
        let mut numbers = answer.numbers;
        let next =
            numbers.next().ok_or_else(|| StoreError::Mismatch("the server returned no number".to_owned()))?;
        self.numbers = Some(numbers);
        Ok(next)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        self.load_one(id)?;
        Ok(self.records.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        self.load(range)?;
        Ok(self.records.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        self.load_one(id)?;
        Ok(self.records.ticket(id).cloned())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        self.load(range)?;
        Ok(self.records.tickets_in(range, scan, limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        self.load_all()?;
        Ok(self.records.all())
    }
}

impl Transaction for PostgresRecords<'_> {
    fn commit(self: Box<Self>, changes: Vec<Change>, effects: &[Effect]) -> Result<Commit, StoreError> {
        if self.is_torn {
            return Ok(Commit::Changed);
        }
        let granted = Granted::among(&changes);
        if !changes.is_empty() {
            let written: Vec<String> = parts_written(&changes).into_iter().collect();
            let (parts, versions): (Vec<&String>, Vec<i64>) = self.footprint.parts.iter().unzip();
            let ids: Vec<i64> = self.footprint.ids.keys().map(|id| rows::integer(id.0)).collect();
            let id_versions: Vec<i64> = self.footprint.ids.values().copied().collect();
            let arrays = ChangeArrays::of(&changes);
            let mut params: Vec<(&(dyn ToSql + Sync), Type)> = vec![
                (&self.store.project, Type::INT4),
                (&parts, Type::TEXT_ARRAY),
                (&versions, Type::INT8_ARRAY),
                (&ids, Type::INT8_ARRAY),
                (&id_versions, Type::INT8_ARRAY),
                (&self.footprint.all, Type::INT8),
                (&written, Type::TEXT_ARRAY),
            ];
            params.extend(arrays.params());
            let (moment, call) = (self.now.as_micros(), self.store.call_number()?);
            params.extend([(&moment as &(dyn ToSql + Sync), Type::INT8), (&call, Type::INT8)]);
            match self.store.server.query(rows::COMMIT, &params) {
                Ok(answer) => {
                    let row = answer.first().ok_or_else(no_row)?;
                    self.store.note(&Answer::from_row(row, 1)?);
                    if rows::get::<Option<i64>>(row, 0)?.is_none() {
                        return Ok(Commit::Changed);
                    }
                }
                Err(failure) if failure.is_conflict() => return Ok(Commit::Changed),
                Err(failure) if failure.is_broken() => match self.was_committed(call) {
                    Ok(true) => {}
                    Ok(false) => return Ok(Commit::Changed),
                    Err(_) => return Err(self.store.in_doubt(failure)),
                },
                Err(failure) => return Err(failure.explain(self.store.server.address())),
            }
        }
        self.store.wake(effects, &granted);
        Ok(Commit::Committed)
    }
}

/// The records of one moment: a read-only transaction of the server that sees no later commit.
pub(super) struct PostgresSnapshot<'s> {
    store: &'s PostgresStore,
    connection: Exclusive<'s>,
    now: Moment,
}

impl<'s> PostgresSnapshot<'s> {
    pub(super) fn begin(store: &'s PostgresStore) -> Result<Self, StoreError> {
        let begin = || -> Result<_, Failure> {
            let connection = store.server.exclusive()?;
            let project: [(&(dyn ToSql + Sync), Type); 1] = [(&store.project, Type::INT4)];
            let rows = connection.begin(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                "SELECT lockkeeper.moment($1)",
                &project,
            )?;
            Ok((connection, rows))
        };
        // An idle connection may have been closed by the server meanwhile: the second try opens a new one.
        let begun = begin().or_else(|failure| if failure.is_broken() { begin() } else { Err(failure) });
        let (connection, rows) = begun.map_err(|failure| failure.explain(store.server.address()))?;
        let row = rows.first().ok_or_else(no_row)?;
        let now = Moment::from_micros(rows::get(row, 0)?);
        Ok(Self { store, connection, now })
    }

    fn query(&self, sql: &str, params: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Found>, StoreError> {
        let rows = self.connection.query(sql, params);
        let rows = rows.map_err(|failure| failure.explain(self.store.server.address()))?;
        rows.iter().map(|row| rows::record_from(row).map(|(found, _)| found)).collect()
    }

    fn within(&self, range: &KeyRange) -> Result<InMemoryRecords, StoreError> {
        let keys: Vec<&str> = range.exact.iter().map(|key| key.as_str()).collect();
        let (from, to) = range.range_below().unwrap_or_default();
        collected(self.query(
            rows::RECORDS_IN,
            &[
                (&self.store.project, Type::INT4),
                (&keys, Type::TEXT_ARRAY),
                (&from, Type::TEXT),
                (&to, Type::TEXT),
            ],
        )?)
    }

    fn one(&self, id: LeaseId) -> Result<InMemoryRecords, StoreError> {
        let wanted = rows::integer(id.0);
        collected(self.query(rows::RECORD, &[(&self.store.project, Type::INT4), (&wanted, Type::INT8)])?)
    }
}

impl Records<StoreError> for PostgresSnapshot<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        Err(StoreError::Mismatch("a snapshot gives no numbers".to_owned()))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.one(id)?.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        Ok(self.within(range)?.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.one(id)?.ticket(id).cloned())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        Ok(self.within(range)?.tickets_in(range, scan, limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        Ok(collected(self.query(rows::ALL, &[(&self.store.project, Type::INT4)])?)?.all())
    }
}
