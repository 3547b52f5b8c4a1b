//! The records of one decision, read when they are asked for, and the conditional commit that ends it.

use std::ops::Range;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Change, Effect, Records, Scan};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;

use super::parts::{Footprint, Found, parts_of};
use super::{Answer, Decided, OptimisticStore, Wanted};
use crate::{Commit, StoreError, Transaction};

/// The records of one decision.
///
/// It reads without a lock. Each read asks for the versions first and for the records afterwards: if a commit comes in between,
/// the versions are old, and the commit of this decision finds that out.
pub(crate) struct Decision<'s, S> {
    store: &'s S,
    now: Moment,
    /// What was read so far.
    records: InMemoryRecords,
    ranges: Vec<KeyRange>,
    footprint: Footprint,
    /// Numbers that were drawn for this decision after its last read.
    numbers: Option<Range<u64>>,
    /// Whether what was read cannot be of one moment, or is later than `now`. Then the decision has to run again.
    is_torn: bool,
}

impl<'s, S: OptimisticStore> Decision<'s, S> {
    pub(crate) fn new(store: &'s S) -> Self {
        Self {
            store,
            now: store.clock().now(),
            records: InMemoryRecords::default(),
            ranges: Vec::new(),
            footprint: Footprint::default(),
            numbers: None,
            is_torn: false,
        }
    }

    /// Reads the records of a range, unless they were read before.
    fn load(&mut self, range: &KeyRange) -> Result<(), StoreError> {
        if self.footprint.all.is_some() || self.ranges.contains(range) {
            return Ok(());
        }
        let parts: Vec<String> = parts_of(range).into_iter().collect();
        let answer = self.store.read(Wanted::In(range, &parts))?;
        for (part, version) in parts.into_iter().zip(&answer.versions) {
            let known = *self.footprint.parts.entry(part).or_insert(*version);
            self.is_torn |= known != *version;
        }
        self.ranges.push(range.clone());
        self.add(answer)
    }

    /// Reads one record, unless it was read before.
    fn load_one(&mut self, id: LeaseId) -> Result<(), StoreError> {
        let is_known = self.records.lease(id).is_some() || self.records.ticket(id).is_some();
        if self.footprint.all.is_some() || is_known || self.footprint.ids.contains_key(&id) {
            return Ok(());
        }
        let answer = self.store.read(Wanted::One(id))?;
        self.footprint.ids.insert(id, only(&answer)?);
        self.add(answer)
    }

    fn load_all(&mut self) -> Result<(), StoreError> {
        if self.footprint.all.is_some() {
            return Ok(());
        }
        let answer = self.store.read(Wanted::All)?;
        self.footprint.all = Some(only(&answer)?);
        self.add(answer)
    }

    /// Adds records that were read to those that are known.
    fn add(&mut self, answer: Answer) -> Result<(), StoreError> {
        self.numbers = Some(answer.numbers);
        for record in answer.records {
            let moment = record.latest_moment();
            self.is_torn |= moment > self.now.as_micros() && self.store.clock().is_later(moment);
            let id = record.id();
            match (&record, self.records.lease(id), self.records.ticket(id)) {
                (_, None, None) => self
                    .records
                    .apply(record.into())
                    .map_err(|misfit| StoreError::Mismatch(misfit.to_string()))?,
                (Found::Lease(lease), Some(known), _) if lease == known => {}
                (Found::Ticket(ticket), _, Some(known)) if ticket == known => {}
                (Found::Lease(_) | Found::Ticket(_), _, _) => self.is_torn = true,
            }
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
        if self.is_torn {
            return Ok(Commit::Changed);
        }
        let Self { store, now, footprint, .. } = *self;
        store.commit(&Decided { now, footprint: &footprint, changes: &changes, effects })
    }
}
