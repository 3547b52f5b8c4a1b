//! What is to be done next, and what has to be looked after.

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;
use rusqlite::params;

use super::rows::{COLUMNS, read_run};
use super::{Tables, spec};
use crate::StoreError;

const FROM: &str = "FROM run JOIN request ON request.seq = run.request";
// Named, because without statistics SQLite prefers the index of all states, and looks at every queued run.
const FROM_QUEUE: &str = "FROM run INDEXED BY run_queue JOIN request ON request.seq = run.request";
const FROM_WISHES: &str = "FROM run INDEXED BY run_wish JOIN request ON request.seq = run.request";
const FROM_OUTSIDE: &str = "FROM run INDEXED BY run_outside JOIN request ON request.seq = run.request";
/// Runs that somebody executes, or of which something may still live.
const LIVING: &str = "SELECT seq FROM run INDEXED BY run_status
        WHERE status IN ('running', 'cancelling') AND (worker IS NOT NULL OR holder IS NOT NULL)
    UNION ALL
    SELECT seq FROM run INDEXED BY run_left WHERE holder IS NOT NULL AND completed_at IS NOT NULL";
const FROM_GIVE_UP: &str = "FROM run INDEXED BY run_give_up JOIN request ON request.seq = run.request";

impl Tables<'_> {
    /// Runs that can begin, the next one first: by priority, then by age. Those that `after` comes before are left
    /// out.
    pub fn ready(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<Run>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let condition = "run.status = 'queued' AND run.ready = 1";
        match after {
            None => self.many(
                &format!(
                    "SELECT {COLUMNS} {FROM_QUEUE} WHERE {condition}
                     ORDER BY run.priority DESC, run.seq LIMIT ?1"
                ),
                [limit],
            ),
            Some(after) => self.many(
                &format!(
                    "SELECT {COLUMNS} {FROM_QUEUE} WHERE {condition} AND (-run.priority, run.seq) >
                         (SELECT -priority, seq FROM run WHERE id = ?1)
                     ORDER BY run.priority DESC, run.seq LIMIT ?2"
                ),
                params![after.as_str(), limit],
            ),
        }
    }

    /// The first of them with their requests, as one question.
    pub fn ready_with_requests(&self, limit: usize) -> Result<Vec<(Run, Request)>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, request.spec {FROM_QUEUE} WHERE run.status = 'queued' AND run.ready = 1
             ORDER BY run.priority DESC, run.seq LIMIT ?1"
        );
        self.rows(&sql, [i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            let spec: String = row.get("spec")?;
            Ok(read_run(row)?.and_then(|run| Ok((run, spec::read(&spec)?))))
        })
    }

    /// The next run that wants exactly this.
    pub fn ready_for(&self, wish: &str) -> Result<Option<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} {FROM_WISHES} WHERE run.status = 'queued' AND run.ready = 1 AND run.wish = ?1
             ORDER BY run.priority DESC, run.seq LIMIT 1"
        );
        self.one(&sql, [wish])
    }

    /// Of the runs that can begin, the next one of those that want the same, the most urgent first. Its cost grows with
    /// the number of different wishes, not with the number of runs.
    pub fn ready_by_wish(&self, limit: usize) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "WITH RECURSIVE wishes (wish) AS (
                 SELECT min(wish) FROM run INDEXED BY run_wish WHERE status = 'queued' AND ready = 1
                 UNION ALL
                 SELECT (SELECT min(run.wish) FROM run INDEXED BY run_wish
                         WHERE run.status = 'queued' AND run.ready = 1 AND run.wish > wishes.wish)
                 FROM wishes WHERE wishes.wish IS NOT NULL
             ), firsts (seq) AS (
                 SELECT (SELECT run.seq FROM run INDEXED BY run_wish
                         WHERE run.status = 'queued' AND run.ready = 1 AND run.wish = wishes.wish
                         ORDER BY run.priority DESC, run.seq LIMIT 1)
                 FROM wishes WHERE wishes.wish IS NOT NULL
             )
             SELECT {COLUMNS} FROM firsts JOIN run ON run.seq = firsts.seq
                 JOIN request ON request.seq = run.request
             ORDER BY run.priority DESC, run.seq LIMIT ?1"
        );
        self.many(&sql, [i64::try_from(limit).unwrap_or(i64::MAX)])
    }

    /// Runs whose next attempt is due, the most urgent first.
    pub fn due_retries(&self, now: Moment, limit: usize) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} {FROM} WHERE run.retry_at <= ?1 AND run.ready = 1
             ORDER BY run.priority DESC, run.retry_at, run.seq LIMIT ?2"
        );
        self.many(&sql, params![now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)])
    }

    /// Queued runs that nobody began with in time, and those that an executor outside of Lockkeeper took too long
    /// for. Who executes a run here looks at the clock by itself.
    pub fn overdue(&self, now: Moment, limit: usize) -> Result<Vec<Run>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} {FROM_GIVE_UP} WHERE run.status = 'queued' AND run.give_up_at <= ?1
             ORDER BY run.give_up_at LIMIT ?2"
        );
        let mut overdue =
            self.many(&sql, params![now.as_micros(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
        let sql = format!(
            "SELECT {COLUMNS} {FROM_OUTSIDE} WHERE run.worker IS NOT NULL AND run.holder IS NULL
                 AND run.status = 'running' AND run.started_moment + run.timeout <= ?1"
        );
        overdue.extend(self.many(&sql, [now.as_micros()])?);
        Ok(overdue)
    }

    /// When the next queued run is to be given up, the next attempt is due, or an executor outside of Lockkeeper has
    /// taken too long. Attempts that were due at `looked_at` wait for something else than time.
    pub fn next_due(&self, looked_at: Moment) -> Result<Option<Moment>, StoreError> {
        let give_up = self.number(
            "SELECT min(give_up_at) FROM run INDEXED BY run_give_up
             WHERE status = 'queued' AND give_up_at IS NOT NULL",
            [],
        )?;
        let retry = self.number(
            "SELECT min(retry_at) FROM run WHERE retry_at > ?1 AND ready = 1",
            [looked_at.as_micros()],
        )?;
        let outside = self.number(
            "SELECT min(started_moment + timeout) FROM run INDEXED BY run_outside
             WHERE worker IS NOT NULL AND holder IS NULL AND status = 'running'",
            [],
        )?;
        Ok([give_up, retry, outside].into_iter().flatten().min().map(Moment::from_micros))
    }

    /// Runs that somebody executes, or of which something may still live.
    pub fn living(&self) -> Result<Vec<Run>, StoreError> {
        let sql = format!("SELECT {COLUMNS} {FROM} WHERE run.seq IN ({LIVING}) ORDER BY run.seq");
        self.many(&sql, [])
    }

    /// The run whose processes share this kernel lock.
    pub fn run_of_holder(&self, holder: HolderId) -> Result<Option<Run>, StoreError> {
        let sql = format!("SELECT {COLUMNS} {FROM} WHERE run.seq IN ({LIVING}) AND run.holder = ?1");
        self.one(&sql, [holder.0.cast_signed()])
    }

    /// The names of runs that can begin, the next one first.
    pub fn line(&self, limit: usize) -> Result<Vec<RunId>, StoreError> {
        let sql = "SELECT id FROM run INDEXED BY run_queue WHERE status = 'queued' AND ready = 1
                   ORDER BY priority DESC, seq LIMIT ?1";
        self.rows(sql, [i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            Ok(row.get::<_, String>(0)?.parse().map_err(|error| format!("{error}")))
        })
    }

    /// How many queued runs come before this one.
    pub fn position(&self, run: &RunId) -> Result<u64, StoreError> {
        let sql = "SELECT (SELECT count(*) FROM run INDEXED BY run_queue
                           WHERE status = 'queued' AND ready = 1 AND priority > this.priority)
                        + (SELECT count(*) FROM run INDEXED BY run_queue
                           WHERE status = 'queued' AND ready = 1 AND priority = this.priority AND seq < this.seq)
                   FROM run AS this WHERE this.id = ?1";
        Ok(self.number(sql, [run.as_str()])?.unwrap_or(0).cast_unsigned())
    }

    /// How many runs are queued.
    pub fn queue_length(&self) -> Result<u64, StoreError> {
        Ok(self.number("SELECT count(*) FROM run WHERE status = 'queued'", [])?.unwrap_or(0).cast_unsigned())
    }

    /// The boot that moments belong to.
    pub fn boot(&self) -> Result<String, StoreError> {
        let boot = self.connection().query_row("SELECT boot FROM clock", [], |row| row.get(0));
        self.database(boot)
    }

    /// Moves every moment of an earlier boot onto this one's clock, by what the wall clock says has passed. False when
    /// another process was first.
    pub fn rebase(&self, boot: &str) -> Result<bool, StoreError> {
        if self.boot()? == boot {
            return Ok(false);
        }
        let now = self.now();
        // `queued_at` lies this far back; a wall clock that was set back counts as no time at all.
        let shift = "(?1 - max(0, ?2 - queued_at)) - queued_moment";
        self.execute(
            &format!(
                "UPDATE run SET queued_moment = queued_moment + ({shift}), give_up_at = give_up_at + ({shift}),
                     started_moment = started_moment + ({shift}), retry_at = retry_at + ({shift}),
                     completed_moment = completed_moment + ({shift})
                 WHERE completed_at IS NULL"
            ),
            params![now.moment.as_micros(), now.unix_micros],
        )?;
        // Nothing of another boot lives.
        self.execute("DELETE FROM worker WHERE boot <> ?1", [boot])?;
        self.execute("UPDATE clock SET boot = ?1", [boot])?;
        Ok(true)
    }
}
