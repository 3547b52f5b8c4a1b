//! `PostgresRunStore`: requests and runs of many machines in a PostgreSQL database, beside the leases of their project.
//!
//! | what | how |
//! |---|---|
//! | change of a run | one call of `lockkeeper_runs.move`, which compares the versions. `tables.sql` and `functions.sql` |
//! | claim | locks the next runs of the queue (`SKIP LOCKED`), lets the rule of `core` decide, and writes. Claims never wait for each other |
//! | submission | waits for submissions with the same keys or ids only, and for the dependencies that end at the same time |
//! | position of an event | drawn under the lock of the log, which is the last step before the commit |
//! | durable | a commit does not wait for the disk while it holds the log; the next statement of the same round trip does |
//! | clock | that of the leases: the server's, which never goes back |
//! | memory | a server that may have lost claims lets nobody claim anything for one session |
//! | output | pieces in a table, written beside everything else; nothing waits for them |
//! | changes | `NOTIFY` after the commit and outside of it |

mod changes;
mod examine;
mod import;
mod output;
mod queue;
mod remove;
mod replace;
mod requests;
mod rows;
mod schema;
mod snapshot;
mod submit;
mod transaction;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use lockkeeper_core::id::{RequestId, WorkerId};
use lockkeeper_core::liveness::silent_until;
use lockkeeper_core::record::Priority;
use lockkeeper_core::run::admission::{Refusal, Submission, Submitted};
use lockkeeper_core::run::transition::{self, Transition};
use lockkeeper_core::run::{Run, Stamp};
use lockkeeper_core::time::{Moment, Ttl};
use tokio_postgres::Row;

use self::changes::Announcer;
use self::rows::param;
use self::snapshot::Snapshot;
use super::columns::Columns;
use super::{
    AutoRunChange, ChangeSignal, Claims, Import, Imported, MovedAndClaimed, OutputChange, Removed, Renewal,
    Requeue, RunRecords, RunStore, Worker,
};
use crate::postgres::connection::{Failure, Params};
use crate::postgres::no_row;
use crate::postgres::rows::get;
use crate::{Examination, PostgresAddress, PostgresStore, StoreError};

/// Since when the server has lost nothing. Lets it note that it is a new incarnation. `$1` is the project.
const MEMORY: &str = "coalesce(lockkeeper.remembers_since($1), lockkeeper.notice($1, false))";

/// Requests and runs of one project in a PostgreSQL database.
pub struct PostgresRunStore {
    /// The leases of the project: their connections, and their clock.
    leases: Arc<PostgresStore>,
    /// How far the store's clock is ahead of the server's wall clock, in microseconds.
    ahead: AtomicI64,
    /// Since when the server has lost nothing, as far as this process knows.
    remembers_since: AtomicI64,
    /// The span of a session: after the server has lost something, nothing is claimed for so long.
    session: Option<Ttl>,
    announcer: Announcer,
}

impl PostgresRunStore {
    /// Opens the runs of a project, with connections of their own.
    pub fn open(
        address: impl Into<PostgresAddress>,
        project: &str,
        connect_timeout: Duration,
    ) -> Result<Self, StoreError> {
        Self::beside(Arc::new(PostgresStore::open(address, project, connect_timeout)?))
    }

    /// Opens the runs beside the leases of the same project, and makes the tables where they are missing. Both share the
    /// connections.
    pub fn beside(leases: Arc<PostgresStore>) -> Result<Self, StoreError> {
        schema::set_up(&leases)?;
        let announcer = Announcer::new(leases.project);
        let (ahead, remembers_since) = (AtomicI64::new(0), AtomicI64::new(0));
        let store = Self { leases, ahead, remembers_since, session: None, announcer };
        let sql = format!("SELECT lockkeeper.moment($1), lockkeeper.wall(), {MEMORY}");
        let rows = store.query(&sql, &[param(&store.leases.project)])?;
        let row = rows.first().ok_or_else(no_row)?;
        store.note(row, 0)?;
        store.remember(get(row, 2)?);
        Ok(store)
    }

    /// Workers of this project have sessions of this span.
    #[must_use]
    pub fn with_session(self, session: Ttl) -> Self {
        Self { session: Some(session), ..self }
    }

    fn project(&self) -> i32 {
        self.leases.project
    }

