//! Waker pool: a process that waits often reuses its wakers, because creating one costs several system calls.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lockkeeper_store::{LeaseStore, StoreError, Waker};

/// The wakers that no thread sleeps on now.
#[derive(Default)]
pub(crate) struct WakerPool {
    /// Whether a waker is kept when its wait ends. Otherwise it is removed.
    keeps: bool,
    idle: Mutex<Vec<Box<dyn Waker>>>,
}

impl WakerPool {
    /// A pool that keeps wakers for the next wait.
    pub(crate) fn keeping() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    /// Whether [`take`](Self::take) would create no waker.
    pub(crate) fn has_idle(&self) -> bool {
        !self.idle().is_empty()
    }

    /// Takes an idle waker, or creates one.
    pub(crate) fn take(&self, store: &dyn LeaseStore) -> Result<PooledWaker<'_>, StoreError> {
        let idle = self.idle().pop();
        let waker = match idle {
            Some(waker) => {
                // A wake-up of the earlier wait may have come late.
                waker.receive();
                waker
            }
            None => store.waker()?,
        };
        Ok(PooledWaker { pool: self, waker: Some(waker) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Box<dyn Waker>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waker that goes back to its pool when the wait ends, if the pool keeps it.
pub(crate) struct PooledWaker<'p> {
    pool: &'p WakerPool,
    /// None only while it is dropped.
    waker: Option<Box<dyn Waker>>,
}

impl Deref for PooledWaker<'_> {
    type Target = dyn Waker;

    fn deref(&self) -> &Self::Target {
        &**self.waker.as_ref().expect("it is there until the drop")
    }
}

impl Drop for PooledWaker<'_> {
    fn drop(&mut self) {
        if self.pool.keeps {
            self.pool.idle().extend(self.waker.take());
        }
    }
}
