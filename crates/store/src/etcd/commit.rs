//! The conditional commit: one transaction of etcd compares what a decision read and makes its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::records::{Change, Effect};
use lockkeeper_core::resource::Key;

use super::messages::{Compare, Op, RangeRequest, RequestOp, TxnRequest};
use super::records::EtcdRecords;
use super::server::Failure;
use super::{EtcdStore, clock, keys};
use crate::listener::payload;
use crate::parts::{Found, parts_written};
use crate::{Commit, Granted, StoreError, Transaction, encoding};

/// How many comparisons or operations a transaction of etcd has at most.
const MOST: usize = 128;
/// How many comparisons are made one by one. With more of them, the whole project must be unchanged.
const MOST_COMPARES: usize = 64;
/// About one commit of this number removes old decisions and wake-ups.
const PRUNE_EVERY: u64 = 64;
/// How long a decision is remembered: clients ask about it within seconds, or never.
const REMEMBERED: Duration = Duration::from_secs(600);
const COMMITTED: &[u8] = b"committed";
const GIVEN_UP: &[u8] = b"given up";

impl Transaction for EtcdRecords<'_> {
    fn commit(mut self: Box<Self>, changes: Vec<Change>, effects: &[Effect]) -> Result<Commit, StoreError> {
        if self.is_torn {
            return Ok(Commit::Changed);
        }
        let store = self.store;
        let wakes = wakes(store, effects, &Granted::among(&changes));
        if changes.is_empty() {
            if !wakes.is_empty() {
                store
                    .server
                    .txn(&TxnRequest { success: in_parts(wakes, 0, store)?, ..Default::default() })?;
            }
            return Ok(Commit::Committed);
        }
        let added: BTreeSet<LeaseId> = changes.iter().filter(|change| is_added(change)).map(id_of).collect();
        // Whether a few ids are new is compared by the commit itself.
        let reads = |id: &LeaseId| added.len() > MOST_COMPARES / 2 || !added.contains(id);
        self.load_each(changes.iter().map(id_of).filter(reads).collect::<BTreeSet<_>>())?;
        let fresh: Vec<LeaseId> = added.into_iter().filter(|id| !self.is_compared(*id)).collect();
        let mut compare = self.compares(fresh.len());
        let parts: BTreeSet<String> = parts_written(&changes).into_iter().map(keys::bucket).collect();
        let before: BTreeMap<LeaseId, Option<Found>> =
            changes.iter().map(|change| (id_of(change), state_of(&self.records, id_of(change)))).collect();
        for change in changes {
            if let Err(misfit) = self.records.apply(change) {
                // A decision on records of two moments may find anything.
                let is_current = store.holds(compare)?;
                let mismatch = StoreError::Mismatch(misfit.to_string());
                return if is_current { Err(mismatch) } else { Ok(Commit::Changed) };
            }
        }
        let mut ops = wakes;
        for (id, before) in before {
            ops.extend(store.ops_of(id, before.as_ref(), state_of(&self.records, id).as_ref()));
        }
        ops.extend(parts.iter().map(|part| keys::put(store.keys.version(part), Vec::new())));
        let now = clock::to_bytes(self.now.as_micros());
        ops.push(Op::Txn(TxnRequest {
            compare: vec![keys::is_less(store.keys.clock_last(), now.clone())],
            success: vec![keys::put(store.keys.clock_last(), now).into()],
            failure: Vec::new(),
        }));
        ops.push(keys::put(store.keys.all(), Vec::new()));
        let call = store.random("draw a number for")?;
        let decision = store.keys.decision(self.now, call);
        ops.push(keys::put(decision.clone(), COMMITTED.to_vec()));
        compare.extend(fresh.iter().map(|id| keys::is_absent(store.keys.record(*id))));
        compare.push(keys::is_absent(decision.clone()));
        let failure: Vec<RequestOp> = fresh
            .iter()
            .map(|id| RangeRequest { keys_only: true, ..keys::get(store.keys.record(*id)) })
            .map(|range| Op::Range(range).into())
            .collect();
        let success = in_parts(ops, compare.len(), store)?;
        match store.server.txn_once(&TxnRequest { compare, success, failure }) {
            Ok(answer) if answer.succeeded => {}
            Ok(answer) => {
                let is_there = answer.into_ranges().into_iter().flatten().next().is_some();
                let mismatch = || StoreError::Mismatch("a record to be added is there already".to_owned());
                return if is_there { Err(mismatch()) } else { Ok(Commit::Changed) };
            }
            Err(failure) if failure.is_broken() => match store.was_committed(&decision) {
                Ok(true) => {}
                Ok(false) => return Ok(Commit::Changed),
                Err(_) => return Err(in_doubt(failure, store)),
            },
            Err(failure) => return Err(failure.explain(store.server.address())),
        }
        if call.is_multiple_of(PRUNE_EVERY) {
            let old = keys::delete_within(store.keys.decisions_before(self.now.before(REMEMBERED)));
            let heard = keys::delete_within(store.keys.wakers());
            let success = vec![old.into(), heard.into()];
            // Another commit does it if this one cannot.
            let _ = store.server.txn_once(&TxnRequest { success, ..Default::default() });
        }
        Ok(Commit::Committed)
    }
}

