//! The records of one decision, each read at its first use, and the conditional commit that ends it.

use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Change, Effect, Records, Scan};
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::Moment;

#[cfg(feature = "postgres")]
use super::known::Bundle;
use super::parts::{Footprint, parts_of};
use super::{Answer, Decided, OptimisticStore, Wanted, add};
use crate::{Commit, StoreError, Transaction};

/// Prefetch: with the next range, a decision also reads the keys of this many of the records that it has read by id …
const PREFETCH_RECORDS: usize = 2;
/// … and at most this many keys.
const PREFETCH_KEYS: usize = 25;

/// The records of one decision.
///
/// It reads without a lock. Each read asks for the versions first and for the records afterwards: if a commit comes in between,
/// the versions are old, and the commit of this decision finds that out.
pub(crate) struct Decision<'s, S> {
    store: &'s S,
    now: Moment,
    /// How often the store's clock had jumped when this decision began.
    jumps: u64,
    /// What was read so far.
    records: InMemoryRecords,
    /// The keys whose records were read, and the ranges with more than single keys.
    keys: BTreeSet<Key>,
    ranges: Vec<KeyRange>,
    footprint: Footprint,
    /// Numbers that were drawn for this decision, larger than those of all records that it has read.
    numbers: Option<Range<u64>>,
    /// Whether the records cannot be of one moment, or one is later than `now`. Then the decision has to run again.
    is_torn: bool,
    /// Since when the server has lost nothing; known once something was read.
    remembers_since: Option<Moment>,
    /// Keys that the decision will also read.
    expected: Vec<Key>,
    /// Whether it began with what this process knew, without a read.
    is_recalled: bool,
}

impl<'s, S: OptimisticStore> Decision<'s, S> {
    pub(crate) fn new(store: &'s S) -> Self {
        Self {
            store,
            now: store.clock().now(),
            jumps: store.clock().jumps(),
            records: InMemoryRecords::default(),
            keys: BTreeSet::new(),
            ranges: Vec::new(),
            footprint: Footprint::default(),
            numbers: None,
            is_torn: false,
            remembers_since: None,
            expected: Vec::new(),
            is_recalled: false,
        }
    }

    /// Begins with what this process knows, if nothing was read before and it knows what is wanted.
    #[cfg(feature = "postgres")]
    fn recall(&mut self, wanted: Wanted<'_>) {
        if self.is_first()
            && let Some(Bundle { keys, footprint, records, numbers, remembers_since }) =
                self.store.recall(wanted)
        {
            (self.keys, self.footprint, self.records) = (keys, footprint, records);
            (self.numbers, self.remembers_since) = (Some(numbers), remembers_since);
            self.is_recalled = true;
        }
    }

