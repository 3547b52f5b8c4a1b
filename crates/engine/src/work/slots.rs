//! Job slots: a semaphore for the threads that execute runs. The claimer waits here for a free slot.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::control::WakePipe;
use super::locked;

/// The slots of one worker.
pub(super) struct Slots {
    jobs: u32,
    state: Mutex<State>,
    changed: Condvar,
    /// Interrupts the claimer.
    claimer: WakePipe,
    /// Wakes the thread that supervises the worker.
    supervisor: Arc<WakePipe>,
}

#[derive(Default)]
struct State {
    /// Slots that execute a run.
    busy: u32,
    /// Whether the worker drains: it claims nothing more.
    is_draining: bool,
    /// Whether the claimer found nothing that could begin or that waits.
    is_idle: bool,
}

impl Slots {
    pub(super) fn new(jobs: u32, claimer: WakePipe, supervisor: Arc<WakePipe>) -> Self {
        Self { jobs, state: Mutex::default(), changed: Condvar::new(), claimer, supervisor }
    }

    /// Blocks until a slot is free; false when the worker drains.
    pub(super) fn wait_for_free(&self) -> bool {
        let mut state = locked(&self.state);
        while !state.is_draining && state.busy >= self.jobs {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_draining
    }

    /// Whether at most one slot is free.
    pub(super) fn is_last_free(&self) -> bool {
        locked(&self.state).busy + 1 >= self.jobs
    }

    /// Counts a slot that begins with a run.
    pub(super) fn occupy(&self) {
        let mut state = locked(&self.state);
        state.busy += 1;
        state.is_idle = false;
        drop(state);
        self.supervisor.wake();
    }

    /// Counts a slot that has no run any more.
    pub(super) fn release(&self) {
        locked(&self.state).busy -= 1;
        self.changed.notify_all();
        self.supervisor.wake();
    }

    /// Whether any slot has a run.
    pub(super) fn is_busy(&self) -> bool {
        locked(&self.state).busy > 0
    }

    pub(super) fn set_idle(&self, is_idle: bool) {
        let was_idle = std::mem::replace(&mut locked(&self.state).is_idle, is_idle);
        if was_idle != is_idle {
            self.supervisor.wake();
        }
    }

    /// Whether no slot is busy and the claimer found nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        let state = locked(&self.state);
        state.is_idle && state.busy == 0
    }

    /// Drains the worker: from here on nothing is claimed.
    pub(super) fn drain(&self) {
        locked(&self.state).is_draining = true;
        self.changed.notify_all();
        self.claimer.wake();
        self.supervisor.wake();
    }

    pub(super) fn is_draining(&self) -> bool {
        locked(&self.state).is_draining
    }

    /// Clears earlier interrupts of the claimer.
    pub(super) fn clear_wakes(&self) {
        self.claimer.clear();
    }
}

/// What interrupts the claimer.
impl AsFd for Slots {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.claimer.as_fd()
    }
}
