//! A store that runs every decision twice, like an optimistic store whose first commit finds a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lockkeeper_core::id::{LeaseId, WakerId};
use lockkeeper_core::record::{Lease, Ticket};
use lockkeeper_core::records::{Change, Effect, Records, Scan};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;

use super::harness;
use super::{Harness, Place};
use lockkeeper_store::{Commit, LeaseStore, StoreError, Transaction, Waker};

/// What happens between the two runs.
pub(super) type Interlude = Box<dyn Fn() + Send + Sync>;

/// A store whose every second transaction may find that a record has changed.
pub(super) struct Runs {
    inner: Arc<dyn LeaseStore>,
    between: Option<Interlude>,
    begun: AtomicUsize,
}

impl Runs {
    pub(super) fn once(inner: Arc<dyn LeaseStore>) -> Self {
        Self { inner, between: None, begun: AtomicUsize::new(0) }
    }

    pub(super) fn twice(inner: Arc<dyn LeaseStore>) -> Self {
        Self::twice_with(inner, Box::new(|| ()))
    }

    pub(super) fn twice_with(inner: Arc<dyn LeaseStore>, between: Interlude) -> Self {
        Self { inner, between: Some(between), begun: AtomicUsize::new(0) }
    }
}

impl LeaseStore for Runs {
    fn begin(&self) -> Result<Box<dyn Transaction + '_>, StoreError> {
        let inner = self.inner.begin()?;
        match &self.between {
            Some(between) if self.begun.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
                Ok(Box::new(TooLate { inner, between }))
            }
            Some(_) | None => Ok(inner),
        }
    }

    fn snapshot(&self) -> Result<Box<dyn Records<StoreError> + '_>, StoreError> {
        self.inner.snapshot()
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        self.inner.waker()
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        self.inner.waker_with_id(id)
    }

    fn raise_numbers(&self, above: u64) -> Result<bool, StoreError> {
        self.inner.raise_numbers(above)
    }
}

/// A transaction whose commit always finds a change.
struct TooLate<'s> {
    inner: Box<dyn Transaction + 's>,
    between: &'s Interlude,
}

impl Records<StoreError> for TooLate<'_> {
    fn now(&self) -> Moment {
        self.inner.now()
    }

    fn remembers_since(&self) -> Option<Moment> {
        self.inner.remembers_since()
    }

    fn next_number(&mut self) -> Result<u64, StoreError> {
        self.inner.next_number()
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        self.inner.lease(id)
    }

    fn leases(&mut self, range: &KeyRange) -> Result<Vec<Lease>, StoreError> {
        self.inner.leases(range)
    }

    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError> {
        self.inner.ticket(id)
    }

    fn tickets(&mut self, range: &KeyRange, scan: Scan, limit: usize) -> Result<Vec<Ticket>, StoreError> {
        self.inner.tickets(range, scan, limit)
    }

    fn all(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError> {
        self.inner.all()
    }
}

impl Transaction for TooLate<'_> {
    fn commit(self: Box<Self>, _changes: Vec<Change>, _effects: &[Effect]) -> Result<Commit, StoreError> {
        let Self { inner, between } = *self;
        drop(inner);
        between();
        Ok(Commit::Changed)
    }
}

/// A backend that runs each decision of another backend twice.
pub(super) struct Retrying<H> {
    pub(super) name: &'static str,
    pub(super) inner: H,
}

struct RetryingPlace(Box<Place>);

impl<H: Harness> harness::Harness<dyn LeaseStore> for Retrying<H> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lacks(&self) -> Option<&'static str> {
        self.inner.lacks()
    }

    fn place(&self) -> Box<Place> {
        Box::new(RetryingPlace(self.inner.place()))
    }

    fn open(&self, address: &str) -> Arc<dyn LeaseStore> {
        Arc::new(Runs::twice(self.inner.open(address)))
    }
}

impl harness::Place<dyn LeaseStore> for RetryingPlace {
    fn open(&self) -> Arc<dyn LeaseStore> {
        Arc::new(Runs::twice(self.0.open()))
    }

    fn address(&self) -> Option<String> {
        self.0.address()
    }
}
