//! Several pairs of hands that work through the queue.
//!
//! Each is a thread that executes one run at a time. One of them at most looks for the next run; when it has found
//! one, it lets another look and executes what it found. Whoever finishes says so and takes the next run in one
//! transaction. So a start waits for nobody, and idle hands sleep until something is submitted or a lease is granted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;

use super::heart::{Heart, Listener};
use super::recover::Surroundings;
use super::take::Line;
use super::{Executor, Told, locked};
use crate::engine::runs::RunError;
use crate::platform::signal::{Signal, Signals};
use crate::platform::{clock, pipe, poll, process};
use crate::store::runs::Tables;

/// Changes within so short a time are looked at together.
const TOGETHER: Duration = Duration::from_millis(5);
/// How long to wait until a lock file is looked at again: nobody tells of its end.
const FILES_AGAIN: Duration = Duration::from_secs(1);
/// How long to wait after the store failed.
const AFTER_TROUBLE: Duration = Duration::from_millis(500);

/// When a crew ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Orders {
    /// How many runs at once; at least one.
    pub jobs: u32,
    /// Whether to end once nothing is queued and nothing is executed.
    pub drain: bool,
}

/// An executor and its hands.
pub struct Crew {
    executor: Arc<Executor>,
    orders: Orders,
    state: Mutex<State>,
    changed: Condvar,
    /// Interrupts whoever looks for the next run, and wakes whoever supervises.
    nudge: (OwnedFd, OwnedFd),
    wake: (OwnedFd, OwnedFd),
}

#[derive(Default)]
struct State {
    /// Whether somebody looks for the next run.
    looking: bool,
    /// Runs that are executed by the hands, or looked after.
    busy: u32,
    /// Whether no more runs are taken.
    draining: bool,
    /// Whether the queue was found empty by whoever looked last.
    idle: bool,
    over: bool,
}

impl Crew {
    /// Makes a crew ready; nothing is executed yet.
    pub fn new(executor: Executor, orders: Orders) -> Result<Self, RunError> {
        let nudge = pipe::nonblocking().map_err(RunError::Machine)?;
        let wake = pipe::nonblocking().map_err(RunError::Machine)?;
        let orders = Orders { jobs: orders.jobs.max(1), ..orders };
        let executor = Arc::new(executor);
        Ok(Self { executor, orders, state: Mutex::default(), changed: Condvar::new(), nudge, wake })
    }

    /// The executor.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Works until told to end: the first signal lets what runs come to its end, the second ends it.
    pub fn work(&self, signals: &Signals) -> Result<(), RunError> {
        thread::scope(|scope| {
            for number in 0..self.orders.jobs {
                let hand = thread::Builder::new().name(format!("hand {number}"));
                hand.spawn_scoped(scope, || self.lend_a_hand()).map_err(RunError::Machine)?;
            }
            let supervised = self.supervise(signals);
            let mut state = locked(&self.state);
            state.over = true;
            state.draining = true;
            drop(state);
            self.changed.notify_all();
            self.nudge();
            supervised
        })
    }

    /// Takes no more runs.
    pub fn drain(&self) {
        locked(&self.state).draining = true;
        self.changed.notify_all();
        self.nudge();
        self.wake();
    }

    fn lend_a_hand(&self) {
        let mut line = Line::default();
        while self.wait_to_look() {
            match self.find(&mut line) {
                Ok(Some(mut job)) => loop {
                    self.found();
                    let done = self.executor.execute(job);
                    // Whoever looks already will find the next one.
                    let looks = self.look_at_once();
                    let next = self.executor.conclude(done, looks.then_some(&mut line));
                    match next {
                        Ok(Some(next)) => job = next,
                        Ok(None) => {
                            self.put_down(looks);
                            break;
                        }
                        Err(error) => {
                            self.put_down(looks);
                            self.trouble(&error);
                            break;
                        }
                    }
                },
                Ok(None) => self.stop_looking(),
                Err(error) => {
                    self.stop_looking();
                    self.trouble(&error);
                }
            }
        }
        if let Err(error) = self.executor.leave_line(&mut line) {
            self.trouble(&error);
        }
    }

