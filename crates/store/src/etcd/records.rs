//! The records of one decision, read when they are asked for, and those of a snapshot.

use std::collections::BTreeSet;
use std::ops::Range;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Records, Scan};
use lockkeeper_core::resource::{Key, KeyRange};
use lockkeeper_core::time::Moment;

use super::messages::{KeyValue, RangeRequest};
use super::{EtcdStore, damaged, keys};
use crate::parts::{Footprint, Found, add, collected, parts_of};
use crate::{StoreError, encoding};

/// How many records are asked for in one transaction of etcd, which has at most 128 operations.
const AT_ONCE: usize = 100;
/// How many single records a decision is about, if what it asks for next can be foreseen.
const FEW: usize = 2;

/// The records of one decision. Each read is of one revision; if a commit comes between two of them, the commit of this decision
/// finds that out.
pub(super) struct EtcdRecords<'s> {
    pub(super) store: &'s EtcdStore,
    pub(super) now: Moment,
    /// What was read so far.
    pub(super) records: InMemoryRecords,
    /// The keys whose records were read, and ranges with more than single keys.
    read_keys: BTreeSet<Key>,
    ranges: Vec<KeyRange>,
    pub(super) footprint: Footprint,
    /// The revision of the first read.
    pub(super) since: Option<i64>,
    /// Numbers that were drawn for this decision, larger than all in the records that it read.
    numbers: Option<Range<u64>>,
    /// Whether what was read cannot be of one moment, or is later than `now`. Then the decision has to run again.
    pub(super) is_torn: bool,
}

impl<'s> EtcdRecords<'s> {
    pub(super) fn new(store: &'s EtcdStore) -> Self {
        Self {
            store,
            now: store.estimated_now(),
            records: InMemoryRecords::default(),
            read_keys: BTreeSet::new(),
            ranges: Vec::new(),
            footprint: Footprint::default(),
            since: None,
            numbers: None,
            is_torn: false,
        }
    }

    /// Reads the records of a range, unless they were read before.
    fn load(&mut self, range: &KeyRange) -> Result<(), StoreError> {
        let is_read = range.below.is_none() && range.exact.iter().all(|key| self.read_keys.contains(key));
        if self.footprint.all.is_some() || is_read || self.ranges.contains(range) {
            return Ok(());
        }
        let asked_below = range.below.is_some().then(|| range.clone());
        let mut exact: BTreeSet<Key> = range.exact.iter().cloned().collect();
        exact.extend(self.likely_keys());
        let range = &KeyRange { exact: exact.into_iter().collect(), below: range.below.clone() };
        let parts: BTreeSet<String> = parts_of(range).into_iter().map(keys::bucket).collect();
        let versions = parts.iter().map(|part| keys::get(self.store.keys.version(part)));
        let spans = self.store.keys.spans(range).into_iter().map(keys::within);
        // A decision that begins with a range wants a lease, and draws numbers for it.
        let mut answers = self.read(versions.chain(spans).collect(), self.since.is_none())?.into_iter();
        for (part, found) in parts.into_iter().zip(&mut answers) {
            let version = version_of(&found);
            let known = *self.footprint.parts.entry(part).or_insert(version);
            self.is_torn |= known != version;
            self.forget_numbers_before(version);
        }
        self.add(answers.flatten())?;
        self.read_keys.extend(range.exact.iter().cloned());
        self.ranges.extend(asked_below);
        Ok(())
    }

    /// The keys that a decision about single records asks for one after the other: those of the records.
    fn likely_keys(&self) -> Vec<Key> {
        let ids = self.footprint.ids.keys().take(FEW);
        let keys = ids.filter_map(|id| {
            let lease = self.records.lease(*id).map(Lease::keys);
            lease.or_else(|| self.records.ticket(*id).map(Ticket::keys))
        });
        // A path is looked for in the folders above and below it.
        let is_likely = |key: &Key| !key.as_str().starts_with('p') && !self.read_keys.contains(key);
        keys.flatten().filter(is_likely).take(AT_ONCE / 4).collect()
    }

    /// Reads those of these records that were not read before.
    pub(super) fn load_each(&mut self, ids: impl IntoIterator<Item = LeaseId>) -> Result<(), StoreError> {
        let unknown: Vec<LeaseId> = ids.into_iter().filter(|id| !self.knows(*id)).collect();
        for some in unknown.chunks(AT_ONCE) {
            let wanted = some.iter().map(|id| keys::get(self.store.keys.record(*id))).collect();
            for (id, found) in some.iter().zip(self.read(wanted, false)?) {
                let version = version_of(&found);
                self.footprint.ids.insert(*id, version);
                self.forget_numbers_before(version);
                self.add(found)?;
            }
        }
        Ok(())
    }

