//! Records as rows: one way in, one way out, and nothing impossible gets through.

use std::time::Duration;

use lockkeeper_core::id::{BellId, HolderId, LeaseId, Token};
use lockkeeper_core::liveness::{Contract, Origin, ProcessRef, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease, Priority, Rank, Ticket};
use lockkeeper_core::time::{Moment, Ttl};
use rusqlite::types::{ToSql, Value};
use rusqlite::{Row, params_from_iter};

use crate::encoding;
use crate::store::StoreError;

/// The columns of a claim, in the order of [`claim_values`].
macro_rules! claim_columns {
    () => {
        "owner, resources, voucher, holder, pid, started, host, boot, pid_namespace, contract, ttl, reason, ticket"
    };
}
const CLAIM_WIDTH: usize = 13;

pub(super) const LEASE_COLUMNS: &str =
    concat!("l.id, l.token, ", claim_columns!(), ", acquired_at, heartbeat_at, pickup_by, revoked");
pub(super) const TICKET_COLUMNS: &str = concat!(
    "t.id, t.rank, ",
    claim_columns!(),
    ", priority, enqueued_at, seen_at, stays, bell, under, upgrades"
);
const LEASE_FIELDS: &str =
    concat!("id, token, ", claim_columns!(), ", acquired_at, heartbeat_at, pickup_by, revoked");
const TICKET_FIELDS: &str =
    concat!("id, rank, ", claim_columns!(), ", priority, enqueued_at, seen_at, stays, bell, under, upgrades");

/// Adds a lease that is not there.
pub(super) fn insert_lease() -> String {
    insert("lease", LEASE_FIELDS)
}

/// Changes a lease that is there.
pub(super) fn update_lease() -> String {
    update("lease", LEASE_FIELDS)
}

/// Adds a ticket that is not there.
pub(super) fn insert_ticket() -> String {
    insert("ticket", TICKET_FIELDS)
}

/// Changes a ticket that is there.
pub(super) fn update_ticket() -> String {
    update("ticket", TICKET_FIELDS)
}

fn insert(table: &str, fields: &str) -> String {
    format!("INSERT INTO {table} ({fields}) VALUES ({})", marks(fields))
}

fn update(table: &str, fields: &str) -> String {
    format!("UPDATE {table} SET ({fields}) = ({}) WHERE id = ?1", marks(fields))
}

fn marks(fields: &str) -> String {
    let count = fields.split(',').count();
    let marks: Vec<String> = (1..=count).map(|number| format!("?{number}")).collect();
    marks.join(",")
}

/// The values of a lease's fields.
pub(super) fn lease_values(lease: &Lease) -> impl rusqlite::Params {
    let mut values = vec![integer(lease.id.0), integer(lease.token.0)];
    claim_values(&lease.claim, &mut values);
    values.push(lease.acquired_at.as_micros().into());
    values.push(lease.heartbeat_at.as_micros().into());
    values.push(lease.pickup_by.map(Moment::as_micros).into());
    values.push(i64::from(lease.revoked).into());
    params_from_iter(values)
}

/// The values of a ticket's fields.
pub(super) fn ticket_values(ticket: &Ticket) -> impl rusqlite::Params {
    let mut values = vec![integer(ticket.id.0), ticket.rank.at.into()];
    claim_values(&ticket.claim, &mut values);
    values.push(i64::from(ticket.priority.get()).into());
    values.push(ticket.enqueued_at.as_micros().into());
    values.push(ticket.seen_at.as_micros().into());
    values.push(micros(ticket.stays).into());
    values.push(ticket.bell.map(|bell| integer(bell.0)).unwrap_or(Value::Null));
    values.push(encoding::lease_ids_to_json(&ticket.under).into());
    values.push(ticket.upgrades.map(|id| integer(id.0)).unwrap_or(Value::Null));
    params_from_iter(values)
}

/// Reads a row of [`LEASE_COLUMNS`].
pub(super) fn lease_from(row: &Row<'_>) -> Result<Lease, StoreError> {
    let rest = 2 + CLAIM_WIDTH;
    Ok(Lease {
        id: LeaseId(number(row, 0)?),
        token: Token(number(row, 1)?),
        claim: claim_from(row, 2)?,
        acquired_at: Moment::from_micros(get(row, rest)?),
        heartbeat_at: Moment::from_micros(get(row, rest + 1)?),
        pickup_by: get::<Option<i64>>(row, rest + 2)?.map(Moment::from_micros),
        revoked: get::<i64>(row, rest + 3)? != 0,
    })
}

