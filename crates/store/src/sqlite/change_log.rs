//! Change log of a served folder: what its records were before each change, by local and remote processes alike.
//!
//! Triggers of the database write it, so local processes do nothing for it. It has the last 4,096 changes. The version of the
//! folder is that of its last entry.

use std::collections::{BTreeMap, BTreeSet};

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::records::Records;

use super::records::SqliteRecords;
use super::rows;
use crate::StoreError;
use crate::http::messages::Commit;
use crate::optimistic::parts::{Found, part_of};

/// The tables and triggers. The log is never empty, so that its versions go on.
pub(super) const TABLES: &str = "
CREATE TABLE served (incarnation TEXT NOT NULL, distance INTEGER NOT NULL, since INTEGER NOT NULL) STRICT;
CREATE TABLE decision (place INTEGER PRIMARY KEY, number INTEGER NOT NULL UNIQUE, made INTEGER NOT NULL) STRICT;
CREATE TABLE change_log (
    version INTEGER PRIMARY KEY, id INTEGER, rank INTEGER, claim BLOB, since INTEGER, seen_at INTEGER, token INTEGER,
    pickup_by INTEGER, revoked INTEGER, priority INTEGER, stays INTEGER, bell INTEGER, under BLOB, upgrades INTEGER
) STRICT;
INSERT INTO change_log (version) VALUES (1);
CREATE TRIGGER log_added AFTER INSERT ON record BEGIN
    INSERT INTO change_log (id) VALUES (NEW.id);
    DELETE FROM change_log WHERE version <= last_insert_rowid() - 4096;
END;
CREATE TRIGGER log_changed AFTER UPDATE ON record BEGIN
    INSERT INTO change_log VALUES (NULL, OLD.id, OLD.rank, OLD.claim, OLD.since, OLD.seen_at, OLD.token, OLD.pickup_by,
        OLD.revoked, OLD.priority, OLD.stays, OLD.bell, OLD.under, OLD.upgrades);
    DELETE FROM change_log WHERE version <= last_insert_rowid() - 4096;
END;
CREATE TRIGGER log_removed AFTER DELETE ON record BEGIN
    INSERT INTO change_log VALUES (NULL, OLD.id, OLD.rank, OLD.claim, OLD.since, OLD.seen_at, OLD.token, OLD.pickup_by,
        OLD.revoked, OLD.priority, OLD.stays, OLD.bell, OLD.under, OLD.upgrades);
    DELETE FROM change_log WHERE version <= last_insert_rowid() - 4096;
END;";

/// The first and the last version of the log.
const VERSIONS: &str = "SELECT (SELECT min(version) FROM change_log), (SELECT max(version) FROM change_log)";

/// What happened to records after a version: the version of each change, and what the record was before.
pub(super) type Changes = BTreeMap<LeaseId, BTreeMap<i64, Option<Found>>>;

impl SqliteRecords<'_> {
    /// The first version that the log knows, and the current one.
    pub(super) fn versions(&self) -> Result<(i64, i64), StoreError> {
        let found = self.query(VERSIONS, [], |row| Ok((rows::get(row, 0)?, rows::get(row, 1)?)))?;
        found.first().copied().ok_or_else(|| StoreError::Mismatch("the log of changes is empty".to_owned()))
    }

    /// The changes after a version; none if the log does not reach back so far.
    pub(super) fn changes_after(&self, version: i64) -> Result<Option<Changes>, StoreError> {
        let (first, last) = self.versions()?;
        if version == last {
            return Ok(Some(Changes::new()));
        }
        if version + 1 < first || version > last {
            return Ok(None);
        }
        let mut changes = Changes::new();
        let leases = self
            .query(rows::LEASES_BEFORE, [version], |row| Ok((rows::get(row, 7)?, rows::lease_from(row)?)))?;
        let tickets = self.query(rows::TICKETS_BEFORE, [version], |row| {
            Ok((rows::get(row, 10)?, rows::ticket_from(row)?))
        })?;
        let added = self.query(rows::ADDED_AFTER, [version], |row| {
            Ok((rows::get::<i64>(row, 1)?, rows::id_from(row)?))
        })?;
        for (at, lease) in leases {
            changes.entry(lease.id).or_default().insert(at, Some(Found::Lease(lease)));
        }
        for (at, ticket) in tickets {
            changes.entry(ticket.id).or_default().insert(at, Some(Found::Ticket(ticket)));
        }
        for (at, id) in added {
            changes.entry(id).or_default().insert(at, None);
        }
        Ok(Some(changes))
    }

    /// Whether something that a decision of another machine has read has changed since.
    pub(super) fn has_changed(&mut self, commit: &Commit) -> Result<bool, StoreError> {
        let versions = commit.parts.iter().map(|(_, version)| version);
        let versions = versions.chain(commit.ids.iter().map(|(_, version)| version)).chain(&commit.all);
        let Some(oldest) = versions.min() else { return Ok(false) };
        let Some(changes) = self.changes_after(*oldest)? else { return Ok(true) };
        let parts: BTreeMap<&str, i64> =
            commit.parts.iter().map(|(part, version)| (part.as_str(), *version)).collect();
        let ids: BTreeMap<u64, i64> = commit.ids.iter().copied().collect();
        for (id, history) in &changes {
            let Some((latest, _)) = history.last_key_value() else { continue };
            let is_later = |read: &i64| read < latest;
            if commit.all.as_ref().is_some_and(is_later) || ids.get(&id.0).is_some_and(is_later) {
                return Ok(true);
            }
            let mut keys = BTreeSet::new();
            history.values().flatten().for_each(|found| keys.extend(found.keys()));
            // One that was added and removed again has its keys in the log.
            keys.extend(self.lease(*id)?.map(|lease| lease.keys()).unwrap_or_default());
            keys.extend(self.ticket(*id)?.map(|ticket| ticket.keys()).unwrap_or_default());
            if keys.iter().any(|key| parts.get(part_of(key)).is_some_and(is_later)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
