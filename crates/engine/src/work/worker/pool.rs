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
enum Look {
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
    fn supervise(&self, watch: &mut PoolLoop<'_>) -> Result<(), RunError> {
        let mut trouble = String::new();
        loop {
            if self.session.as_ref().is_some_and(|session| session.is_taken()) {
                watch.slots.drain();
                if !self.is_busy(watch) {
                    return Err(RunError::WorkerTaken(self.record.id.clone()));
                }
            }
            match self.look(watch) {
                Ok(Look::Finished) => return Ok(()),
                Ok(Look::Sleep(limit)) => {
                    trouble.clear();
                    self.sleep(watch, limit)?;
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != trouble {
                        self.events.warn(format!("{text}; trying again"));
                        trouble = text;
                    }
                    if watch.is_stopping {
                        self.active.stop_all(Stop::Canceled);
                    }
                    self.sleep(watch, Some(AFTER_FAILURE))?;
                    if watch.is_stopping && !self.is_busy(watch) {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn look(&self, watch: &mut PoolLoop<'_>) -> Result<Look, RunError> {
        watch.changes.reset(watch.was_woken);
        watch.wake.clear();
        process::reap_orphans();
        match (&watch.heartbeat, self.is_busy(watch)) {
            (None, true) => watch.heartbeat = Some(self.heartbeat.start().map_err(RunError::Machine)?),
            (Some(_), false) => watch.heartbeat = None,
            (Some(_), true) | (None, false) => {}
        }
        let looked_at = self.runs.now().moment;
        for run in self.runs.expire()? {
            self.events.publish(&WorkerEvent::Ended(run), None);
        }
        watch.survey = self.rescuer.survey()?;
        if watch.is_stopping {
            self.cancel_all(&watch.survey.ours, watch.wake);
        }
        self.active.forward(&watch.survey.ours, &self.runs)?;
        // Attempts that were canceled just now get their stop request in the next pass of this loop.
        if watch.is_killing && watch.survey.ours.iter().all(|run| run.status() != Status::Running) {
            self.active.kill_all(&self.events);
        }
        self.rescuer.rescue_all(&watch.survey, &mut watch.heartbeats, watch.wake)?;
        if self.is_finished(watch)? {
            return Ok(Look::Finished);
        }
        let every = self.context.settings.heartbeat;
        let silence = watch.heartbeats.due(watch.survey.others_are_busy(), every);
        let silence = silence.map(|at| at.saturating_duration_since(Instant::now()));
        let due = [self.runs.next_due(looked_at)?, watch.survey.look_again].into_iter().flatten().min();
        let now = self.runs.now().moment;
        let due = due.map(|due| due.since(now) + Duration::from_millis(1));
        Ok(Look::Sleep([silence, due, watch.changes.longest_sleep()].into_iter().flatten().min()))
    }

    fn sleep(&self, watch: &mut PoolLoop<'_>, limit: Option<Duration>) -> Result<(), RunError> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![watch.signals.as_fd(), watch.wake.as_fd()];
        descriptors.extend(watch.survey.exits());
        descriptors.extend(watch.changes.as_fd());
        let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
        watch.was_woken = watch.changes.as_fd().is_some() && ready.contains(descriptors.len() - 1);
        if ready.any() && !ready.contains(0) {
            // More changes often follow at once: handle them together.
            poll::wait(&[watch.signals.as_fd()], Some(DEBOUNCE)).map_err(RunError::Machine)?;
        }
        for signal in watch.signals.take().map_err(RunError::Machine)? {
            if matches!(signal, Signal::INT | Signal::TERM | Signal::HUP) {
                self.handle_stop_signal(watch);
            }
        }
        Ok(())
    }

    fn handle_stop_signal(&self, watch: &mut PoolLoop<'_>) {
        if !watch.slots.is_draining() {
            watch.slots.drain();
            self.events.publish(&WorkerEvent::Draining, None);
        } else if !watch.is_stopping {
            watch.is_stopping = true;
            self.events.set_deadline(Instant::now() + self.grace());
            self.events.publish(&WorkerEvent::Stopping, None);
        } else {
            watch.is_killing = true;
        }
    }

    /// Whether any slot has a run, or an adopted run has not ended.
    fn is_busy(&self, watch: &PoolLoop<'_>) -> bool {
        watch.slots.is_busy() || !self.active.is_empty()
    }

    fn is_finished(&self, watch: &PoolLoop<'_>) -> Result<bool, RunError> {
        if watch.slots.is_draining() {
            return Ok(!self.is_busy(watch));
        }
        if self.is_busy(watch) || !watch.exit_when_idle || !watch.slots.is_idle() {
            return Ok(false);
        }
        // A run may have been queued since the claimer looked, or may wait for its next attempt. If nothing is queued because the
        // claimer has just claimed the last run, the claimer is not idle.
        let own = self.record.labels.as_slice();
        let labels: Vec<&[Name]> = watch.survey.pool_labels().chain([own]).collect();
        Ok(!self.runs.has_work(&labels)? && watch.slots.is_idle())
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
