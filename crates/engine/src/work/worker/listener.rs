//! Handles cancellations and signals while single runs execute, and rescues unattended runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Worker;
use crate::runs::RunError;
use crate::work::Wanted;
use crate::work::heartbeat::{Heartbeat, HeartbeatWatch};
use lockkeeper_platform::signal::Signals;
use lockkeeper_platform::{pipe, poll};

/// A thread that listens until it is dropped. The heartbeat of the worker continues meanwhile.
pub struct ControlListener {
    signals: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
    end: Option<OwnedFd>,
    _heartbeat: Heartbeat,
}

impl ControlListener {
    /// Begins to listen for a worker, and to rescue all runs. When this returns, unattended runs without live processes
    /// are completed or returned. The second signal cancels what is executed, the third one kills it.
    pub fn begin(worker: &Arc<Worker>, signals: Option<Signals>) -> Result<Self, RunError> {
        worker.rescuer.complete_dead_runs()?;
        Self::rescuing(worker, signals, Arc::new(|_| true))
    }

    /// The same for some runs only.
    pub(in crate::work) fn rescuing(
        worker: &Arc<Worker>,
        signals: Option<Signals>,
        wanted: Arc<Wanted>,
    ) -> Result<Self, RunError> {
        let (reader, end) = pipe::nonblocking().map_err(RunError::Machine)?;
        let heartbeat = worker.heartbeat.start().map_err(RunError::Machine)?;
        let count = Arc::new(AtomicU32::new(0));
        let (worker, counted) = (Arc::clone(worker), Arc::clone(&count));
        let listen = move || {
            if let Err(error) = listen(&worker, &counted, &reader, signals.as_ref(), &*wanted) {
                worker.events.warn(format!("cannot listen: {error}"));
            }
        };
        let thread = thread::Builder::new().name("control".to_owned()).spawn(listen);
        let thread = Some(thread.map_err(RunError::Machine)?);
        Ok(Self { signals: count, thread, end: Some(end), _heartbeat: heartbeat })
    }

    /// Whether a signal asked for the end.
    pub fn is_asked_to_end(&self) -> bool {
        self.signals.load(Ordering::SeqCst) > 0
    }
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(
    worker: &Arc<Worker>,
    count: &AtomicU32,
    end: &OwnedFd,
    signals: Option<&Signals>,
    wanted: &Wanted,
) -> Result<(), RunError> {
    let mut changes = worker.runs.subscribe()?;
    let mut was_woken = false;
    let mut heartbeats = HeartbeatWatch::default();
    loop {
        changes.reset(was_woken);
        let survey = worker.rescuer.survey()?;
        worker.active.forward(&survey.ours, &worker.runs)?;
        if count.load(Ordering::SeqCst) > 1 {
            for run in &survey.ours {
                // It may have ended meanwhile.
                let _ = worker.runs.cancel(&run.id, Some("the worker was stopped"));
            }
        }
        if count.load(Ordering::SeqCst) > 2 {
            worker.active.kill_all(&worker.events);
        }
        let mut next = survey.look_again;
        if count.load(Ordering::SeqCst) == 0 {
            for one in survey.unattended.iter().filter(|one| wanted(&one.run)) {
                worker.rescuer.rescue_one(one, None)?;
            }
            let every = worker.context.settings.heartbeat;
            for run in survey.silent(worker.runs.folder(), &mut heartbeats, every) {
                if wanted(run) {
                    worker.rescuer.replace_worker(run)?;
                }
            }
            worker.rescuer.end_stage_attempts(wanted)?;
            let due = worker.make_due_attempts(&survey, wanted)?;
            next = [next, due].into_iter().flatten().min();
        }
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![end.as_fd()];
        descriptors.extend(signals.map(|signals| signals.as_fd()));
        descriptors.extend(survey.exits());
        descriptors.extend(changes.as_fd());
        let now = worker.runs.now().moment;
        let next = next.map(|at| at.since(now) + Duration::from_millis(1));
        let silence = heartbeats.due(survey.others_are_busy(), worker.context.settings.heartbeat);
        let silence = silence.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = [next, silence, changes.longest_sleep()].into_iter().flatten().min();
        let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
        if ready.contains(0) {
            return Ok(());
        }
        was_woken = changes.as_fd().is_some() && ready.contains(descriptors.len() - 1);
        let came = signals.map(Signals::take).transpose().map_err(RunError::Machine)?.unwrap_or_default();
        count.fetch_add(u32::try_from(came.len()).unwrap_or(u32::MAX), Ordering::SeqCst);
    }
}
