//! The conditional commit: one transaction of etcd compares what a decision read and makes its changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::Key;

use super::messages::{Compare, KeyValue, Op, RangeRequest, RequestOp, TxnRequest};
use super::{EtcdStore, clock, keys};
use crate::optimistic::listener::wake_ups;
use crate::optimistic::parts::{Footprint, Found, id_of, parts_written};
use crate::optimistic::{Decided, in_doubt, random_number};
use crate::{Commit, StoreError, encoding};

/// How many comparisons or operations a transaction of etcd has at most.
const MOST: usize = 128;
/// How many comparisons are made one by one. With more of them, the whole project must be unchanged.
const MOST_COMPARES: usize = 64;
/// One commit in about this many removes old decisions and wake-ups.
const PRUNE_EVERY: u64 = 64;
/// How long the outcome of a decision is kept: clients ask for it within seconds, or never.
const REMEMBERED: Duration = Duration::from_secs(600);
const COMMITTED: &[u8] = b"committed";
const GIVEN_UP: &[u8] = b"given up";

impl EtcdStore {
    /// Makes the changes of a decision if what it read is unchanged.
    pub(super) fn commit_decided(&self, mut decided: Decided<'_>) -> Result<Commit, StoreError> {
        let wakes: Vec<Op> = wake_ups(&decided.changes, decided.effects)
            .into_iter()
            .map(|(waker, message)| keys::put(self.keys.waker(waker), message.into_bytes()))
            .collect();
        if decided.changes.is_empty() {
            if !wakes.is_empty() {
                self.server.txn(&TxnRequest { success: in_parts(wakes, 0, self)?, ..Default::default() })?;
            }
            return Ok(Commit::Committed);
        }
        let changed: BTreeSet<LeaseId> = decided.changes.iter().map(id_of).collect();
        let added: BTreeSet<LeaseId> =
            decided.changes.iter().filter(|change| is_added(change)).map(id_of).collect();
        // If only a few records are added, the commit itself checks that their ids are new.
        let reads = |id: &LeaseId| added.len() > MOST_COMPARES / 2 || !added.contains(id);
        if !self.load(&mut decided, changed.iter().copied().filter(reads))? {
            return Ok(Commit::Changed);
        }
        let Decided { now, remembers_since, footprint, mut records, changes, .. } = decided;
        let is_compared = |id: &LeaseId| footprint.all.is_some() || footprint.ids.contains_key(id);
        let fresh: Vec<LeaseId> = added.into_iter().filter(|id| !is_compared(id)).collect();
        let mut compare = self.compares(&footprint, fresh.len());
        let parts: BTreeSet<String> = parts_written(&changes).iter().map(|part| keys::bucket(part)).collect();
        let before: BTreeMap<LeaseId, Option<Found>> =
            changed.into_iter().map(|id| (id, state_of(&records, id))).collect();
        for change in changes {
            if let Err(misfit) = records.apply(change) {
                // Records of two different moments may contradict each other: then the decision runs again.
                let is_current = self.holds(compare)?;
                let mismatch = StoreError::Mismatch(misfit.to_string());
                return if is_current { Err(mismatch) } else { Ok(Commit::Changed) };
            }
        }
        let mut ops = wakes;
        for (id, before) in before {
            ops.extend(self.ops_of(id, before.as_ref(), state_of(&records, id).as_ref()));
        }
        ops.extend(parts.iter().map(|part| keys::put(self.keys.version(part), Vec::new())));
        let moment = clock::to_bytes(now.as_micros());
        ops.push(Op::Txn(TxnRequest {
            compare: vec![keys::is_less(self.keys.clock_last(), moment.clone())],
            success: vec![keys::put(self.keys.clock_last(), moment).into()],
            failure: Vec::new(),
        }));
        ops.push(keys::put(self.keys.all(), Vec::new()));
        let call = random_number("draw a number for", self.server.address())?;
        let decision = self.keys.decision(now, call);
        ops.push(keys::put(decision.clone(), COMMITTED.to_vec()));
        compare.extend(fresh.iter().map(|id| keys::is_absent(self.keys.record(*id))));
        compare.push(keys::is_absent(decision.clone()));
        compare.extend(
            remembers_since
                .map(|since| keys::is_equal(self.keys.since(), since.as_micros().to_string().into_bytes())),
        );
        let failure: Vec<RequestOp> = fresh
            .iter()
            .map(|id| RangeRequest { keys_only: true, ..keys::get(self.keys.record(*id)) })
            .map(|range| Op::Range(range).into())
            .collect();
        let success = in_parts(ops, compare.len(), self)?;
        match self.server.txn_once(&TxnRequest { compare, success, failure }) {
            Ok(answer) if answer.succeeded => {}
            Ok(answer) => {
                let is_there = answer.into_ranges().into_iter().flatten().next().is_some();
                let mismatch = || StoreError::Mismatch("a record to be added is there already".to_owned());
                return if is_there { Err(mismatch()) } else { Ok(Commit::Changed) };
            }
            Err(failure) if failure.is_broken() => match self.was_committed(&decision) {
                Ok(true) => {}
                Ok(false) => return Ok(Commit::Changed),
                Err(_) => return Err(in_doubt(failure.explain(self.server.address()))),
            },
            Err(failure) => return Err(failure.explain(self.server.address())),
        }
        if call.is_multiple_of(PRUNE_EVERY) {
            let old = keys::delete_within(self.keys.decisions_before(now.before(REMEMBERED)));
            let heard = keys::delete_within(self.keys.wakers());
            let success = vec![old.into(), heard.into()];
            // If it fails, a later commit removes them.
            let _ = self.server.txn_once(&TxnRequest { success, ..Default::default() });
        }
        Ok(Commit::Committed)
    }

