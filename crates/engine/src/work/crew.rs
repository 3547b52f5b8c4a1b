//! Several pairs of hands that work through the queue.
//!
//! Each is a thread that executes one run at a time. One of them at most looks for the next run; when it has found
//! one, it lets another look and executes what it found. Whoever finishes says so and takes the next run in one
//! transaction. So a start waits for nobody, and idle hands sleep until something is submitted or a lease is granted.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::hand::Hand;
use super::heart::{Heart, Listener};
use super::recover::Surroundings;
use super::scribe::Scribe;
use super::take::Line;
use super::{Ask, Executor, Told, locked};
use crate::runs::{Heard, RunError};
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::{clock, pipe, poll, process};
use lockkeeper_store::runs::Tables;

/// Changes within so short a time are looked at together.
const TOGETHER: Duration = Duration::from_millis(20);
/// How often leases are asked for that have no place in line, and lock files looked at: nobody tells of their end.
const WHEN_CROWDED: Duration = Duration::from_millis(500);
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
    /// With whoever looks for the next run.
    line: Mutex<Line>,
    scribe: Scribe,
    /// Interrupts whoever looks for the next run, and wakes whoever supervises.
    nudge: (OwnedFd, OwnedFd),
    wake: (OwnedFd, OwnedFd),
}

/// What whoever supervises knows.
struct Supervision {
    heard: Heard,
    told: bool,
    listener: Listener,
    heart: Option<Heart>,
    around: Surroundings,
    /// Whether everything is to be ended.
    stopping: bool,
}

impl Supervision {
    fn new(heard: Heard) -> Self {
        let (listener, around) = (Listener::default(), Surroundings::default());
        Self { heard, told: false, listener, heart: None, around, stopping: false }
    }
}