    /// Sleeps until it is one's turn to look for the next run; false when the work is over.
    fn wait_to_look(&self) -> bool {
        let mut state = locked(&self.state);
        loop {
            if state.over {
                return false;
            }
            if !state.looking && !state.draining && state.busy < self.orders.jobs {
                state.looking = true;
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn find(&self, line: &mut Line) -> Result<Option<super::Job>, RunError> {
        let mut heard = self.executor.runs.listen()?;
        let mut told = false;
        loop {
            heard.quiet(told);
            drain_pipe(&self.nudge.0);
            if locked(&self.state).draining {
                self.executor.leave_line(line)?;
                return Ok(None);
            }
            if let Some(job) = self.executor.take_next(line)? {
                return Ok(Some(job));
            }
            self.set_idle(!line.is_used() && !line.look_again);
            let due = self.executor.runs.store().read(|tables| tables.next_due())?;
            let due = due.map(|due| due.since(clock::now()) + Duration::from_millis(1));
            let again = line.look_again.then_some(FILES_AGAIN);
            let limit = [due, heard.patience(), again].into_iter().flatten().min();
            let until = limit.and_then(|limit| Instant::now().checked_add(limit));
            let mut interrupts: Vec<BorrowedFd<'_>> = vec![self.nudge.0.as_fd()];
            interrupts.extend(heard.as_fd());
            if line.is_used() {
                if let Some(job) = self.executor.sleep_in_line(line, &interrupts, until)? {
                    return Ok(Some(job));
                }
                // What was written meanwhile is looked at in any case.
                told = false;
            } else {
                let ready = poll::wait(&interrupts, limit).map_err(RunError::Machine)?;
                told = ready.contains(1);
            }
        }
    }

    fn found(&self) {
        let mut state = locked(&self.state);
        state.looking = false;
        state.idle = false;
        state.busy += 1;
        drop(state);
        self.changed.notify_one();
        self.wake();
    }

    fn look_at_once(&self) -> bool {
        let mut state = locked(&self.state);
        state.busy -= 1;
        let may = !state.looking && !state.draining && state.busy < self.orders.jobs;
        state.looking |= may;
        may
    }

    fn put_down(&self, looked: bool) {
        if looked {
            locked(&self.state).looking = false;
        }
        self.changed.notify_one();
        self.wake();
    }

    fn stop_looking(&self) {
        locked(&self.state).looking = false;
        self.changed.notify_all();
    }

    fn set_idle(&self, idle: bool) {
        let mut state = locked(&self.state);
        if state.idle != idle {
            state.idle = idle;
            drop(state);
            self.wake();
        }
    }

    fn trouble(&self, error: &RunError) {
        self.executor.tell(&Told::Trouble(error.to_string()), None);
        thread::sleep(AFTER_TROUBLE);
    }

    fn nudge(&self) {
        let _ = rustix::io::write(&self.nudge.1, b"!");
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake.1, b"!");
    }

    /// Looks after everything but the commands: signals, calls to end, time, other workers.
    fn supervise(&self, signals: &Signals) -> Result<(), RunError> {
        let executor = &self.executor;
        let mut heard = executor.runs.listen()?;
        let mut listener = Listener::default();
        let mut heart: Option<Heart> = None;
        let mut told = false;
        let mut stopping = false;
        loop {
            heard.quiet(told);
            drain_pipe(&self.wake.0);
            process::reap_orphans();
            self.expire()?;
            let around = executor.look_around()?;
            executor.pass_on(&around.ours)?;
            if stopping {
                self.cancel_all(&around.ours);
            }
            self.adopt(&around, &mut listener)?;
            let busy = executor.busy() > 0;
            match (&heart, busy) {
                (None, true) => {
                    let (runs, every) = (&executor.runs, executor.settings.heartbeat);
                    heart = Some(Heart::begin(runs, &executor.worker.id, every).map_err(RunError::Machine)?);
                }
                (Some(_), false) => heart = None,
                (Some(_), true) | (None, false) => {}
            }
            if self.is_finished(busy)? {
                return Ok(());
            }
            let silence = listener.due(!around.theirs.is_empty(), executor.settings.heartbeat);
            let silence = silence.map(|at| at.saturating_duration_since(Instant::now()));
            let due = executor.runs.store().read(|tables| tables.next_due())?;
            let due = due.map(|due| due.since(clock::now()) + Duration::from_millis(1));
            let limit = [silence, due, heard.patience()].into_iter().flatten().min();
            let mut descriptors: Vec<BorrowedFd<'_>> = vec![signals.as_fd(), self.wake.0.as_fd()];
            descriptors.extend(around.others.iter().filter_map(|other| Some(other.exit.as_ref()?.as_fd())));
            descriptors.extend(heard.as_fd());
            let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
            told = heard.as_fd().is_some() && ready.contains(descriptors.len() - 1);
            for signal in signals.take().map_err(RunError::Machine)? {
                if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP) {
                    stopping |= locked(&self.state).draining;
                    self.drain();
                }
            }
            if ready.any() && !stopping {
                thread::sleep(TOGETHER);
            }
        }
    }

    fn is_finished(&self, busy: bool) -> Result<bool, RunError> {
        let (working, draining, idle) = {
            let state = locked(&self.state);
            (state.busy > 0 || busy, state.draining, state.idle)
        };
        if working || draining || !self.orders.drain || !idle {
            return Ok(!working && draining);
        }
        // Something may have come since the last look, or wait for its next attempt.
        let more = |tables: &Tables<'_>| {
            Ok(!tables.ready(None, 1)?.is_empty() || !tables.due_retries(Moment::MAX, 1)?.is_empty())
        };
        Ok(!self.executor.runs.store().read(more)?)
    }

    fn expire(&self) -> Result<(), RunError> {
        for run in self.executor.runs.expire()? {
            self.executor.tell(&Told::Ended(run), None);
        }
        Ok(())
    }

    fn cancel_all(&self, ours: &[Run]) {
        for run in ours {
            // It may have ended meanwhile.
            let _ = self.executor.runs.cancel(&run.id, Some("the worker was stopped"));
        }
    }

    fn adopt(&self, around: &Surroundings, listener: &mut Listener) -> Result<(), RunError> {
        for run in &around.abandoned {
            self.adopt_one(run, false)?;
        }
        if around.theirs.is_empty() {
            return Ok(());
        }
        let workers = around.others.iter().map(|other| &other.worker.id);
        let busy = workers.filter(|id| around.theirs.iter().any(|run| run.worker.as_ref() == Some(id)));
        let silent = listener.listen(&self.executor.runs, busy, self.executor.settings.heartbeat);
        for run in
            around.theirs.iter().filter(|run| run.worker.as_ref().is_some_and(|id| silent.contains(id)))
        {
            self.adopt_one(run, true)?;
        }
        Ok(())
    }

    fn adopt_one(&self, run: &Run, silent: bool) -> Result<(), RunError> {
        let wake = self.wake.1.try_clone().map_err(RunError::Machine)?;
        let on_end = move || {
            let _ = rustix::io::write(&wake, b"!");
        };
        self.executor.adopt(run, silent, on_end).map(|_| ())
    }
}

fn drain_pipe(reader: &OwnedFd) {
    let mut bytes = [0; 64];
    while matches!(rustix::io::read(reader, &mut bytes), Ok(read) if read > 0) {}
}
