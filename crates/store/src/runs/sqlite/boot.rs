//! Reboots: timestamps of another boot are moved onto the clock of this one.

use rusqlite::params;

use super::tables::Tables;
use crate::StoreError;

impl Tables<'_> {
    /// The boot whose clock the timestamps belong to.
    pub(super) fn boot(&self) -> Result<String, StoreError> {
        let found = self.rows("SELECT boot FROM clock", [], |row| Ok(Ok(row.get(0)?)))?;
        found.into_iter().next().ok_or_else(|| StoreError::Mismatch("there is no clock".to_owned()))
    }

    /// Moves the timestamps of open runs onto the clock of this boot. The wall clock says how much time has passed. False if
    /// another process has done it.
    pub(super) fn rebase(&self, boot: &str) -> Result<bool, StoreError> {
        if self.boot()? == boot {
            return Ok(false);
        }
        let now = self.now();
        // The run was queued this long ago. If the wall clock was set back, no time has passed.
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
        // No worker of another boot of this machine lives. Those of other machines get the time to come back.
        if self.is_served() {
            self.execute("UPDATE session SET heartbeat = ?1", [now.moment.as_micros()])?;
            let sql = "DELETE FROM worker WHERE boot <> ?1 AND id NOT IN (SELECT worker FROM session)";
            self.execute(sql, [boot])?;
        } else {
            self.execute("DELETE FROM worker WHERE boot <> ?1", [boot])?;
        }
        self.execute("UPDATE clock SET boot = ?1", [boot])?;
        Ok(true)
    }
}
