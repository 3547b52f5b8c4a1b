//! Which requests are meant by a filter: for lists, for counts, and for what is done to all of them.

use std::collections::BTreeSet;

use lockkeeper_core::id::{RequestId, RunId, WorkerId};
use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::Status;
use rusqlite::types::Value;

use super::Tables;
use super::requests::{BEGUN, SELECT, StoredRequest, kept};
use crate::StoreError;

/// Which requests are meant. What is not said leaves nobody out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Only those in one of these states; all when there are none.
    pub statuses: Vec<RequestStatus>,
    /// Only those whose latest run is in one of these states; all when there are none.
    pub run_statuses: Vec<Status>,
    /// Only those with this text in their title or id, whatever the case of ASCII letters.
    pub text: Option<String>,
    /// Only those that this worker executes.
    pub worker: Option<WorkerId>,
    /// Only these; all when there are none.
    pub ids: Vec<RequestId>,
    /// Only those that came before the one with this id.
    pub before: Option<RequestId>,
    /// Only the one with this id and those that came before it.
    pub newest: Option<RequestId>,
    /// At most so many.
    pub limit: usize,
}

/// A request that is meant, by its names only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Which one.
    pub request: RequestId,
    /// Its latest run; none when all were refused.
    pub run: Option<RunId>,
}

impl RequestFilter {
    /// Whether it is about some requests rather than about all of them.
    pub fn is_selective(&self) -> bool {
        !self.is_by_status_only() || !self.statuses.is_empty()
    }

    /// Whether nothing is said but states of requests, and how many.
    pub fn is_by_status_only(&self) -> bool {
        self.run_statuses.is_empty()
            && self.text.is_none()
            && self.worker.is_none()
            && self.ids.is_empty()
            && self.before.is_none()
            && self.newest.is_none()
    }
}

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

    /// The same for the latest ones only, as many as the limit says. Several states are looked up one by one, so that
    /// what is read is not all that is in them.
    fn latest(filter: &RequestFilter) -> Self {
        let alone = RequestFilter { before: None, newest: None, ..filter.clone() }.is_by_status_only();
        if filter.statuses.len() < 2 || !alone {
            return Self::new(filter);
        }
        let mut clause = Self::new(&RequestFilter { statuses: Vec::new(), ..filter.clone() });
        let limit = clause.bind(i64::try_from(filter.limit).unwrap_or(i64::MAX));
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

    /// Adds a value and gives its number.
    fn bind(&mut self, value: impl Into<Value>) -> usize {
        self.values.push(value.into());
        self.values.len()
    }

    fn and(&mut self, condition: &str) {
        self.condition.push_str(" AND ");
        self.condition.push_str(condition);
    }

    /// Leaves only requests in these states, or all when there are none; `look_up` when they are to be looked up by that.
    fn in_states(&mut self, statuses: &[RequestStatus], look_up: bool) {
        let begun = statuses.contains(&RequestStatus::Running);
        if begun && statuses.len() == 1 {
            self.and(&format!("request.seq IN ({BEGUN})"));
            return;
        }
        // Where others are named, they are what is looked up.
        let column = if look_up { "request.status" } else { "+request.status" };
        let words: BTreeSet<&str> = statuses.iter().map(|status| kept(*status).as_str()).collect();
        self.one_of(column, words.into_iter());
        // Both are noted as queued.
        match (statuses.contains(&RequestStatus::Queued), begun) {
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

/// A text that is looked for anywhere, as `LIKE` has it.
fn pattern(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

impl Tables<'_> {
    /// The requests that are meant, the latest first.
    pub fn requests(&self, filter: &RequestFilter) -> Result<Vec<StoredRequest>, StoreError> {
        let mut clause = Clause::latest(filter);
        let limit = clause.bind(i64::try_from(filter.limit).unwrap_or(i64::MAX));
        let sql = format!("{SELECT} WHERE {} ORDER BY request.seq DESC LIMIT ?{limit}", clause.condition);
        self.stored(&sql, rusqlite::params_from_iter(clause.values))
    }

    /// The names of the requests that are meant, the latest first.
    pub fn matching(&self, filter: &RequestFilter) -> Result<Vec<Match>, StoreError> {
        let mut clause = Clause::new(filter);
        let limit = clause.bind(i64::try_from(filter.limit).unwrap_or(i64::MAX));
        let sql = format!(
            "SELECT request.id, run.id FROM request LEFT JOIN run ON run.seq = request.latest
             WHERE {} ORDER BY request.seq DESC LIMIT ?{limit}",
            clause.condition
        );
        self.rows(&sql, rusqlite::params_from_iter(clause.values), |row| {
            let (request, run): (String, Option<String>) = (row.get(0)?, row.get(1)?);
            let build = || {
                let run = run.map(|id| id.parse()).transpose().map_err(|error| format!("{error}"))?;
                Ok(Match { request: request.parse().map_err(|error| format!("{error}"))?, run })
            };
            Ok(build())
        })
    }

    /// How many requests are meant, by the state of their latest run; none where all were refused. The limit of the
    /// filter does not count.
    pub fn count_matching(&self, filter: &RequestFilter) -> Result<Vec<(Option<Status>, u64)>, StoreError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_looked_for_as_it_is() {
        assert_eq!(pattern("50%_a\\b"), "%50\\%\\_a\\\\b%");
    }

    #[test]
    fn a_filter_that_leaves_nobody_out_is_known() {
        assert!(!RequestFilter { limit: 5, ..RequestFilter::default() }.is_selective());
        let by_status = RequestFilter { statuses: vec![RequestStatus::Failed], ..RequestFilter::default() };
        assert!(by_status.is_selective() && by_status.is_by_status_only());
        let by_text = RequestFilter { text: Some("x".to_owned()), ..RequestFilter::default() };
        assert!(by_text.is_selective() && !by_text.is_by_status_only());
    }
}
