//! Rescue watch: a thread that sleeps until a run has no live worker, and then starts a worker that rescues it.
//!
//! The server, `run wait`, `run cancel` and `run retry` each have one. They are not workers themselves.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockkeeper_core::id::RunId;
use lockkeeper_core::run::Run;
use lockkeeper_core::run::transition::AttemptOutcome;
use lockkeeper_core::time::Moment;

use super::Settings;
use super::end_records::{self, Known};
use super::heartbeat::HeartbeatWatch;
use super::rescuer::{Survey, Surveyor};
use super::stage_attempts;
use super::worker::{ControlListener, Worker};
use crate::Engine;
use crate::runs::{RunError, Runs, Subscription};
use lockkeeper_platform::{pipe, poll};

/// How often to check whether the worker that rescues is still needed, and how soon to try again after the store failed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The doctor reports a due attempt only if no worker has made it for this long.
const DUE_TOLERANCE: Duration = Duration::from_secs(1);

/// Changes within this time lead to one survey.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// Which runs are rescued.
pub type Wanted = dyn Fn(&Run) -> bool + Send + Sync;

/// Starts the worker that rescues.
pub type StartWorker = dyn Fn() -> Result<Worker, RunError> + Send;

/// A thread that watches until it is dropped. Dropping it does not end the commands of runs that it rescued.
pub struct RescueWatch {
    thread: Option<JoinHandle<()>>,
    end: Option<OwnedFd>,
}

/// The unattended runs: they have no live worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnattendedRuns {
    /// Their worker is dead, and the next worker rescues them.
    pub all: Vec<RunId>,
    /// Those of them of which no process lives.
    pub gone: Vec<RunId>,
    /// Their worker is dead, and their processes live where this process can neither see nor end them: in another pid
    /// namespace, or those of the user that is named.
    pub out_of_reach: Vec<(RunId, Option<u32>)>,
}

/// Finds the unattended runs. Changes nothing.
pub fn unattended_runs(runs: &Runs, leases: &Engine) -> Result<UnattendedRuns, RunError> {
    let survey = surveyor(runs, leases).survey()?;
    let id = |run: &Run| run.id.clone();
    Ok(UnattendedRuns {
        all: survey.unattended.iter().map(|one| id(&one.run)).collect(),
        gone: survey.unattended.iter().filter(|one| !one.is_alive).map(|one| id(&one.run)).collect(),
        out_of_reach: survey.out_of_reach.iter().map(|one| (id(&one.run), one.user)).collect(),
    })
}

/// What the doctor reports about unattended runs.
#[derive(Default)]
pub(crate) struct UnattendedFindings {
    /// No process of them lives. Each has the known outcome of its command.
    pub(crate) gone: Vec<(Run, AttemptOutcome)>,
    /// Their commands live.
    pub(crate) alive: Vec<Run>,
    /// Their processes live where this process cannot see them.
    pub(crate) out_of_reach: Vec<Run>,
    /// Their commands belong to another user, which is named.
    pub(crate) of_others: Vec<(Run, u32)>,
    /// Their next attempt is due, and no worker is there to make it.
    pub(crate) due: Vec<Run>,
    /// Runs of stages that wait for a retry, and whose `stages run` has ended.
    pub(crate) unmade: Vec<Run>,
}

impl UnattendedFindings {
    /// Whether there is no such run.
    pub(crate) fn is_empty(&self) -> bool {
        [&self.alive, &self.out_of_reach, &self.due, &self.unmade].iter().all(|runs| runs.is_empty())
            && self.gone.is_empty()
            && self.of_others.is_empty()
    }
}

/// Finds the unattended runs, for the doctor. Changes nothing.
pub(crate) fn unattended_findings(runs: &Runs, leases: &Engine) -> Result<UnattendedFindings, RunError> {
    let survey = surveyor(runs, leases).survey()?;
    let now = runs.now().moment;
    let mut found = UnattendedFindings::default();
    for one in &survey.out_of_reach {
        match one.user {
            None => found.out_of_reach.push(one.run.clone()),
            Some(user) => found.of_others.push((one.run.clone(), user)),
        }
    }
    for one in &survey.unattended {
        // An ended run keeps its end. Another check finds its processes.
        let run = one.run.clone();
        match (one.run.status().is_active(), one.is_alive) {
            (false, _) => {}
            (true, true) => found.alive.push(run),
            (true, false) if one.may_have_begun => {
                let known =
                    run.process().map(|process| end_records::poll_after_exit(runs.folder(), process.holder));
                match known {
                    Some(Known::Guarded) => found.alive.push(run),
                    Some(Known::Ended(seen)) => {
                        let outcome = end_records::outcome(runs, &run, seen);
                        found.gone.push((run, outcome));
                    }
                    Some(Known::Nothing | Known::NeverWritten) | None => {
                        found.gone.push((run, AttemptOutcome::Vanished));
                    }
                }
            }
            (true, false) => found.gone.push((run, AttemptOutcome::NotBegun)),
        }
    }
    if survey.others.is_empty() {
        let is_due = |run: &Run| run.retry_at().is_some_and(|at| at.after(DUE_TOLERANCE) <= now);
        found.due = runs.waiting_attempts()?.into_iter().filter(is_due).collect();
    }
    found.unmade = stage_attempts::unmade(runs, leases)?;
    Ok(found)
}

