//! Rows: the SQL statements, and the conversion between records and rows. Impossible values are refused.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::record::{Claim, Lease, Priority, Rank, Ticket};
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::Key;
use lockkeeper_core::time::{Moment, Ttl};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::optimistic::parts::Found;
use crate::{StoreError, encoding};

/// The columns of a record.
macro_rules! select_records {
    ($from:literal) => {
        concat!(
            "SELECT id, version, claim, since, seen_at, token, pickup_by, revoked, rank, priority, stays, waker, under, upgrades
             FROM ",
            $from
        )
    };
}

/// Moment, block of numbers, since when the server has lost nothing, and the versions of some parts.
pub(super) const VERSIONS: &str = "
    SELECT lockkeeper.moment($1), lockkeeper.numbers(), lockkeeper.remembers_since($1), lockkeeper.versions($1, $2)";
/// Moment, block of numbers, since when the server has lost nothing, and the highest version of all parts.
pub(super) const HIGHEST_VERSION: &str = "
    SELECT lockkeeper.moment($1), lockkeeper.numbers(), lockkeeper.remembers_since($1),
        (SELECT coalesce(max(version), 0) FROM lockkeeper.part WHERE project = $1)";
/// The records with these keys, and those with a key in a range.
pub(super) const RECORDS_IN: &str = select_records!("lockkeeper.records_in($1, $2, $3, $4)");
/// One record.
pub(super) const RECORD: &str = select_records!("lockkeeper.record WHERE project = $1 AND id = $2");
/// All records.
pub(super) const ALL: &str = select_records!("lockkeeper.record WHERE project = $1");
/// Commits a decision. One that began without a read is not committed if the server has lost or skipped numbers since (see
/// `lockkeeper.raise_numbers`), or if its clock is later than `$29`: a read would have shown that.
pub(super) const COMMIT: &str = "
    SELECT CASE WHEN $28 IS NULL OR (
            lockkeeper.numbers() BETWEEN $28 + 1 AND $28 + 1048575
            AND lockkeeper.remembers_since($1) IS NOT NULL AND lockkeeper.moment($1) <= $29
        ) THEN lockkeeper.commit(
            $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27
        ) END, lockkeeper.moment($1), lockkeeper.numbers()";

/// The changes of a decision as the arrays that `lockkeeper.commit` takes: one entry for each change.
#[derive(Default)]
pub(super) struct ChangeArrays {
    kinds: Vec<&'static str>,
    ids: Vec<i64>,
    claims: Vec<Vec<u8>>,
    sinces: Vec<i64>,
    seen: Vec<i64>,
    tokens: Vec<Option<i64>>,
    pickups: Vec<Option<i64>>,
    revoked: Vec<Option<bool>>,
    ranks: Vec<Option<i64>>,
    priorities: Vec<Option<i32>>,
    stays: Vec<Option<i64>>,
    wakers: Vec<Option<i64>>,
    unders: Vec<Option<Vec<u8>>>,
    upgrades: Vec<Option<i64>>,
    old_ranks: Vec<Option<i64>>,
    key_counts: Vec<i32>,
    keys: Vec<String>,
}

impl ChangeArrays {
    pub(super) fn of(changes: &[Change]) -> Self {
        let mut arrays = Self::default();
        for change in changes {
            match change {
                Change::AddLease(lease) => arrays.push_lease("L", lease, &lease.keys(), None),
                Change::UpdateLease(lease) => arrays.push_lease("l", lease, &lease.keys(), None),
                Change::RemoveLease(lease) => arrays.push_lease("r", lease, &lease.keys(), None),
                Change::Grant(ticket, lease) => {
                    arrays.push_lease("G", lease, &ticket.keys(), Some(ticket.rank));
                }
                Change::AddTicket(ticket) => arrays.push_ticket("T", ticket),
                Change::UpdateTicket(ticket) => arrays.push_ticket("t", ticket),
                Change::RemoveTicket(ticket) => arrays.push_ticket("s", ticket),
            }
        }
        arrays
    }