impl EtcdRecords<'_> {
    /// Whether a commit compares the version of this record anyway.
    fn is_compared(&self, id: LeaseId) -> bool {
        self.footprint.all.is_some() || self.footprint.ids.contains_key(&id)
    }

    /// What must be so for everything that was read to be unchanged. `more` comparisons come besides.
    fn compares(&self, more: usize) -> Vec<Compare> {
        let keys = &self.store.keys;
        let all = self.footprint.all.map(|version| keys::is_at(keys.all(), version));
        let parts =
            self.footprint.parts.iter().map(|(part, version)| keys::is_at(keys.version(part), *version));
        let ids = self.footprint.ids.iter().map(|(id, version)| keys::is_at(keys.record(*id), *version));
        let compares: Vec<Compare> = all.into_iter().chain(parts).chain(ids).collect();
        match self.since {
            Some(since) if compares.len() + more > MOST_COMPARES => {
                vec![keys::is_not_after(keys.all(), since)]
            }
            Some(_) | None => compares,
        }
    }
}

impl EtcdStore {
    /// Whether these comparisons hold now.
    fn holds(&self, compare: Vec<Compare>) -> Result<bool, StoreError> {
        // Without a range, a member would answer by itself, without asking the others.
        let success = vec![Op::Range(keys::get(self.keys.all())).into()];
        let failure = success.clone();
        Ok(self.server.txn(&TxnRequest { compare, success, failure })?.succeeded)
    }

    /// Whether a decision was committed, although the connection broke before the answer came. If not, it never will be.
    fn was_committed(&self, decision: &[u8]) -> Result<bool, StoreError> {
        let settled = self.server.txn(&TxnRequest {
            compare: vec![keys::is_absent(decision.to_vec())],
            success: vec![keys::put(decision.to_vec(), GIVEN_UP.to_vec()).into()],
            failure: vec![Op::Range(keys::get(decision.to_vec())).into()],
        })?;
        let found = settled.into_ranges().into_iter().flatten().next();
        Ok(found.is_some_and(|kv| kv.value == COMMITTED))
    }

    /// What changes one record.
    fn ops_of(&self, id: LeaseId, before: Option<&Found>, after: Option<&Found>) -> Vec<Op> {
        let (old, new) = (keys_of(before), keys_of(after));
        let gone = old.difference(&new).map(|key| keys::delete(self.keys.entry(key, id)));
        let mut ops: Vec<Op> = gone.collect();
        match after {
            Some(record) => {
                let bytes = encoding::record_to_bytes(record);
                ops.extend(new.iter().map(|key| keys::put(self.keys.entry(key, id), bytes.clone())));
                ops.push(keys::put(self.keys.record(id), bytes));
            }
            None if before.is_some() => ops.push(keys::delete(self.keys.record(id))),
            None => {}
        }
        ops
    }