impl RescueWatch {
    /// Begins to watch.
    pub fn begin(
        runs: Runs,
        leases: Engine,
        wanted: Arc<Wanted>,
        start: Box<StartWorker>,
        trouble: Box<dyn Fn(&RunError) + Send>,
    ) -> Result<Self, RunError> {
        let (reader, end) = pipe::nonblocking().map_err(RunError::Machine)?;
        let changes = runs.subscribe()?;
        let mut watch = Watcher {
            runs,
            leases,
            wanted,
            start,
            changes,
            was_woken: false,
            heartbeats: HeartbeatWatch::default(),
            rescuing: None,
        };
        let body = move || {
            loop {
                let limit = watch.look().unwrap_or_else(|error| {
                    trouble(&error);
                    (Survey::default(), Some(POLL_INTERVAL))
                });
                match watch.sleep(&reader, &limit.0, limit.1) {
                    Ok(false) => {}
                    Ok(true) => return,
                    Err(error) => return trouble(&error),
                }
            }
        };
        let thread = thread::Builder::new().name("rescue".to_owned()).spawn(body);
        Ok(Self { thread: Some(thread.map_err(RunError::Machine)?), end: Some(end) })
    }
}

impl Drop for RescueWatch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Watcher {
    runs: Runs,
    leases: Engine,
    wanted: Arc<Wanted>,
    start: Box<StartWorker>,
    changes: Subscription,
    was_woken: bool,
    heartbeats: HeartbeatWatch,
    /// The worker that rescues, while there is something to rescue. The listener is dropped first.
    rescuing: Option<(ControlListener, Arc<Worker>)>,
}

impl Watcher {
    /// Begins or ends the worker that rescues. Returns the survey, and how long to sleep at most.
    fn look(&mut self) -> Result<(Survey, Option<Duration>), RunError> {
        self.changes.reset(self.was_woken);
        let survey = surveyor(&self.runs, &self.leases).survey()?;
        let (has_due, next) = self.due_attempts(&survey)?;
        let every = Settings::default().heartbeat;
        let silent: Vec<Run> = survey
            .silent(self.runs.folder(), &mut self.heartbeats, every)
            .into_iter()
            .filter(|run| (self.wanted)(run))
            .cloned()
            .collect();
        let unmade = stage_attempts::unmade(&self.runs, &self.leases)?;
        let is_needed = has_due
            || !silent.is_empty()
            || unmade.iter().any(|run| (self.wanted)(run))
            || survey.unattended.iter().any(|one| (self.wanted)(&one.run));
        match &self.rescuing {
            None if is_needed => {
                let worker = Arc::new((self.start)()?);
                let listener = ControlListener::rescuing(&worker, None, Arc::clone(&self.wanted))?;
                self.rescuing = Some((listener, worker));
            }
            Some((_, worker)) if !is_needed && !worker.is_active() && !survey.executes_any(worker.id()) => {
                self.rescuing = None;
            }
            Some(_) | None => {}
        }
        if let Some((_, worker)) = &self.rescuing {
            for run in &silent {
                worker.rescuer().replace_worker(run)?;
            }
        }
        let now = self.runs.now().moment;
        let wait = |at: Moment| at.since(now) + Duration::from_millis(1);
        let next = [next, survey.look_again].into_iter().flatten().min().map(wait);
        let again = self.rescuing.is_some().then_some(POLL_INTERVAL);
        let silence = self.heartbeats.due(survey.others_are_busy(), every);
        let silence = silence.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = [next, again, silence, self.changes.longest_sleep()].into_iter().flatten().min();
        Ok((survey, limit))
    }

    /// Whether an attempt is due and no pool makes it, and when the next one is due.
    fn due_attempts(&self, survey: &Survey) -> Result<(bool, Option<Moment>), RunError> {
        let now = self.runs.now().moment;
        let waiting = self.runs.waiting_attempts()?;
        let times = waiting.iter().filter(|run| (self.wanted)(run)).filter_map(Worker::makes_attempt_at);
        let (due, later): (Vec<Moment>, Vec<Moment>) = times.partition(|at| *at <= now);
        if survey.has_pool() && !due.is_empty() {
            // The pool makes it now, unless it is stopped (SIGSTOP) meanwhile, which sends no wake-up.
            return Ok((false, Some(now.after(POLL_INTERVAL))));
        }
        Ok((!due.is_empty(), later.into_iter().min()))
    }

    /// Sleeps until something happens. Returns whether to end.
    fn sleep(&mut self, end: &OwnedFd, survey: &Survey, limit: Option<Duration>) -> Result<bool, RunError> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![end.as_fd()];
        descriptors.extend(survey.exits());
        descriptors.extend(self.changes.as_fd());
        let ready = poll::wait(&descriptors, limit).map_err(RunError::Machine)?;
        self.was_woken = self.changes.as_fd().is_some() && ready.contains(descriptors.len() - 1);
        if ready.any() && !ready.contains(0) {
            // A busy queue changes all the time, and live workers handle these changes: one survey for many of them is enough.
            return Ok(poll::wait(&[end.as_fd()], Some(DEBOUNCE)).map_err(RunError::Machine)?.any());
        }
        Ok(ready.contains(0))
    }
}

fn surveyor<'s>(runs: &'s Runs, leases: &'s Engine) -> Surveyor<'s> {
    Surveyor { runs, leases, own: None, grace: Settings::default().grace }
}
