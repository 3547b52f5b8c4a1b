//! Request filters as SQL: for lists, counts and bulk operations.

use std::collections::BTreeSet;

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{Run, Status};
use rusqlite::types::Value;

use super::requests::{ACTIVE, COLUMNS, LENGTH as RUN_FIRST, SELECT, read_stored};
use super::rows::{COLUMNS as RUN_COLUMNS, read_run};
use super::tables::Tables;
use crate::StoreError;
use crate::runs::columns::{limit_of, parse, pattern, stored_status};
use crate::runs::{Match, RequestFilter, StoredRequest};

/// A filter as a part of SQL.
struct Clause {
    condition: String,
    values: Vec<Value>,
}

impl Clause {
    fn new(filter: &RequestFilter) -> Self {
        let mut clause = Self { condition: "1".to_owned(), values: Vec::new() };
        clause.in_states(&filter.statuses, filter.ids.is_empty());
        clause.one_of("run.status", filter.run_statuses.iter().map(|status| status.as_str()));
        clause.one_of("request.id", filter.ids.iter().map(|id| id.as_str()));
        if let Some(text) = &filter.text {
            let place = clause.bind(pattern(text));
            clause.and(&format!(
                "(request.title LIKE ?{place} ESCAPE '\\' OR request.id LIKE ?{place} ESCAPE '\\')"
            ));
        }
        if let Some(worker) = &filter.worker {
            let place = clause.bind(worker.as_str().to_owned());
            clause.and(&format!("run.worker = ?{place}"));
        }
        for (sign, id) in [("<", &filter.before), ("<=", &filter.newest)] {
            if let Some(id) = id {
                let place = clause.bind(id.as_str().to_owned());
                clause.and(&format!("request.seq {sign} (SELECT seq FROM request WHERE id = ?{place})"));
            }
        }
        clause
    }

    /// The same for the latest requests only, up to the limit. Each status is looked up by itself, so that SQLite does not
    /// read all requests that have one of them.
    fn latest(filter: &RequestFilter) -> Self {
        let alone = RequestFilter { before: None, newest: None, ..filter.clone() }.is_by_status_only();
        if filter.statuses.len() < 2 || !alone {
            return Self::new(filter);
        }
        let mut clause = Self::new(&RequestFilter { statuses: Vec::new(), ..filter.clone() });
        let limit = clause.bind(limit_of(filter.limit));
        let range = clause.condition.clone();
        let each: Vec<String> = filter
            .statuses
            .iter()
            .map(|status| {
                clause.condition = range.clone();
                clause.in_states(std::slice::from_ref(status), true);
                format!(
                    "SELECT * FROM (SELECT request.seq FROM request LEFT JOIN run ON run.seq = request.latest
                     WHERE {} ORDER BY request.seq DESC LIMIT ?{limit})",
                    clause.condition
                )
            })
            .collect();
        clause.condition = format!("request.seq IN ({})", each.join(" UNION ALL "));
        clause
    }

    /// Adds a value. Returns its number.
    fn bind(&mut self, value: impl Into<Value>) -> usize {
        self.values.push(value.into());
        self.values.len()
    }

    fn and(&mut self, condition: &str) {
        self.condition.push_str(" AND ");
        self.condition.push_str(condition);
    }

    /// Leaves only requests with these statuses. With `look_up` SQLite uses the index of the status.
    fn in_states(&mut self, statuses: &[RequestStatus], look_up: bool) {
        let active = statuses.contains(&RequestStatus::Running);
        if active && statuses.len() == 1 {
            self.and(&format!("request.seq IN ({ACTIVE})"));
            return;
        }
        // A plus sign keeps SQLite from using the index.
        let column = if look_up { "request.status" } else { "+request.status" };
        let words: BTreeSet<&str> = statuses.iter().map(|status| stored_status(*status).as_str()).collect();
        self.one_of(column, words.into_iter());
        // The table has QUEUED for both; the latest run shows which one it is.
        match (statuses.contains(&RequestStatus::Queued), active) {
            (true, false) => self.and("(request.status <> 'QUEUED' OR run.status = 'queued')"),
            (false, true) => self.and("(request.status <> 'QUEUED' OR run.status <> 'queued')"),
            (true, true) | (false, false) => {}
        }
    }

    fn one_of<'w>(&mut self, column: &str, words: impl Iterator<Item = &'w str>) {
        let places: Vec<String> = words.map(|word| format!("?{}", self.bind(word.to_owned()))).collect();
        if !places.is_empty() {
            self.and(&format!("{column} IN ({})", places.join(", ")));
        }
    }
}

impl Tables<'_> {
    /// The requests that match, the latest first.
    pub(super) fn requests(&self, filter: &RequestFilter) -> Result<Vec<StoredRequest>, StoreError> {
        let mut clause = Clause::latest(filter);
        let limit = clause.bind(limit_of(filter.limit));
        let sql = format!("{SELECT} WHERE {} ORDER BY request.seq DESC LIMIT ?{limit}", clause.condition);
        self.stored(&sql, rusqlite::params_from_iter(clause.values))
    }

    /// The requests that match with their latest runs, the latest first.
    pub(super) fn requests_with_runs(
        &self,
        filter: &RequestFilter,
    ) -> Result<Vec<(StoredRequest, Option<Run>)>, StoreError> {
        let mut clause = Clause::latest(filter);
        let limit = clause.bind(limit_of(filter.limit));
        let sql = format!(
            "SELECT {COLUMNS}, {RUN_COLUMNS} FROM request LEFT JOIN run ON run.seq = request.latest
             WHERE {} ORDER BY request.seq DESC LIMIT ?{limit}",
            clause.condition
        );
        self.rows(&sql, rusqlite::params_from_iter(clause.values), |row| {
            let run = match row.get::<_, Option<String>>(RUN_FIRST)? {
                Some(_) => read_run(row, RUN_FIRST)?.map(Some),
                None => Ok(None),
            };
            Ok(read_stored(row, 0)?.and_then(|request| Ok((request, run?))))
        })
    }

    /// The ids of the requests that match, the latest first.
    pub(super) fn matching(&self, filter: &RequestFilter) -> Result<Vec<Match>, StoreError> {
        let mut clause = Clause::new(filter);
        let limit = clause.bind(limit_of(filter.limit));
        let sql = format!(
            "SELECT request.id, run.id FROM request LEFT JOIN run ON run.seq = request.latest
             WHERE {} ORDER BY request.seq DESC LIMIT ?{limit}",
            clause.condition
        );
        self.rows(&sql, rusqlite::params_from_iter(clause.values), |row| {
            let (request, run): (String, Option<String>) = (row.get(0)?, row.get(1)?);
            let build = || {
                let run = run.as_deref().map(parse).transpose()?;
                Ok(Match { request: parse(&request)?, run })
            };
            Ok(build())
        })
    }

    /// How many requests match, by the status of their latest run.
    pub(super) fn count_matching(
        &self,
        filter: &RequestFilter,
    ) -> Result<Vec<(Option<Status>, u64)>, StoreError> {
        let clause = Clause::new(filter);
        let sql = format!(
            "SELECT run.status, count(*) FROM request LEFT JOIN run ON run.seq = request.latest
             WHERE {} GROUP BY run.status",
            clause.condition
        );
        self.rows(&sql, rusqlite::params_from_iter(clause.values), |row| {
            let (status, count): (Option<String>, i64) = (row.get(0)?, row.get(1)?);
            let status = status.map(|word| word.parse::<Status>()).transpose();
            Ok(status.map(|status| (status, count.cast_unsigned())).map_err(|error| error.to_string()))
        })
    }
}
