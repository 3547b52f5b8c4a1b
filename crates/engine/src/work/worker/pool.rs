//! The worker pool: a claimer, one thread for each job slot, and the thread that supervises them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::id::Name;
use lockkeeper_core::run::{Run, Status};

use super::Worker;
use crate::runs::{RunError, Subscription};
use crate::work::attempt::Slot;
use crate::work::claimer::Claimed;
use crate::work::completer_message::Finished;
use crate::work::control::{Stop, WakePipe};
use crate::work::events::WorkerEvent;
use crate::work::heartbeat::{Heartbeat, HeartbeatWatch};
use crate::work::locked;
use crate::work::rescuer::Survey;
use crate::work::slots::Slots;
use lockkeeper_platform::signal::{Signal, Signals};
use lockkeeper_platform::{poll, process};

/// Changes within this time are handled together.
const DEBOUNCE: Duration = Duration::from_millis(20);
/// The pause after the store failed.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// The state of the loop that supervises the pool.
struct PoolLoop<'s> {
    slots: &'s Slots,
    wake: &'s Arc<WakePipe>,
    signals: &'s Signals,
    /// Whether to end once nothing is queued and nothing is executed.
    exit_when_idle: bool,
    changes: Subscription,
    /// Whether the last sleep ended because the store has changed.
    was_woken: bool,
    heartbeats: HeartbeatWatch,
    heartbeat: Option<Heartbeat>,
    survey: Survey,
    /// Whether everything is to be stopped.
    is_stopping: bool,
    /// Whether everything is to be killed, although its grace is not over.
    is_killing: bool,
}

/// What the loop does next.
enum NextStep {
    /// There is nothing left to do.
    Finished,
    /// Sleep until something happens, but not longer than this.
    Sleep(Option<Duration>),
}

impl Worker {
    /// Executes queued runs until a signal comes. First signal: claim nothing more. Second: cancel running commands. Third: kill
    /// them. With `exit_when_idle` it also ends once nothing is left to do.
    pub fn run(&self, signals: &Signals, exit_when_idle: bool) -> Result<(), RunError> {
        let wake = Arc::new(WakePipe::new().map_err(RunError::Machine)?);
        let claimer = WakePipe::new().map_err(RunError::Machine)?;
        let slots = Slots::new(self.record.jobs, claimer, Arc::clone(&wake));
        let (sender, receiver) = channel();
        let receiver = Mutex::new(receiver);
        let mut state = PoolLoop {
            slots: &slots,
            wake: &wake,
            signals,
            exit_when_idle,
            changes: self.runs.subscribe()?,
            was_woken: false,
            heartbeats: HeartbeatWatch::default(),
            heartbeat: None,
            survey: Survey::default(),
            is_stopping: false,
            is_killing: false,
        };
        let jobs = (1..=self.record.jobs).map(|number| Slot::new(Some(number)).map(|slot| (number, slot)));
        let jobs = jobs.collect::<Result<Vec<_>, _>>().map_err(RunError::Machine)?;
        thread::scope(|scope| {
            let (slots, receiver) = (&slots, &receiver);
            let start = || {
                for (number, slot) in jobs {
                    let thread = thread::Builder::new().name(format!("slot {number}"));
                    thread.spawn_scoped(scope, move || self.run_slot(slot, slots, receiver))?;
                }
                let thread = thread::Builder::new().name("claimer".to_owned());
                thread.spawn_scoped(scope, move || self.claimer.run(slots, &sender)).map(drop)
            };
            let started = start().map_err(RunError::Machine);
            let supervised = started.and_then(|()| self.supervise(&mut state));
            if supervised.is_err() {
                // Without this loop nothing supervises the running commands.
                self.active.stop_all(Stop::Canceled);
            }
            slots.drain();
            supervised
        })
    }

    /// Executes runs one after the other: a run that the claimer has claimed, then the runs that the completer claims for
    /// this slot together with the ends of the runs before.
    fn run_slot(&self, mut slot: Slot, slots: &Slots, claimed: &Mutex<Receiver<Claimed>>) {
        // Aiflow's programs must see the lock file of a run before it is claimed: only the claimer does that.
        let needs_claimer = self.context.settings.aiflow.is_some();
        loop {
            let received = locked(claimed).recv();
            let Ok(first) = received else { return };
            let mut next = Some(first);
            while let Some(claimed) = next {
                let finished = self.attempt(claimed, &mut slot);
                let wants_next = !needs_claimer && !slots.is_draining();
                next = self.completer.complete(Finished { wants_next, ..finished });
            }
            slots.release();
        }
    }

