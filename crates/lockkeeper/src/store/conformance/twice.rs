//! A store that runs every decision twice, as an optimistic one does whose first attempt came too late.

use std::sync::Arc;

use lockkeeper_core::id::WakerId;

use super::{Harness, Place};
use crate::store::{Decision, Granted, Store, StoreError, Waker};

/// What happens between the two runs.
pub(super) type Interlude = Box<dyn Fn() + Send + Sync>;

/// A store that is shared with others, and may throw the first run of each decision away.
pub(super) struct Runs {
    inner: Arc<dyn Store>,
    between: Option<Interlude>,
}

impl Runs {
    pub(super) fn once(inner: Arc<dyn Store>) -> Self {
        Self { inner, between: None }
    }

    pub(super) fn twice(inner: Arc<dyn Store>) -> Self {
        Self::twice_with(inner, Box::new(|| ()))
    }

    pub(super) fn twice_with(inner: Arc<dyn Store>, between: Interlude) -> Self {
        Self { inner, between: Some(between) }
    }
}

impl Store for Runs {
    fn transact(&self, decide: Decision<'_>) -> Result<(), StoreError> {
        if let Some(interlude) = &self.between {
            // A failure may come from what changed meanwhile, so it does not count either.
            let _ = self.inner.transact(&mut |records| {
                decide(records)?;
                Err(StoreError::Mismatch("another was faster".to_owned()))
            });
            interlude();
        }
        self.inner.transact(decide)
    }

    fn snapshot(&self, look: Decision<'_>) -> Result<(), StoreError> {
        self.inner.snapshot(look)
    }

    fn waker(&self) -> Result<Box<dyn Waker>, StoreError> {
        self.inner.waker()
    }

    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        self.inner.waker_with_id(id)
    }

    fn wake(&self, waker: WakerId) {
        self.inner.wake(waker);
    }

    fn wake_with_grant(&self, waker: WakerId, granted: Granted) {
        self.inner.wake_with_grant(waker, granted);
    }

    fn alert(&self, waker: WakerId) {
        self.inner.alert(waker);
    }

    fn remove_waker(&self, waker: WakerId) {
        self.inner.remove_waker(waker);
    }
}

/// Another engine, each decision twice.
pub(super) struct Retrying<H> {
    pub(super) name: &'static str,
    pub(super) inner: H,
}

struct RetryingPlace(Box<dyn Place>);

impl<H: Harness> Harness for Retrying<H> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(RetryingPlace(self.inner.place()))
    }

    fn open(&self, address: &str) -> Arc<dyn Store> {
        Arc::new(Runs::twice(self.inner.open(address)))
    }
}

impl Place for RetryingPlace {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(Runs::twice(self.0.open()))
    }

    fn address(&self) -> Option<String> {
        self.0.address()
    }
}