    #[cfg(not(feature = "postgres"))]
    fn recall(&mut self, _wanted: Wanted<'_>) {}

    /// Reads the records of a range, unless they were read before.
    fn load(&mut self, range: &KeyRange) -> Result<(), StoreError> {
        self.recall(Wanted::In(range, &[]));
        let is_read = range.below.is_none() && range.exact.iter().all(|key| self.keys.contains(key));
        if self.footprint.all.is_some() || is_read || self.ranges.contains(range) {
            return Ok(());
        }
        if range.below.is_some() {
            self.ranges.push(range.clone());
        }
        let mut exact: BTreeSet<Key> = range.exact.iter().cloned().collect();
        exact.extend(self.likely_keys());
        let range = &KeyRange { exact: exact.into_iter().collect(), below: range.below.clone() };
        let parts: Vec<String> = parts_of(range).into_iter().collect();
        let answer = self.store.read(Wanted::In(range, &parts), self.is_first())?;
        for (part, version) in parts.into_iter().zip(&answer.versions) {
            let known = *self.footprint.parts.entry(part).or_insert(*version);
            self.is_torn |= known != *version;
        }
        self.keys.extend(range.exact.iter().cloned());
        self.add(answer)
    }

    /// Keys to prefetch: those that are expected, and those of single records that were read.
    fn likely_keys(&self) -> Vec<Key> {
        let ids = self.footprint.ids.keys().take(PREFETCH_RECORDS);
        let keys = ids.filter_map(|id| {
            let lease = self.records.lease(*id).map(Lease::keys);
            lease.or_else(|| self.records.ticket(*id).map(Ticket::keys))
        });
        // Not those of paths: a decision reads them as ranges, with the folders above and below.
        let is_likely = |key: &Key| !key.as_str().starts_with('p') && !self.keys.contains(key);
        let keys = self.expected.iter().cloned().chain(keys.flatten());
        keys.filter(is_likely).take(PREFETCH_KEYS).collect()
    }

    fn is_first(&self) -> bool {
        let Footprint { parts, ids, all, .. } = &self.footprint;
        parts.is_empty() && ids.is_empty() && all.is_none()
    }

    /// Reads one record, unless it was read before.
    fn load_one(&mut self, id: LeaseId) -> Result<(), StoreError> {
        self.recall(Wanted::One(id));
        let is_known = self.records.lease(id).is_some() || self.records.ticket(id).is_some();
        if self.footprint.all.is_some() || is_known || self.footprint.ids.contains_key(&id) {
            return Ok(());
        }
        let answer = self.store.read(Wanted::One(id), self.is_first())?;
        self.footprint.ids.insert(id, only(&answer)?);
        self.add(answer)
    }

    fn load_all(&mut self) -> Result<(), StoreError> {
        if self.footprint.all.is_some() {
            return Ok(());
        }
        let answer = self.store.read(Wanted::All, self.is_first())?;
        self.footprint.all = Some(only(&answer)?);
        self.add(answer)
    }

    /// Adds records that were read to those that are known.
    fn add(&mut self, answer: Answer) -> Result<(), StoreError> {
        let before = self.numbers.take().filter(|before| before.start >= answer.good_from);
        self.numbers = answer.numbers.or(before);
        self.footprint.first = self.footprint.first.or(answer.version);
        let before = mem::replace(&mut self.remembers_since, answer.remembers_since);
        self.is_torn |= before.is_some() && before != answer.remembers_since;
        for record in answer.records {
            let moment = record.latest_moment();
            self.is_torn |= moment > self.now.as_micros() && self.store.clock().is_later(moment);
            self.is_torn |= !add(record, &mut self.records)?;
        }
        Ok(())
    }
}

/// The version of an answer that has one.
fn only(answer: &Answer) -> Result<i64, StoreError> {
    answer
        .versions
        .first()
        .copied()
        .ok_or_else(|| StoreError::Mismatch("the server returned no version".to_owned()))
}

impl<S: OptimisticStore> Records<StoreError> for Decision<'_, S> {
    fn now(&self) -> Moment {
        self.now
    }

    fn remembers_since(&self) -> Option<Moment> {
        self.remembers_since
    }

    fn expect(&mut self, keys: Vec<Key>) {
        self.expected = keys;
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        if let Some(next) = self.numbers.as_mut().and_then(Iterator::next) {
            return Ok(next);
        }
        let mut numbers = self.store.numbers()?;
        let next =
            numbers.next().ok_or_else(|| StoreError::Mismatch("the server returned no number".to_owned()))?;
        self.numbers = Some(numbers);
        Ok(next)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        self.load_one(id)?;
        Ok(self.records.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        self.load(range)?;
        Ok(self.records.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        self.load_one(id)?;
        Ok(self.records.ticket(id).cloned())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        self.load(range)?;
        Ok(self.records.tickets_in(range, scan, limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        self.load_all()?;
        Ok(self.records.all())
    }
}

impl<S: OptimisticStore> Transaction for Decision<'_, S> {
    fn commit(self: Box<Self>, changes: Vec<Change>, effects: &[Effect]) -> Result<Commit, StoreError> {
        // Without a change, the server would not see that what this process knew is old.
        let is_guess = self.is_recalled && changes.is_empty();
        if self.is_torn || is_guess || self.jumps != self.store.clock().jumps() {
            return Ok(Commit::Changed);
        }
        let Self { store, now, remembers_since, footprint, keys, records, is_recalled, .. } = *self;
        store.commit(Decided {
            now,
            remembers_since,
            footprint,
            keys,
            records,
            is_recalled,
            changes,
            effects,
        })
    }
}