    /// Handles everything but the commands: signals, requests to cancel, time, other workers. If the store fails, running
    /// commands continue, and the store is tried again.
    fn supervise(&self, state: &mut PoolLoop<'_>) -> Result<(), RunError> {
        let mut trouble = String::new();
        loop {
            if self.session.as_ref().is_some_and(|session| session.is_taken()) {
                state.slots.drain();
                if !self.is_busy(state) {
                    return Err(RunError::WorkerTaken(self.record.id.clone()));
                }
            }
            match self.look_once(state) {
                Ok(NextStep::Finished) => return Ok(()),
                Ok(NextStep::Sleep(limit)) => {
                    trouble.clear();
                    self.sleep(state, limit)?;
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != trouble {
                        self.events.warn(format!("{text}; trying again"));
                        trouble = text;
                    }
                    if state.is_stopping {
                        self.active.stop_all(Stop::Canceled);
                    }
                    self.sleep(state, Some(AFTER_FAILURE))?;
                    if state.is_stopping && !self.is_busy(state) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// One pass of the loop: the heartbeat, runs that timed out in the queue, the survey, requests to stop for the attempts of this
    /// worker, runs to rescue. Returns whether the worker is done, or how long to sleep.
    fn look_once(&self, state: &mut PoolLoop<'_>) -> Result<NextStep, RunError> {
        state.changes.reset(state.was_woken);
        state.wake.clear();
        process::reap_orphans();
        match (&state.heartbeat, self.is_busy(state)) {
            (None, true) => state.heartbeat = Some(self.heartbeat.start().map_err(RunError::Machine)?),
            (Some(_), false) => state.heartbeat = None,
            (Some(_), true) | (None, false) => {}
        }
        let looked_at = self.runs.now().moment;
        // These runs were still queued: no attempt of them has to end.
        for run in self.runs.expire()? {
            self.events.publish(&WorkerEvent::Ended(run), None);
        }
        state.survey = self.rescuer.survey()?;
        if state.is_stopping {
            self.cancel_all(&state.survey.ours, state.wake);
        }
        self.active.forward(&state.survey.ours, &self.runs)?;
        // Runs that were canceled just now are still `running` in this survey: their attempts are asked to stop in the next pass, and
        // their processes are killed in that one.
        if state.is_killing && state.survey.ours.iter().all(|run| run.status() != Status::Running) {
            self.active.kill_all(&self.events);
        }
        self.rescuer.rescue_all(&state.survey, &mut state.heartbeats, state.wake)?;
        if self.is_finished(state)? {
            return Ok(NextStep::Finished);
        }
        let every = self.context.settings.heartbeat;
        let silence = state.heartbeats.due(state.survey.others_are_busy(), every);
        let silence = silence.map(|at| at.saturating_duration_since(Instant::now()));
        let due = [self.runs.next_due(looked_at)?, state.survey.look_again].into_iter().flatten().min();
        let now = self.runs.now().moment;
        let due = due.map(|due| due.since(now) + Duration::from_millis(1));
        Ok(NextStep::Sleep([silence, due, state.changes.longest_sleep()].into_iter().flatten().min()))
    }

    fn sleep(&self, state: &mut PoolLoop<'_>, limit: Option<Duration>) -> Result<(), RunError> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![state.signals.as_fd(), state.wake.as_fd()];
        descriptors.extend(state.survey.exits());
        descriptors.extend(state.changes.as_fd());
        let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
        state.was_woken = state.changes.as_fd().is_some() && ready.contains(descriptors.len() - 1);
        if ready.any() && !ready.contains(0) {
            // More changes often follow at once: handle them together.
            poll::wait(&[state.signals.as_fd()], Some(DEBOUNCE)).map_err(RunError::Machine)?;
        }
        for signal in state.signals.take().map_err(RunError::Machine)? {
            if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP) {
                self.handle_stop_signal(state);
            }
        }
        Ok(())
    }

    fn handle_stop_signal(&self, state: &mut PoolLoop<'_>) {
        if !state.slots.is_draining() {
            state.slots.drain();
            self.events.publish(&WorkerEvent::Draining, None);
        } else if !state.is_stopping {
            state.is_stopping = true;
            self.events.set_deadline(Instant::now() + self.grace());
            self.events.publish(&WorkerEvent::Stopping, None);
        } else {
            state.is_killing = true;
        }
    }

    /// Whether any slot has a run, or an adopted run has not ended.
    fn is_busy(&self, state: &PoolLoop<'_>) -> bool {
        state.slots.is_busy() || !self.active.is_empty()
    }

    fn is_finished(&self, state: &PoolLoop<'_>) -> Result<bool, RunError> {
        if state.slots.is_draining() {
            return Ok(!self.is_busy(state));
        }
        if self.is_busy(state) || !state.exit_when_idle || !state.slots.is_idle() {
            return Ok(false);
        }
        // A run may have been queued since the claimer looked, or may wait for its next attempt. If nothing is queued because the
        // claimer has just claimed the last run, the claimer is not idle.
        let own = self.record.labels.as_slice();
        let labels: Vec<&[Name]> = state.survey.pool_labels().chain([own]).collect();
        Ok(!self.runs.has_work(&labels)? && state.slots.is_idle())
    }

    /// Cancels these runs in the store before any signal is sent: even if this worker dies now, none of them counts as a success.
    fn cancel_all(&self, ours: &[Run], wake: &WakePipe) {
        for run in ours.iter().filter(|run| run.status() == Status::Running) {
            // It may have ended meanwhile.
            if self.runs.cancel(&run.id, Some("the worker was stopped")).is_ok() {
                wake.wake();
            }
        }
    }
}