    /// Says what is wrong with the records and the keys by which they are found.
    pub(super) fn flaws(&self) -> Result<Vec<String>, StoreError> {
        let spans = [self.keys.records(), self.keys.entries()].map(keys::within).to_vec();
        let found = self.read(spans, false)?.answers;
        let [records, entries] = [0, 1].map(|place| found.get(place).map_or(&[][..], Vec::as_slice));
        let unreadable = records.iter().filter(|kv| encoding::record_from_bytes(&kv.value).is_none()).count();
        let wanted: BTreeMap<Vec<u8>, &[u8]> = records
            .iter()
            .filter_map(|kv| Some((encoding::record_from_bytes(&kv.value)?, kv)))
            .flat_map(|(record, kv)| {
                let entries: Vec<_> = keys_of(Some(&record))
                    .iter()
                    .map(|key| (self.keys.entry(key, record.id()), kv.value.as_slice()))
                    .collect();
                entries
            })
            .collect();
        let is_right = |kv: &&super::messages::KeyValue| wanted.get(&kv.key) == Some(&kv.value.as_slice());
        let right = entries.iter().filter(is_right).count();
        let flaw = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let flaws = [
            flaw(unreadable, "records that cannot be read"),
            flaw(entries.len() - right, "keys of no record, or with another content"),
            flaw(wanted.len() - right, "keys of records that are missing"),
        ];
        Ok(flaws.into_iter().flatten().collect())
    }
}

fn is_added(change: &Change) -> bool {
    matches!(change, Change::AddLease(_) | Change::AddTicket(_))
}

fn id_of(change: &Change) -> LeaseId {
    match change {
        Change::AddLease(lease)
        | Change::UpdateLease(lease)
        | Change::RemoveLease(lease)
        | Change::Grant(_, lease) => lease.id,
        Change::AddTicket(ticket) | Change::UpdateTicket(ticket) | Change::RemoveTicket(ticket) => ticket.id,
    }
}

fn state_of(records: &InMemoryRecords, id: LeaseId) -> Option<Found> {
    let lease = records.lease(id).cloned().map(Found::Lease);
    lease.or_else(|| records.ticket(id).cloned().map(Found::Ticket))
}

fn keys_of(record: Option<&Found>) -> BTreeSet<Key> {
    record.map_or_else(BTreeSet::new, |record| match record {
        Found::Lease(lease) => lease.keys().into_iter().collect(),
        Found::Ticket(ticket) => ticket.keys().into_iter().collect(),
    })
}

/// The wake-ups of a decision. Each waker's key changes once.
fn wakes(
    store: &EtcdStore,
    effects: &[Effect],
    granted: &[(lockkeeper_core::id::WakerId, Granted)],
) -> Vec<Op> {
    let woken: BTreeSet<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Wake(waker) => Some(*waker),
            // A waker ends with the connection of its process.
            Effect::RemoveWaker(_) => None,
        })
        .collect();
    let message = |waker| granted.iter().find(|(to, _)| *to == waker).map(|(_, granted)| *granted);
    woken
        .into_iter()
        .map(|waker| keys::put(store.keys.waker(waker), payload(message(waker)).into_bytes()))
        .collect()
}

/// Puts operations into one transaction of etcd: those that are too many go into transactions within it.
pub(super) fn in_parts(
    ops: Vec<Op>,
    compares: usize,
    store: &EtcdStore,
) -> Result<Vec<RequestOp>, StoreError> {
    let count = ops.len();
    if count.max(compares) <= MOST {
        return Ok(ops.into_iter().map(RequestOp::from).collect());
    }
    // etcd counts the operations of a part together with the parts, or with the comparisons if these are more.
    let room = |parts: usize| MOST.saturating_sub(parts.max(compares));
    let parts = (1..MOST).find(|parts| parts * room(*parts) >= count);
    let Some(parts) = parts else {
        let most = (1..MOST).map(|parts| parts * room(parts)).max().unwrap_or(0);
        let problem = format!(
            "a decision that reads or changes {count} keys is too large for etcd, which takes {most} at once"
        );
        let address = store.server.address().to_owned();
        return Err(StoreError::Database { address, source: problem.into() });
    };
    let mut ops = ops.into_iter().peekable();
    let mut packed = Vec::new();
    while ops.peek().is_some() {
        let success = ops.by_ref().take(room(parts)).map(RequestOp::from).collect();
        packed.push(Op::Txn(TxnRequest { success, ..Default::default() }).into());
    }
    Ok(packed)
}

fn in_doubt(failure: Failure, store: &EtcdStore) -> StoreError {
    match failure.explain(store.server.address()) {
        StoreError::Unreachable { address, source } => StoreError::InDoubt { address, source },
        other => other,
    }
}