/// Reads a row of [`TICKET_COLUMNS`].
pub(super) fn ticket_from(row: &Row<'_>) -> Result<Ticket, StoreError> {
    let rest = 2 + CLAIM_WIDTH;
    let id = LeaseId(number(row, 0)?);
    let priority = i32::try_from(get::<i64>(row, rest)?).ok().and_then(|level| Priority::new(level).ok());
    Ok(Ticket {
        id,
        rank: Rank { at: get(row, 1)?, id },
        claim: claim_from(row, 2)?,
        priority: priority.ok_or_else(|| impossible("priority"))?,
        enqueued_at: Moment::from_micros(get(row, rest + 1)?),
        seen_at: Moment::from_micros(get(row, rest + 2)?),
        stays: ttl_from(get(row, rest + 3)?)?,
        bell: get::<Option<i64>>(row, rest + 4)?.map(|bell| BellId(bell.cast_unsigned())),
        under: encoding::lease_ids_from_json(&get::<String>(row, rest + 5)?)
            .ok_or_else(|| impossible("under"))?,
        upgrades: get::<Option<i64>>(row, rest + 6)?.map(|id| LeaseId(id.cast_unsigned())),
    })
}

fn claim_values(claim: &Claim, values: &mut Vec<Value>) {
    let holder = match claim.proof.voucher {
        Voucher::KernelLock { holder, .. } => integer(holder.0),
        Voucher::Process(_) | Voucher::Time => Value::Null,
    };
    let process = claim.proof.process();
    let origin = &claim.proof.origin;
    values.extend([
        claim.owner.as_str().to_owned().into(),
        encoding::resources_to_json(&claim.resources).into(),
        claim.proof.voucher.to_string().into(),
        holder,
        process.map(|process| i64::from(process.pid)).into(),
        process.map_or(Value::Null, |process| integer(process.started)),
        origin.host.clone().into(),
        origin.boot.clone().into(),
        integer(origin.pid_namespace),
        claim.contract.to_string().into(),
        claim.ttl.map(micros).into(),
        claim.reason.clone().into(),
        claim.ticket.as_ref().map(|name| name.as_str().to_owned()).into(),
    ]);
}

fn claim_from(row: &Row<'_>, first: usize) -> Result<Claim, StoreError> {
    let text = |index: usize| get_str(row, first + index);
    let process = || -> Result<ProcessRef, StoreError> {
        let pid = u32::try_from(get::<i64>(row, first + 4)?).map_err(|_| impossible("pid"))?;
        Ok(ProcessRef { pid, started: number(row, first + 5)? })
    };
    let voucher = match text(2)? {
        "kernel-lock" => {
            Voucher::KernelLock { holder: HolderId(number(row, first + 3)?), process: process()? }
        }
        "process" => Voucher::Process(process()?),
        "ttl" => Voucher::Time,
        _ => return Err(impossible("voucher")),
    };
    let contract = match text(9)? {
        "strict" => Contract::Strict,
        "lease" => Contract::Lease,
        "kill" => Contract::Kill,
        _ => return Err(impossible("contract")),
    };
    let origin = Origin {
        host: text(6)?.to_owned(),
        boot: text(7)?.to_owned(),
        pid_namespace: number(row, first + 8)?,
    };
    let ticket: Option<String> = get(row, first + 12)?;
    Ok(Claim {
        owner: text(0)?.parse().map_err(|_| impossible("owner"))?,
        resources: encoding::resources_from_json(text(1)?).ok_or_else(|| impossible("resources"))?,
        proof: Proof { origin, voucher },
        contract,
        ttl: get::<Option<i64>>(row, first + 10)?.map(ttl_from).transpose()?,
        reason: get(row, first + 11)?,
        ticket: ticket.map(|name| name.parse()).transpose().map_err(|_| impossible("ticket"))?,
    })
}

/// SQLite's integers are signed: what does not fit never occurs, since numbers are drawn from one.
fn integer(number: u64) -> Value {
    Value::Integer(number.cast_signed())
}

fn micros(ttl: Ttl) -> i64 {
    i64::try_from(ttl.get().as_micros()).unwrap_or(i64::MAX)
}

fn ttl_from(micros: i64) -> Result<Ttl, StoreError> {
    let span = u64::try_from(micros).map(Duration::from_micros);
    span.ok().and_then(|span| Ttl::new(span).ok()).ok_or_else(|| impossible("ttl"))
}

fn number(row: &Row<'_>, index: usize) -> Result<u64, StoreError> {
    get::<i64>(row, index).map(i64::cast_unsigned)
}

fn get<T: rusqlite::types::FromSql>(row: &Row<'_>, index: usize) -> Result<T, StoreError> {
    row.get(index).map_err(|error| StoreError::Mismatch(error.to_string()))
}

fn get_str<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r str, StoreError> {
    let text = row.get_ref(index).ok().and_then(|value| value.as_str().ok());
    text.ok_or_else(|| StoreError::Mismatch(format!("column {index} is not text")))
}

fn impossible(column: &str) -> StoreError {
    StoreError::Mismatch(format!("a row has an impossible {column}"))
}

/// A key as a parameter.
pub(super) fn key_param(key: &lockkeeper_core::resource::Key) -> impl ToSql + '_ {
    key.as_str()
}
