//! Control of the attempts of one worker: how a request to stop reaches the thread that executes a run.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};

use super::events::Events;
use super::locked;
use super::processes::process_mark;
use crate::runs::write_again::Kept;
use crate::runs::{RunError, Runs};
use lockkeeper_platform::pipe;
use lockkeeper_platform::tree::{Root, Stop as TreeStop, stop_tree};
use lockkeeper_store::StoreError;

/// Why an attempt has to stop. A later variant replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The run was canceled.
    Canceled = 1,
    /// The end of the run is written already.
    Recorded = 2,
    /// Another worker has the run.
    Superseded = 3,
}

/// A pipe that wakes a thread.
#[derive(Debug)]
pub(super) struct WakePipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl WakePipe {
    pub(super) fn new() -> io::Result<Self> {
        pipe::nonblocking().map(|(reader, writer)| Self { reader, writer })
    }

    /// Wakes the thread that sleeps on it.
    pub(super) fn wake(&self) {
        // A pipe that is full wakes its reader as well.
        let _ = rustix::io::write(&self.writer, b"!");
    }

    /// Empties it, so that the next wake is noticed.
    pub(super) fn clear(&self) {
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(&self.reader, &mut bytes), Ok(read) if read > 0) {}
    }
}

impl AsFd for WakePipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// The control channel of one attempt: requests to stop, and a pipe that wakes its thread.
#[derive(Debug)]
pub(super) struct Control {
    /// The claim that it is for.
    claim: u64,
    /// The number of the attempt.
    attempt: u32,
    /// The run and its request, on a store that several machines share: if the store loses them, they are written again.
    known: Option<(Run, Request)>,
    stop: AtomicU8,
    /// The thread may have used it for earlier runs, so a wake-up may be late and without a reason.
    pipe: Arc<WakePipe>,
}

impl Control {
    /// Asks the attempt to stop.
    pub(super) fn stop(&self, why: Stop) {
        self.stop.fetch_max(why as u8, Ordering::SeqCst);
        self.pipe.wake();
    }

    /// Whether the attempt has to stop. Empties the pipe.
    pub(super) fn take(&self) -> Option<Stop> {
        self.pipe.clear();
        match self.stop.load(Ordering::SeqCst) {
            0 => None,
            1 => Some(Stop::Canceled),
            2 => Some(Stop::Recorded),
            _ => Some(Stop::Superseded),
        }
    }
}

impl Control {
    /// Whether this record of the run shows that another claim has replaced this one, or that the run has ended without it.
    fn is_over(&self, run: &Run) -> bool {
        let is_replaced = run.claim() > self.claim || run.status().is_terminal() && run.claim() < self.claim;
        let own = self.known.as_ref().and_then(|(known, _)| known.worker());
        // Two claims have the same number if the store has lost the first one.
        let is_other = own.is_some_and(|own| run.worker().is_some_and(|worker| worker != own));
        is_replaced || run.claim() == self.claim && is_other
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// The runs that this worker executes, each from its start until its end is written.
#[derive(Debug, Default)]
pub(super) struct ActiveRuns {
    controls: Mutex<HashMap<RunId, Arc<Control>>>,
}

impl ActiveRuns {
    /// Adds a run, whose thread sleeps on `pipe`. On a store that several machines share, with its request.
    pub(super) fn add(&self, run: &Run, request: Option<&Request>, pipe: Arc<WakePipe>) -> Arc<Control> {
        let (claim, attempt) = (run.claim(), run.attempt());
        let known = request.map(|request| (run.clone(), request.clone()));
        let control = Arc::new(Control { claim, attempt, known, stop: AtomicU8::new(0), pipe });
        locked(&self.controls).insert(run.id.clone(), Arc::clone(&control));
        control
    }

    /// Removes a run. The next attempt may have been claimed here in the meantime: that one stays.
    pub(super) fn remove(&self, run: &Run) {
        let mut controls = locked(&self.controls);
        if controls.get(&run.id).is_some_and(|control| control.claim == run.claim()) {
            controls.remove(&run.id);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        locked(&self.controls).is_empty()
    }

    pub(super) fn contains(&self, id: &RunId) -> bool {
        locked(&self.controls).contains_key(id)
    }

    /// The runs, each with the number of its attempt.
    pub(super) fn attempts(&self) -> Vec<(RunId, u32)> {
        locked(&self.controls).iter().map(|(id, control)| (id.clone(), control.attempt)).collect()
    }

    /// Writes the runs again whose claims the store has lost, and stops those that others have or that have ended. Warns of both.
    pub(super) fn write_again(&self, runs: &Runs, events: &Events) -> Result<(), StoreError> {
        let all: Vec<_> = locked(&self.controls).values().cloned().collect();
        for control in all {
            let Some((run, request)) = &control.known else { continue };
            match runs.write_again(run, request)? {
                Kept::Known => {}
                Kept::WrittenAgain => {
                    events.warn(format!("the store had lost that {} runs here; written again", run.id));
                }
                Kept::Superseded => control.stop(Stop::Superseded),
            }
        }
        Ok(())
    }

    /// Asks the attempt under this claim to stop, if it is still executed.
    pub(super) fn stop(&self, run: &Run, why: Stop) {
        if let Some(control) = locked(&self.controls).get(&run.id).filter(|one| one.claim == run.claim()) {
            control.stop(why);
        }
    }

    /// Asks all attempts to stop.
    pub(super) fn stop_all(&self, why: Stop) {
        locked(&self.controls).values().for_each(|control| control.stop(why));
    }

    /// Kills all processes of the attempts at once. Their runs were canceled before, so that none counts as a success.
    pub(super) fn kill_all(&self, events: &Events) {
        let ids: Vec<RunId> = locked(&self.controls).keys().cloned().collect();
        for id in ids {
            let mark = process_mark(&id);
            let stop = TreeStop { root: Root::Marked, grace: Duration::ZERO, mark: Some(&mark) };
            if let Err(error) = stop_tree(&stop) {
                events.warn(format!("cannot kill the processes of {id}: {error}"));
            }
        }
    }

    /// Sends attempts what happened to their runs in the store. `ours` are the runs that this worker executes according to the
    /// store.
    pub(super) fn forward(&self, ours: &[Run], runs: &Runs) -> Result<(), RunError> {
        let all: Vec<_> =
            locked(&self.controls).iter().map(|(id, control)| (id.clone(), Arc::clone(control))).collect();
        for (id, control) in all {
            match ours.iter().find(|run| run.id == id) {
                Some(run) if run.status() == Status::Cancelling => control.stop(Stop::Canceled),
                Some(_) => {}
                // It may have been claimed or have ended just now: its record shows which. The number of its claim is smaller only if
                // the store has lost the claim, which is then written again.
                None => match runs.run_with_request(&id)? {
                    Some((run, _)) if control.is_over(&run) => control.stop(Stop::Superseded),
                    Some((run, _)) if run.status().is_terminal() => control.stop(Stop::Recorded),
                    Some(_) | None => {}
                },
            }
        }
        Ok(())
    }
}