    /// Runs one statement that changes nothing, or that may be made twice.
    fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.leases.call(|server| server.query(sql, params))
    }

    /// Runs one statement that changes something and may be made twice. Notifies the other processes.
    fn change(&self, sql: &str, params: Params<'_>) -> Result<(), StoreError> {
        self.query(sql, params)?;
        self.announce();
        Ok(())
    }

    fn announce(&self) {
        self.announcer.announce(&self.leases.server);
    }

    /// Sets the clock by an answer: its columns `moment` and `wall`, which begin at `index`.
    fn note(&self, row: &Row, index: usize) -> Result<Stamp, StoreError> {
        let (moment, unix_micros): (i64, i64) = (get(row, index)?, get(row, index + 1)?);
        self.leases.clock.move_to(moment);
        self.ahead.store(moment - unix_micros, Ordering::Relaxed);
        Ok(Stamp { moment: Moment::from_micros(moment), unix_micros })
    }

    /// Notes since when the server has lost nothing.
    fn remember(&self, since: i64) {
        self.remembers_since.store(since, Ordering::Relaxed);
    }

    fn explain(&self, failure: Failure) -> StoreError {
        failure.explain(self.leases.server.address())
    }

    fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { address: self.address(), what }
    }
}

impl RunStore for PostgresRunStore {
    fn now(&self) -> Stamp {
        let moment = self.leases.clock.now();
        Stamp { moment, unix_micros: moment.as_micros() - self.ahead.load(Ordering::Relaxed) }
    }

    fn session(&self) -> Option<Ttl> {
        self.session
    }

    fn snapshot(&self) -> Result<Box<dyn RunRecords + '_>, StoreError> {
        Ok(Box::new(Snapshot::begin(self)?))
    }

    fn submit(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        self.submit_requests(submission)
    }

    fn replace(&self, submission: &Submission<'_>) -> Result<Result<Vec<Submitted>, Refusal>, StoreError> {
        self.replace_requests(submission)
    }

    fn set_priority(&self, request: &RequestId, priority: Priority) -> Result<bool, StoreError> {
        self.change_priority(request, priority)
    }

    fn requeue(&self, runs: &[Requeue]) -> Result<Vec<bool>, StoreError> {
        self.requeue_runs(runs)
    }

    fn move_and_claim(
        &self,
        transitions: &[Transition],
        claims: Option<&Claims<'_>>,
    ) -> Result<MovedAndClaimed, StoreError> {
        match claims.filter(|claims| !claims.locks.is_empty()) {
            Some(claims) => self.move_then_claim(transitions, claims),
            None => Ok(MovedAndClaimed { moved: self.move_only(transitions)?, claimed: Vec::new() }),
        }
    }

    fn clear_processes(&self, run: &Run) -> Result<(), StoreError> {
        let cleared = transition::clear_processes(run);
        let row = Columns::from(&cleared);
        self.change(
            "UPDATE lockkeeper_runs.run SET holder = $4, pid = $5, pid_started = $6, lease = $7, token = $8
             WHERE project = $1 AND id = $2 AND version = $3",
            &[
                param(&self.project()),
                param(&row.id),
                param(&row.version),
                param(&row.holder),
                param(&row.pid),
                param(&row.pid_started),
                param(&row.lease),
                param(&row.token),
            ],
        )
    }

    fn register_worker(&self, worker: &Worker) -> Result<(), StoreError> {
        self.insert_worker(worker)
    }

    fn renew_worker(&self, id: &WorkerId, expected: &[i64], beat: i64) -> Result<Renewal, StoreError> {
        self.renew_session(id, expected, beat)
    }

    fn silent_until(&self) -> Option<Moment> {
        let since = Moment::from_micros(self.remembers_since.load(Ordering::Relaxed));
        silent_until(since, self.session?, self.now().moment)
    }

    fn remove_worker(&self, id: &WorkerId) -> Result<(), StoreError> {
        let sql = "DELETE FROM lockkeeper_runs.worker WHERE project = $1 AND id = $2";
        self.change(sql, &[param(&self.project()), param(&id.as_str())])
    }

    fn change_auto_run(&self, change: &AutoRunChange<'_>) -> Result<(), StoreError> {
        self.update_auto_run(change)
    }

    fn prune(&self, before_unix_micros: i64) -> Result<Vec<Removed>, StoreError> {
        self.prune_requests(before_unix_micros)
    }

    fn import(&self, import: &Import<'_>) -> Result<Imported, StoreError> {
        self.import_records(import)
    }

    fn moved_to(&self) -> Result<Option<String>, StoreError> {
        self.leases.moved_to()
    }

    fn set_moved_to(&self, to: Option<&str>) -> Result<(), StoreError> {
        self.leases.set_moved_to(to)
    }

    fn keep_output(&self, changes: &[OutputChange<'_>]) -> Result<(), StoreError> {
        self.write_output(changes)
    }

    /// Nothing is left to do: every call waits for the disk before it returns.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn subscribe(&self) -> Result<Box<dyn ChangeSignal>, StoreError> {
        changes::subscribe(&self.leases.server, self.project())
    }

    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        examine::examine(self, thorough)
    }

    fn address(&self) -> String {
        self.leases.server.address().to_owned()
    }
}