    fn knows(&self, id: LeaseId) -> bool {
        let is_there = self.records.lease(id).is_some() || self.records.ticket(id).is_some();
        self.footprint.all.is_some() || is_there || self.footprint.ids.contains_key(&id)
    }

    fn load_all(&mut self) -> Result<(), StoreError> {
        if self.footprint.all.is_some() {
            return Ok(());
        }
        let wanted = vec![keys::get(self.store.keys.all()), keys::within(self.store.keys.records())];
        let mut answers = self.read(wanted, false)?.into_iter();
        let version = answers.next().map_or(0, |found| version_of(&found));
        self.footprint.all = Some(version);
        self.forget_numbers_before(version);
        self.add(answers.flatten())
    }

    fn read(&mut self, ranges: Vec<RangeRequest>, draws: bool) -> Result<Vec<Vec<KeyValue>>, StoreError> {
        let read = self.store.read(ranges, draws)?;
        self.since.get_or_insert(read.revision);
        self.numbers = read.numbers.or(self.numbers.take());
        Ok(read.answers)
    }

    /// A commit that was read has smaller numbers than its revision. Numbers that were drawn before it may be smaller than those.
    fn forget_numbers_before(&mut self, version: i64) {
        let is_before = |numbers: &Range<u64>| numbers.start >> super::BLOCK < version.cast_unsigned();
        if self.numbers.as_ref().is_some_and(is_before) {
            self.numbers = None;
        }
    }

    /// Adds records that were read to those that are known.
    fn add(&mut self, found: impl IntoIterator<Item = KeyValue>) -> Result<(), StoreError> {
        for kv in found {
            let record = record_from(&kv)?;
            let latest = Moment::from_micros(record.latest_moment());
            self.is_torn |= latest > self.now && self.store.is_later(latest);
            self.is_torn |= !add(record, &mut self.records)?;
        }
        Ok(())
    }
}

fn version_of(found: &[KeyValue]) -> i64 {
    found.first().map_or(0, |kv| kv.mod_revision)
}

fn record_from(kv: &KeyValue) -> Result<Found, StoreError> {
    encoding::record_from_bytes(&kv.value).ok_or_else(|| damaged("record"))
}

impl Records<StoreError> for EtcdRecords<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        if let Some(next) = self.numbers.as_mut().and_then(Iterator::next) {
            return Ok(next);
        }
        self.read(Vec::new(), true)?;
        self.numbers.as_mut().and_then(Iterator::next).ok_or_else(|| damaged("number"))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        self.load_each([id])?;
        Ok(self.records.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        self.load(range)?;
        Ok(self.records.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        self.load_each([id])?;
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

/// The records of one moment: etcd shows them as they were at a revision.
pub(super) struct EtcdSnapshot<'s> {
    store: &'s EtcdStore,
    revision: i64,
    now: Moment,
}

impl<'s> EtcdSnapshot<'s> {
    pub(super) fn begin(store: &'s EtcdStore) -> Result<Self, StoreError> {
        let revision = store.read(Vec::new(), false)?.revision;
        Ok(Self { store, revision, now: store.estimated_now() })
    }

    fn read(&self, ranges: Vec<RangeRequest>) -> Result<InMemoryRecords, StoreError> {
        let revision = self.revision;
        let ranges = ranges.into_iter().map(|range| RangeRequest { revision, ..range }).collect();
        let found: Result<Vec<Found>, StoreError> =
            self.store.read(ranges, false)?.answers.iter().flatten().map(record_from).collect();
        collected(found?)
    }

    fn one(&self, id: LeaseId) -> Result<InMemoryRecords, StoreError> {
        self.read(vec![keys::get(self.store.keys.record(id))])
    }

    fn within(&self, range: &KeyRange) -> Result<InMemoryRecords, StoreError> {
        self.read(self.store.keys.spans(range).into_iter().map(keys::within).collect())
    }
}

impl Records<StoreError> for EtcdSnapshot<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        Err(StoreError::Mismatch("a snapshot gives no numbers".to_owned()))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.one(id)?.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        Ok(self.within(range)?.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.one(id)?.ticket(id).cloned())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        Ok(self.within(range)?.tickets_in(range, scan, limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        Ok(self.read(vec![keys::within(self.store.keys.records())])?.all())
    }
}