    /// The parameters, in the order of the function.
    pub(super) fn params(&self) -> [(&(dyn ToSql + Sync), Type); 17] {
        [
            (&self.kinds, Type::TEXT_ARRAY),
            (&self.ids, Type::INT8_ARRAY),
            (&self.claims, Type::BYTEA_ARRAY),
            (&self.sinces, Type::INT8_ARRAY),
            (&self.seen, Type::INT8_ARRAY),
            (&self.tokens, Type::INT8_ARRAY),
            (&self.pickups, Type::INT8_ARRAY),
            (&self.revoked, Type::BOOL_ARRAY),
            (&self.ranks, Type::INT8_ARRAY),
            (&self.priorities, Type::INT4_ARRAY),
            (&self.stays, Type::INT8_ARRAY),
            (&self.wakers, Type::INT8_ARRAY),
            (&self.unders, Type::BYTEA_ARRAY),
            (&self.upgrades, Type::INT8_ARRAY),
            (&self.old_ranks, Type::INT8_ARRAY),
            (&self.key_counts, Type::INT4_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
        ]
    }

    fn push_lease(&mut self, kind: &'static str, lease: &Lease, keys: &[Key], old_rank: Option<Rank>) {
        self.push(kind, lease.id, &lease.claim, keys, [lease.acquired_at, lease.heartbeat_at]);
        self.tokens.push(Some(integer(lease.token.0)));
        self.pickups.push(lease.pickup_by.map(Moment::as_micros));
        self.revoked.push(Some(lease.revoked));
        self.ranks.push(None);
        self.priorities.push(None);
        self.stays.push(None);
        self.wakers.push(None);
        self.unders.push(None);
        self.upgrades.push(None);
        self.old_ranks.push(old_rank.map(|rank| rank.at));
    }

    fn push_ticket(&mut self, kind: &'static str, ticket: &Ticket) {
        self.push(kind, ticket.id, &ticket.claim, &ticket.keys(), [ticket.enqueued_at, ticket.seen_at]);
        self.tokens.push(None);
        self.pickups.push(None);
        self.revoked.push(None);
        self.ranks.push(Some(ticket.rank.at));
        self.priorities.push(Some(ticket.priority.get()));
        self.stays.push(Some(i64::try_from(ticket.stays.get().as_micros()).unwrap_or(i64::MAX)));
        self.wakers.push(ticket.waker.map(|waker| integer(waker.0)));
        self.unders.push(Some(encoding::lease_ids_to_bytes(&ticket.under)));
        self.upgrades.push(ticket.upgrades.map(|id| integer(id.0)));
        self.old_ranks.push(Some(ticket.rank.at));
    }

    fn push(
        &mut self,
        kind: &'static str,
        id: LeaseId,
        claim: &Claim,
        keys: &[Key],
        [since, seen]: [Moment; 2],
    ) {
        self.kinds.push(kind);
        self.ids.push(integer(id.0));
        self.claims.push(encoding::claim_to_bytes(claim));
        self.sinces.push(since.as_micros());
        self.seen.push(seen.as_micros());
        let before = self.keys.len();
        self.keys.extend(keys.iter().map(|key| key.as_str().to_owned()));
        self.keys[before..].sort();
        self.keys.dedup();
        self.key_counts.push(i32::try_from(self.keys.len() - before).unwrap_or(i32::MAX));
    }
}

/// Reads a row of `select_records`: the record and its version.
pub(super) fn record_from(row: &Row) -> Result<(Found, i64), StoreError> {
    let id = LeaseId(get::<i64>(row, 0)?.cast_unsigned());
    let claim = encoding::claim_from_bytes(get(row, 2)?);
    let claim = claim.map(Arc::new).ok_or_else(|| impossible("claim"))?;
    let since = Moment::from_micros(get(row, 3)?);
    let seen_at = Moment::from_micros(get(row, 4)?);
    let token: Option<i64> = get(row, 5)?;
    let found = match token {
        Some(token) => Found::Lease(Lease {
            id,
            token: Token(token.cast_unsigned()),
            claim,
            acquired_at: since,
            heartbeat_at: seen_at,
            pickup_by: get::<Option<i64>>(row, 6)?.map(Moment::from_micros),
            revoked: get(row, 7)?,
        }),
        None => Found::Ticket(Ticket {
            id,
            claim,
            rank: Rank { at: get(row, 8)?, id },
            priority: Priority::new(get(row, 9)?).map_err(|_| impossible("priority"))?,
            enqueued_at: since,
            seen_at,
            stays: ttl_from(get(row, 10)?)?,
            waker: get::<Option<i64>>(row, 11)?.map(|waker| WakerId(waker.cast_unsigned())),
            under: encoding::lease_ids_from_bytes(get(row, 12)?)
                .ok_or_else(|| impossible("list of leases"))?,
            upgrades: get::<Option<i64>>(row, 13)?.map(|id| LeaseId(id.cast_unsigned())),
        }),
    };
    Ok((found, get(row, 1)?))
}

/// One column of a row.
pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, index: usize) -> Result<T, StoreError> {
    row.try_get(index).map_err(|error| StoreError::Mismatch(error.to_string()))
}

/// PostgreSQL's integers are signed. Numbers never get that large.
pub(super) fn integer(number: u64) -> i64 {
    number.cast_signed()
}

fn ttl_from(micros: i64) -> Result<Ttl, StoreError> {
    let span = u64::try_from(micros).map(Duration::from_micros);
    span.ok().and_then(|span| Ttl::new(span).ok()).ok_or_else(|| impossible("ttl"))
}

fn impossible(column: &str) -> StoreError {
    StoreError::Mismatch(format!("a row has an impossible {column}"))
}
