//! Whoever sees to it that what was written is on the disk, and only then tells of it.
//!
//! Hands go on with the next run meanwhile. Several of them commit while the disk is busy for one: it is then asked once
//! for all of them.

use std::sync::{Condvar, Mutex, PoisonError};

use lockkeeper_core::request::Request;

use super::{Executor, Told, locked};

/// Counts what was written and what is on the disk by now.
#[derive(Default)]
pub(super) struct Scribe {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many transactions were committed.
    written: u64,
    /// How many of them are on the disk.
    forced: u64,
    /// To be told once they are.
    news: Vec<News>,
    over: bool,
}

/// Something to be told of a run, and its request.
pub(super) struct News {
    pub(super) told: Told,
    pub(super) request: Option<Request>,
}

impl Scribe {
    /// Something was committed. Returns what to wait for until it is on the disk.
    pub(super) fn wrote(&self, news: Option<News>) -> u64 {
        let mut state = locked(&self.state);
        state.written += 1;
        state.news.extend(news);
        let number = state.written;
        drop(state);
        self.changed.notify_all();
        number
    }

    /// Sleeps until what was written is on the disk.
    pub(super) fn wait_for(&self, number: u64) {
        let mut state = locked(&self.state);
        while state.forced < number {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing more will be written.
    pub(super) fn end(&self) {
        locked(&self.state).over = true;
        self.changed.notify_all();
    }

    /// Forces and tells, until everything is on the disk and nothing more will come.
    pub(super) fn work(&self, executor: &Executor) {
        while let Some((number, news)) = self.next() {
            executor.insist("force what was written to the disk", || executor.runs.store().force());
            locked(&self.state).forced = number;
            self.changed.notify_all();
            for News { told, request } in news {
                executor.tell(&told, request.as_ref());
            }
        }
    }

    fn next(&self) -> Option<(u64, Vec<News>)> {
        let mut state = locked(&self.state);
        loop {
            if state.forced < state.written {
                return Some((state.written, std::mem::take(&mut state.news)));
            }
            if state.over {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
