//! How decisions read on an etcd cluster, and snapshots.

use std::collections::BTreeSet;
use std::ops::Range;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::time::Moment;

use super::messages::{KeyValue, RangeRequest};
use super::{EtcdStore, Read, damaged, keys, number_at};
use crate::optimistic::clock::StoreClock;
use crate::optimistic::parts::Found;
use crate::optimistic::snapshot::OneMoment;
use crate::optimistic::{Answer, Decided, OptimisticStore, Wanted, add, collected};
use crate::{Commit, StoreError, encoding};

/// How many records are asked for in one transaction of etcd, which has at most 128 operations.
const AT_ONCE: usize = 100;

impl OptimisticStore for EtcdStore {
    fn clock(&self) -> &StoreClock {
        &self.clock
    }

    fn read(&self, wanted: Wanted<'_>, is_first: bool) -> Result<Answer, StoreError> {
        match wanted {
            Wanted::In(range, parts) => {
                let buckets: BTreeSet<String> = parts.iter().map(|part| keys::bucket(part)).collect();
                let versions = buckets.iter().map(|bucket| keys::get(self.keys.version(bucket)));
                let spans = self.keys.spans(range).into_iter().map(keys::within);
                let mut read = self.read_ranges(versions.chain(spans).collect(), is_first)?;
                let records = read.answers.split_off(buckets.len());
                let version = |part: &String| {
                    let place = buckets.iter().position(|bucket| *bucket == keys::bucket(part));
                    place.and_then(|place| read.answers.get(place)).map_or(0, |found| version_of(found))
                };
                let versions = parts.iter().map(version).collect();
                answer(&read, versions, &records.concat())
            }
            Wanted::One(id) => {
                let read = self.read_ranges(vec![keys::get(self.keys.record(id))], false)?;
                let found = read.answers.concat();
                answer(&read, vec![version_of(&found)], &found)
            }
            Wanted::All => {
                let ranges = vec![keys::get(self.keys.all()), keys::within(self.keys.records())];
                let mut read = self.read_ranges(ranges, false)?;
                let records = read.answers.split_off(1);
                answer(&read, vec![version_of(&read.answers.concat())], &records.concat())
            }
        }
    }

    fn numbers(&self) -> Result<Range<u64>, StoreError> {
        self.read_ranges(Vec::new(), true)?.numbers.ok_or_else(|| damaged("number"))
    }

    fn commit(&self, decided: Decided<'_>) -> Result<Commit, StoreError> {
        self.commit_decided(decided)
    }
}

/// `good_from` is the number of the newest version: numbers that were drawn before it may be smaller than those of the records.
fn answer(read: &Read, versions: Vec<i64>, found: &[KeyValue]) -> Result<Answer, StoreError> {
    let newest = versions.iter().copied().max().unwrap_or(0);
    let (numbers, good_from) = (read.numbers.clone(), number_at(newest, read.note));
    let remembers_since = Some(Moment::from_micros(read.note.since));
    let records = found.iter().map(record_from).collect::<Result<_, _>>()?;
    Ok(Answer { numbers, good_from, remembers_since, version: Some(read.revision), versions, records })
}

fn version_of(found: &[KeyValue]) -> i64 {
    found.first().map_or(0, |kv| kv.mod_revision)
}

fn record_from(kv: &KeyValue) -> Result<Found, StoreError> {
    encoding::record_from_bytes(&kv.value).ok_or_else(|| damaged("record"))
}

impl EtcdStore {
    /// Reads those of these records that a decision has not read yet. False if its other records have changed meanwhile.
    pub(super) fn load(
        &self,
        decided: &mut Decided<'_>,
        ids: impl IntoIterator<Item = LeaseId>,
    ) -> Result<bool, StoreError> {
        let Decided { footprint, records, .. } = decided;
        let is_unknown = |id: &LeaseId| {
            let is_there = records.lease(*id).is_some() || records.ticket(*id).is_some();
            footprint.all.is_none() && !is_there && !footprint.ids.contains_key(id)
        };
        let unknown: Vec<LeaseId> = ids.into_iter().filter(is_unknown).collect();
        let mut fits = true;
        for some in unknown.chunks(AT_ONCE) {
            let wanted = some.iter().map(|id| keys::get(self.keys.record(*id))).collect();
            let read = self.read_ranges(wanted, false)?;
            footprint.first = footprint.first.or(Some(read.revision));
            for (id, found) in some.iter().zip(&read.answers) {
                footprint.ids.insert(*id, version_of(found));
                for kv in found {
                    fits &= add(record_from(kv)?, records)?;
                }
            }
        }
        Ok(fits)
    }
}

/// Snapshot: etcd returns the records as they were at a revision.
pub(super) struct EtcdMoment<'s> {
    store: &'s EtcdStore,
    revision: i64,
    now: Moment,
    remembers_since: Moment,
}

impl<'s> EtcdMoment<'s> {
    pub(super) fn begin(store: &'s EtcdStore) -> Result<Self, StoreError> {
        let Read { revision, note, .. } = store.read_ranges(Vec::new(), false)?;
        let remembers_since = Moment::from_micros(note.since);
        Ok(Self { store, revision, now: store.clock.now(), remembers_since })
    }
}

impl OneMoment for EtcdMoment<'_> {
    fn now(&self) -> Moment {
        self.now
    }

    fn remembers_since(&self) -> Option<Moment> {
        Some(self.remembers_since)
    }

    fn read(&self, wanted: Wanted<'_>) -> Result<InMemoryRecords, StoreError> {
        let keys = &self.store.keys;
        let ranges = match wanted {
            Wanted::In(range, _) => keys.spans(range).into_iter().map(keys::within).collect(),
            Wanted::One(id) => vec![keys::get(keys.record(id))],
            Wanted::All => vec![keys::within(keys.records())],
        };
        let revision = self.revision;
        let ranges = ranges.into_iter().map(|range| RangeRequest { revision, ..range }).collect();
        let found: Result<Vec<Found>, StoreError> =
            self.store.read_ranges(ranges, false)?.answers.iter().flatten().map(record_from).collect();
        collected(found?)
    }
}