/// What a look at everything means.
enum Look {
    /// There is nothing left to do.
    Finished,
    /// So long at most until the next look.
    Sleep(Option<Duration>),
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
        Ok(Self {
            executor,
            orders,
            state: Mutex::default(),
            changed: Condvar::new(),
            line: Mutex::default(),
            scribe: Scribe::new(orders.jobs),
            nudge,
            wake,
        })
    }

    /// The executor.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Works until told to end: the first signal lets what runs come to its end, the second ends it.
    pub fn work(&self, signals: &Signals) -> Result<(), RunError> {
        thread::scope(|scope| {
            let scribe = thread::Builder::new().name("scribe".to_owned());
            scribe.spawn_scoped(scope, || self.scribe.work(&self.executor)).map_err(RunError::Machine)?;
            let worked = self.work_with_hands(signals);
            self.scribe.end();
            worked
        })
    }

    fn work_with_hands(&self, signals: &Signals) -> Result<(), RunError> {
        thread::scope(|scope| {
            let hire = || {
                for number in 0..self.orders.jobs {
                    let hand = thread::Builder::new().name(format!("hand {number}"));
                    hand.spawn_scoped(scope, move || self.lend_a_hand(number + 1))
                        .map_err(RunError::Machine)?;
                }
                Ok(())
            };
            let supervised = hire().and_then(|()| self.supervise(signals));
            if supervised.is_err() {
                // Nobody would look after what runs.
                self.executor.ask_everyone(Ask::Cancel);
            }
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

    fn lend_a_hand(&self, number: u32) {
        let mut hand = Hand::new(number);
        while self.wait_to_look() {
            match self.find() {
                Ok(Some(job)) => {
                    self.found();
                    if let Err(error) = self.work_through(job, &mut hand) {
                        self.trouble(&error);
                    }
                }
                Ok(None) => self.stop_looking(),
                Err(error) => {
                    self.trouble(&error);
                    self.stop_looking();
                }
            }
        }
    }

    /// Executes a run, and then whatever is the next, until there is none.
    fn work_through(&self, job: super::Job, hand: &mut Hand) -> Result<(), RunError> {
        let mut next = Ok(Some(job));
        while let Ok(Some(job)) = next {
            let done = self.executor.execute_with(job, hand, Some(&self.scribe));
            let may_take = !locked(&self.state).draining;
            next = self.executor.go_on(done, hand, may_take, &self.scribe);
        }
        self.put_down();
        next.map(|_| ())
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

    fn find(&self) -> Result<Option<super::Job>, RunError> {
        let line = &mut *locked(&self.line);
        // Not for longer than this: every write to the store costs more while somebody listens.
        let mut heard = self.executor.runs.listen()?;
        let mut told = false;
        loop {
            heard.quiet(told);
            drain_pipe(&self.nudge.0);
            if locked(&self.state).draining {
                self.executor.leave_line(line)?;
                return Ok(None);
            }
            locked(&self.state).idle = false;
            let looked_at = clock::now();
            if let Some(job) = self.executor.take_next(line)? {
                return self.with_free_hands(job, line).map(Some);
            }
            self.set_idle(!line.is_used() && !line.look_again);
            let due = self.executor.runs.store().read(|tables| tables.next_due(looked_at))?;
            let due = due.map(|due| due.since(clock::now()) + Duration::from_millis(1));
            let crowded = (line.is_crowded() || line.look_again).then_some(WHEN_CROWDED);
            let limit = [due, heard.patience(), crowded].into_iter().flatten().min();
            let until = limit.and_then(|limit| Instant::now().checked_add(limit));
            let mut interrupts: Vec<BorrowedFd<'_>> = vec![self.nudge.0.as_fd()];
            interrupts.extend(heard.as_fd());
            if line.is_used() {
                if let Some(job) = self.executor.sleep_in_line(line, &interrupts, until)? {
                    return self.with_free_hands(job, line).map(Some);
                }
                // What was written meanwhile is looked at in any case.
                told = false;
            } else {
                let ready = poll::wait(&interrupts, limit).map_err(RunError::Machine)?;
                told = ready.contains(1);
            }
        }
    }

    /// Places in line are given up when nobody is left to take what they are granted: others may want it.
    fn with_free_hands(&self, job: super::Job, line: &mut Line) -> Result<super::Job, RunError> {
        let last = locked(&self.state).busy + 1 >= self.orders.jobs;
        if last && let Err(error) = self.executor.leave_line(line) {
            // The run is taken and has to be executed whatever becomes of the line.
            self.executor.trouble(format!("cannot leave the line: {error}"));
        }
        Ok(job)
    }

    fn found(&self) {
        self.scribe.get_ready();
        let mut state = locked(&self.state);
        state.looking = false;
        state.idle = false;
        state.busy += 1;
        drop(state);
        self.changed.notify_one();
        self.wake();
    }

    fn put_down(&self) {
        locked(&self.state).busy -= 1;
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

    /// Looks after everything but the commands: signals, calls to end, time, other workers. A store that fails ends
    /// nothing: what runs goes on, and the store is asked again.
    fn supervise(&self, signals: &Signals) -> Result<(), RunError> {
        let executor = &self.executor;
        let mut watch = Supervision::new(executor.runs.listen()?);
        let mut trouble = String::new();
        loop {
            match self.look(&mut watch) {
                Ok(Look::Finished) => return Ok(()),
                Ok(Look::Sleep(limit)) => {
                    trouble.clear();
                    self.sleep(&mut watch, signals, limit)?;
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != trouble {
                        executor.trouble(format!("{text}; trying again"));
                        trouble = text;
                    }
                    if watch.stopping {
                        executor.ask_everyone(Ask::Cancel);
                    }
                    self.sleep(&mut watch, signals, Some(AFTER_TROUBLE))?;
                    if self.is_stopped(&watch) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn look(&self, watch: &mut Supervision) -> Result<Look, RunError> {
        let executor = &self.executor;
        watch.heard.quiet(watch.told);
        drain_pipe(&self.wake.0);
        process::reap_orphans();
        let busy = executor.busy() > 0;
        match (&watch.heart, busy) {
            (None, true) => watch.heart = Some(Heart::begin(&executor.pulse).map_err(RunError::Machine)?),
            (Some(_), false) => watch.heart = None,
            (Some(_), true) | (None, false) => {}
        }
        let looked_at = clock::now();
        self.expire()?;
        watch.around = executor.look_around()?;
        if watch.stopping {
            self.cancel_all(&watch.around.ours);
        }
        executor.pass_on(&watch.around.ours)?;
        self.adopt(&watch.around, &mut watch.listener)?;
        if self.is_finished(executor.busy() > 0)? {
            return Ok(Look::Finished);
        }
        let silence = watch.listener.due(!watch.around.theirs.is_empty(), executor.settings.heartbeat);
        let silence = silence.map(|at| at.saturating_duration_since(Instant::now()));
        let due = executor.runs.store().read(|tables| tables.next_due(looked_at))?;
        let due = [due, watch.around.look_again].into_iter().flatten().min();
        let due = due.map(|due| due.since(clock::now()) + Duration::from_millis(1));
        Ok(Look::Sleep([silence, due, watch.heard.patience()].into_iter().flatten().min()))
    }

    fn sleep(
        &self,
        watch: &mut Supervision,
        signals: &Signals,
        limit: Option<Duration>,
    ) -> Result<(), RunError> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![signals.as_fd(), self.wake.0.as_fd()];
        let others = watch.around.others.iter();
        descriptors.extend(others.filter_map(|other| Some(other.exit.as_ref()?.as_fd())));
        descriptors.extend(watch.heard.as_fd());
        let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
        watch.told = watch.heard.as_fd().is_some() && ready.contains(descriptors.len() - 1);
        if ready.any() && !ready.contains(0) {
            // Let what belongs together arrive.
            poll::wait(&[signals.as_fd()], Some(TOGETHER)).map_err(RunError::Machine)?;
        }
        for signal in signals.take().map_err(RunError::Machine)? {
            if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP) {
                self.obey(watch);
            }
        }
        Ok(())
    }

    fn obey(&self, watch: &mut Supervision) {
        if !locked(&self.state).draining {
            self.drain();
            self.executor.tell(&Told::Draining, None);
        } else if !watch.stopping {
            watch.stopping = true;
            self.executor.tell(&Told::Stopping, None);
        }
    }

    /// Whether it was told to stop, and nothing is executed any more.
    fn is_stopped(&self, watch: &Supervision) -> bool {
        watch.stopping && locked(&self.state).busy == 0 && self.executor.busy() == 0
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
            let waits = !tables.ready(None, 1)?.is_empty();
            Ok(waits || !tables.due_retries(Moment::MAX, 1)?.is_empty())
        };
        if self.executor.runs.store().read(more)? {
            return Ok(false);
        }
        // Nothing is left because somebody has just taken it: whoever looks is not idle before it takes anything.
        let state = locked(&self.state);
        Ok(state.idle && state.busy == 0)
    }

    fn expire(&self) -> Result<(), RunError> {
        for run in self.executor.runs.expire()? {
            self.executor.tell(&Told::Ended(run), None);
        }
        Ok(())
    }

    /// Said before any signal is sent, so that whatever happens to this worker none of them is taken for a success.
    fn cancel_all(&self, ours: &[Run]) {
        for run in ours.iter().filter(|run| run.status == Status::Running) {
            // It may have ended meanwhile.
            if self.executor.runs.cancel(&run.id, Some("the worker was stopped")).is_ok() {
                self.wake();
            }
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
