//! Snapshots of a store on a server: the records of one moment, each read at its first use.

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Records, Scan};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;

use super::Wanted;
use crate::StoreError;

/// The state of a server at one moment.
pub(crate) trait OneMoment {
    fn now(&self) -> Moment;

    /// Since when the server has lost nothing. None: it never loses anything.
    fn remembers_since(&self) -> Option<Moment>;

    /// Reads records as they were at that moment. It may return more records than `wanted`.
    fn read(&self, wanted: Wanted<'_>) -> Result<InMemoryRecords, StoreError>;
}

/// The records of one moment.
pub(crate) struct Snapshot<M>(pub(crate) M);

impl<M: OneMoment> Records<StoreError> for Snapshot<M> {
    fn now(&self) -> Moment {
        self.0.now()
    }

    fn remembers_since(&self) -> Option<Moment> {
        self.0.remembers_since()
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        Err(StoreError::Mismatch("a snapshot gives no numbers".to_owned()))
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.0.read(Wanted::One(id))?.lease(id).cloned())
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        Ok(self.0.read(Wanted::In(range, &[]))?.leases_in(range))
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        Ok(self.0.read(Wanted::One(id))?.ticket(id).cloned())
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        Ok(self.0.read(Wanted::In(range, &[]))?.tickets_in(range, scan, limit))
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        Ok(self.0.read(Wanted::All)?.all())
    }
}