    /// The comparisons which prove that everything that was read is unchanged. The caller adds `more` comparisons.
    fn compares(&self, footprint: &Footprint, more: usize) -> Vec<Compare> {
        let keys = &self.keys;
        let all = footprint.all.map(|version| keys::is_at(keys.all(), version));
        // Several parts may share one key. If their versions differ, they were read at two moments, and one comparison fails.
        let parts: BTreeSet<(String, i64)> =
            footprint.parts.iter().map(|(part, version)| (keys::bucket(part), *version)).collect();
        let parts = parts.iter().map(|(bucket, version)| keys::is_at(keys.version(bucket), *version));
        let ids = footprint.ids.iter().map(|(id, version)| keys::is_at(keys.record(*id), *version));
        let compares: Vec<Compare> = all.into_iter().chain(parts).chain(ids).collect();
        match footprint.first {
            Some(first) if compares.len() + more > MOST_COMPARES => {
                vec![keys::is_not_after(keys.all(), first)]
            }
            Some(_) | None => compares,
        }
    }

    /// Whether these comparisons hold now.
    fn holds(&self, compare: Vec<Compare>) -> Result<bool, StoreError> {
        // The range makes the read linearizable: without one, a member answers without asking the others.
        let success = vec![Op::Range(keys::get(self.keys.all())).into()];
        let failure = success.clone();
        Ok(self.server.txn(&TxnRequest { compare, success, failure })?.succeeded)
    }

    /// Whether a decision was committed before the connection broke. If it was not, it never will be.
    fn was_committed(&self, decision: &[u8]) -> Result<bool, StoreError> {
        let settled = self.server.txn(&TxnRequest {
            compare: vec![keys::is_absent(decision.to_vec())],
            success: vec![keys::put(decision.to_vec(), GIVEN_UP.to_vec()).into()],
            failure: vec![Op::Range(keys::get(decision.to_vec())).into()],
        })?;
        let found = settled.into_ranges().into_iter().flatten().next();
        Ok(found.is_some_and(|kv| kv.value == COMMITTED))
    }

    /// The operations that change one record.
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
        let found = self.read_ranges(spans, false)?.answers;
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
        let is_right = |kv: &&KeyValue| wanted.get(&kv.key) == Some(&kv.value.as_slice());
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

fn state_of(records: &InMemoryRecords, id: LeaseId) -> Option<Found> {
    let lease = records.lease(id).cloned().map(Found::Lease);
    lease.or_else(|| records.ticket(id).cloned().map(Found::Ticket))
}

fn keys_of(record: Option<&Found>) -> BTreeSet<Key> {
    record.map_or_else(BTreeSet::new, |record| record.keys().into_iter().collect())
}

/// Puts operations into one transaction of etcd. If they are too many, they go into nested transactions.
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
