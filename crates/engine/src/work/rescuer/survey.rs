//! A survey of all workers and the runs that they execute.
//!
//! Decides which process may complete a run: its worker while it lives and its heartbeat continues; otherwise any process that
//! sees that the liveness lock of the run is free, or sees its processes and may end them. A list of processes that is empty
//! proves nothing: they may be in another pid namespace. A run of such processes, or of another user's, is out of reach and stays
//! as it is.
//!
//! On a store that several machines share, the liveness locks of another machine, or of another clone on this one, show nothing
//! here. Its worker lives until its session ends. It has stopped its commands before that, so any process may then end its runs.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, Name, WorkerId};
use lockkeeper_core::liveness::{LockState, Observation, ProcessRef};
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;

use crate::Engine;
use crate::runs::{RunError, Runs, is_gone, session_ends_at};
use crate::work::control::ActiveRuns;
use crate::work::end_records;
use crate::work::heartbeat::HeartbeatWatch;
use crate::work::processes::process_mark;
use crate::work::start_records;
use lockkeeper_platform::process::Watch;
use lockkeeper_platform::{process, tree};
use lockkeeper_store::runs::Worker as WorkerRecord;

/// A worker ends the processes of an ended run within the grace and this time.
const CLEANUP_TIME: Duration = Duration::from_secs(5);

/// The pause before a run is surveyed again whose processes should be visible, and are not.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// All workers and the runs that they execute, at one moment.
#[derive(Default)]
pub(in crate::work) struct Survey {
    /// Other workers that live.
    pub(in crate::work) others: Vec<OtherWorker>,
    /// Runs that other live workers execute.
    pub(super) theirs: Vec<Run>,
    /// Unattended runs: they have no live worker, and this process may adopt them.
    pub(in crate::work) unattended: Vec<UnattendedRun>,
    /// Unattended runs whose processes this process can neither see dead nor end.
    pub(in crate::work) out_of_reach: Vec<OutOfReach>,
    /// Runs that the worker of this process executes according to the store.
    pub(in crate::work) ours: Vec<Run>,
    /// When to survey again: a run may become unattended by then.
    pub(in crate::work) look_again: Option<Moment>,
    /// Dead workers that have no run left.
    pub(super) dead_workers: Vec<WorkerId>,
    /// The liveness locks of all runs that may have processes.
    pub(super) holders: Vec<HolderId>,
    /// Readable once the last process of a run that is out of reach has ended.
    ends: Vec<Arc<OwnedFd>>,
}

/// A run without a live worker.
#[derive(Clone, Debug)]
pub(in crate::work) struct UnattendedRun {
    pub(in crate::work) run: Run,
    /// Whether its command may have begun. If not, the run is claimed again.
    pub(in crate::work) may_have_begun: bool,
    /// The process of its command, if it lives and can be found.
    pub(super) command: Option<ProcessRef>,
    /// Whether any process of it lives.
    pub(in crate::work) is_alive: bool,
    /// Whether it was executed where this process sees nothing. The session of its worker has ended.
    pub(in crate::work) is_elsewhere: bool,
}

/// An unattended run whose processes this process can neither see dead nor end.
#[derive(Clone, Debug)]
pub(in crate::work) struct OutOfReach {
    pub(in crate::work) run: Run,
    /// The user of its command; none if its processes are in another pid namespace.
    pub(in crate::work) user: Option<u32>,
}

/// Another worker that lives.
pub(in crate::work) struct OtherWorker {
    pub(super) id: WorkerId,
    /// Whether it claims queued runs. Others execute single runs only, or are stopped.
    pub(in crate::work) is_pool: bool,
    labels: Vec<Name>,
    /// Whether its process can be seen and ended from here.
    pub(super) is_in_reach: bool,
    /// Readable once it has ended.
    exit: Option<Arc<OwnedFd>>,
}

impl Survey {
    /// Descriptors that become readable when another worker has ended, or the last process of a run that is out of reach.
    pub(in crate::work) fn exits(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let workers = self.others.iter().filter_map(|other| Some(other.exit.as_ref()?.as_fd()));
        workers.chain(self.ends.iter().map(|end| end.as_fd()))
    }

    fn look_again_at(&mut self, at: Moment) {
        self.look_again = Some(self.look_again.map_or(at, |known| known.min(at)));
    }

    /// Runs that other live workers execute.
    pub(in crate::work) fn theirs(&self) -> impl Iterator<Item = &Run> {
        self.theirs.iter()
    }

    /// Whether other live workers execute anything.
    pub(in crate::work) fn others_are_busy(&self) -> bool {
        !self.theirs.is_empty()
    }

    /// The runs of workers that live and have sent no heartbeat for too long, if it is time to look.
    pub(in crate::work) fn silent(
        &self,
        state: &Path,
        heartbeats: &mut HeartbeatWatch,
        every: Duration,
    ) -> Vec<&Run> {
        if self.theirs.is_empty() {
            return Vec::new();
        }
        // The runs of a worker of another pid namespace or of another user can neither be seen dead nor ended here.
        let in_reach = self.others.iter().filter(|other| other.is_in_reach).map(|other| &other.id);
        let silent = heartbeats.look(state, in_reach.filter(|id| self.executes_any(id)), every);
        let silent = self.theirs.iter().filter(|run| run.worker().is_some_and(|id| silent.contains(id)));
        silent.filter(|run| foreign_command(run).is_none()).collect()
    }

    /// Whether this worker executes anything.
    pub(in crate::work) fn executes_any(&self, worker: &WorkerId) -> bool {
        self.theirs.iter().any(|run| run.worker() == Some(worker))
    }

    /// The labels of each live worker that claims queued runs.
    pub(in crate::work) fn pool_labels(&self) -> impl Iterator<Item = &[Name]> {
        self.others.iter().filter(|other| other.is_pool).map(|other| other.labels.as_slice())
    }

    /// Whether a live worker claims what is queued, and attempts that are due.
    pub(in crate::work) fn has_pool(&self) -> bool {
        self.others.iter().any(|other| other.is_pool)
    }
}

/// Surveys workers and runs, as far as one process can see.
pub(in crate::work) struct Surveyor<'s> {
    pub(in crate::work) runs: &'s Runs,
    pub(in crate::work) leases: &'s Engine,
    /// The worker of this process, if it has one, and the runs that it executes.
    pub(in crate::work) own: Option<(&'s WorkerId, &'s ActiveRuns)>,
    pub(in crate::work) grace: Duration,
}

impl Surveyor<'_> {
    /// Surveys all workers and runs. Changes nothing.
    pub(in crate::work) fn survey(&self) -> Result<Survey, RunError> {
        let found = self.runs.workers_and_runs()?;
        let now = found.now;
        let holders = found.runs.iter().filter_map(|run| Some(run.process()?.holder)).collect();
        let mut survey = Survey { holders, ..Survey::default() };
        let mut dead: HashMap<WorkerId, WorkerRecord> = HashMap::new();
        let mut alive: HashSet<WorkerId> = HashSet::new();
        for worker in found.workers.into_iter().filter(|worker| !self.is_own(&worker.id)) {
            // The watch begins before the check: so the death of a worker after the check is noticed.
            let exit = self.watch_worker(&worker);
            let observation = self.observe(&worker);
            if is_gone(&worker, observation, now) {
                dead.insert(worker.id.clone(), worker);
                continue;
            }
            alive.insert(worker.id.clone());
            let is_here = observation != Observation::OtherHost;
            if let Some(end) = session_ends_at(&worker).filter(|_| !is_here) {
                survey.look_again_at(end);
            }
            let is_visible = is_here && self.leases.probe().shares_pids_with(&worker.origin);
            let is_pool = worker.jobs > 0 && !(is_visible && process::is_stopped(worker.process));
            let is_in_reach = is_visible && process::foreign_user(worker.process).is_none();
            let (id, labels) = (worker.id, worker.labels);
            survey.others.push(OtherWorker { id, is_pool, labels, is_in_reach, exit });
        }
        for run in found.runs {
            match run.worker() {
                Some(worker) if self.is_own(worker) && !self.has_lost_end(&run, now, &mut survey) => {
                    survey.ours.push(run);
                }
                Some(worker) if alive.contains(worker) => survey.theirs.push(run),
                // An executor outside of Lockkeeper: only that executor can end the run.
                Some(_) if run.process().is_none() => {}
                // It is over, and its processes are being ended here.
                None if self.own.is_some_and(|(_, active)| active.contains(&run.id)) => {}
                None if dead.is_empty() && !survey.others.is_empty() && self.may_be_in_cleanup(&run, now) => {
                    self.cleanup_until(&run).into_iter().for_each(|until| survey.look_again_at(until));
                }
                Some(_) | None => {
                    let worker = run.worker().and_then(|id| dead.get(id));
                    if self.is_elsewhere(&run, worker) {
                        self.judge_elsewhere(run, worker, now, &mut survey);
                    } else {
                        self.judge(run, worker, &mut survey);
                    }
                }
            }
        }
        let hidden = survey.out_of_reach.iter().map(|one| &one.run);
        let left = survey.unattended.iter().map(|one| &one.run).chain(hidden);
        let left: HashSet<&WorkerId> = left.filter_map(|run| run.worker()).collect();
        survey.dead_workers = dead.into_keys().filter(|worker| !left.contains(worker)).collect();
        Ok(survey)
    }

    /// Judges a run whose worker is dead.
    fn judge(&self, run: Run, worker: Option<&WorkerRecord>, survey: &mut Survey) {
        let probe = self.leases.probe();
        let Some(holder) = run.process().map(|process| process.holder) else { return };
        // Without a worker record the run is from an earlier boot, whose start records may be lost: assume it began.
        let may_have_begun =
            worker.is_none_or(|worker| start_records::may_have_begun(self.runs.folder(), &worker.id, &run));
        let is_over = match probe.liveness_file().look(holder) {
            LockState::Held => false,
            LockState::Free => true,
            // The file of liveness locks was replaced. What the worker and its guardian wrote is proof as well.
            LockState::Unreadable => !may_have_begun || end_records::has_ended(self.runs.folder(), holder),
        };
        if is_over {
            let (command, is_alive, is_elsewhere) = (None, false, false);
            survey.unattended.push(UnattendedRun { run, may_have_begun, command, is_alive, is_elsewhere });
            return;
        }
        let end = probe.watch_lock(holder);
        let shares_pids = worker.is_some_and(|one| probe.shares_pids_with(&one.origin));
        let command = command_of(&run, shares_pids);
        let user = command.and_then(process::foreign_user);
        let is_visible =
            user.is_none() && (command.is_some() || !probe.liveness_file().processes(holder).is_empty());
        // It may have ended since the first check.
        if is_visible || probe.liveness_file().look(holder) == LockState::Free {
            let (may_have_begun, is_alive, is_elsewhere) = (true, is_visible, false);
            survey.unattended.push(UnattendedRun { run, may_have_begun, command, is_alive, is_elsewhere });
        } else {
            survey.ends.extend(end);
            if shares_pids && user.is_none() {
                // Its lock may be on the way from the worker to the guardian.
                survey.look_again_at(self.runs.now().moment.after(POLL_INTERVAL));
            }
            survey.out_of_reach.push(OutOfReach { run, user });
        }
    }

    /// Whether a run was executed where this process sees nothing.
    fn is_elsewhere(&self, run: &Run, worker: Option<&WorkerRecord>) -> bool {
        if !self.runs.is_shared() {
            return false;
        }
        match worker {
            Some(worker) => self.observe(worker) == Observation::OtherHost,
            // It is over, or its worker was removed. The number of its liveness lock shows which file the lock is in.
            None => {
                let holder = run.process().map(|process| process.holder);
                holder.is_some_and(|holder| {
                    self.leases.probe().liveness_file().look(holder) == LockState::Unreadable
                })
            }
        }
    }

    /// Judges a run of another machine whose worker is silent or not known.
    fn judge_elsewhere(&self, run: Run, worker: Option<&WorkerRecord>, now: Moment, survey: &mut Survey) {
        let session = self.runs.session().unwrap_or_default();
        // A worker that is not known has claimed the run after it was removed, or the run is over and its worker ends its
        // processes.
        let since = run.completed_at().or(run.started_at()).map_or(now, |at| at.moment);
        let until = since.after(session + self.grace + CLEANUP_TIME);
        if worker.is_none() && now < until {
            survey.look_again_at(until);
            return;
        }
        let (may_have_begun, command, is_alive, is_elsewhere) = (true, None, false, true);
        survey.unattended.push(UnattendedRun { run, may_have_begun, command, is_alive, is_elsewhere });
    }

    /// Whether the worker of this process has ended a run, and the store has lost that: it was restored from a backup. Then the run is
    /// unattended. A claim that is not executed for longer than a session is checked again before it is.
    fn has_lost_end(&self, run: &Run, now: Moment, survey: &mut Survey) -> bool {
        let session = self.leases.probe().origin().session.filter(|_| self.runs.is_shared());
        let is_active = self.own.is_some_and(|(_, active)| active.contains(&run.id));
        let Some((session, claimed_at)) = session.zip(run.started_at()).filter(|_| !is_active) else {
            return false;
        };
        let until = claimed_at.moment.after(session.get());
        if now <= until {
            survey.look_again_at(until);
        }
        until < now
    }

    fn is_own(&self, worker: &WorkerId) -> bool {
        self.own.is_some_and(|(own, _)| own == worker)
    }

    /// Another worker may still be killing the processes of an ended run. Wait that long before taking it over.
    fn may_be_in_cleanup(&self, run: &Run, now: Moment) -> bool {
        self.cleanup_until(run).is_some_and(|until| now < until)
    }

    fn cleanup_until(&self, run: &Run) -> Option<Moment> {
        run.completed_at().map(|at| at.moment.after(self.grace + CLEANUP_TIME))
    }

    /// A descriptor that becomes readable once another worker has ended.
    fn watch_worker(&self, worker: &WorkerRecord) -> Option<Arc<OwnedFd>> {
        let probe = self.leases.probe();
        if !self.runs.has_files_of(worker) {
            return None;
        }
        if probe.shares_pids_with(&worker.origin)
            && let Watch::Exit(exit) = process::watch(worker.process)
        {
            return Some(exit);
        }
        // Process numbers of another pid namespace mean nothing here, but its liveness lock does.
        if worker.origin.boot == probe.origin().boot { probe.watch_lock(worker.holder) } else { None }
    }

    fn observe(&self, worker: &WorkerRecord) -> Observation {
        self.runs.observe(worker, Some(self.leases.probe().liveness_file()))
    }
}

/// The user of the command of a run, if this process may not signal it.
fn foreign_command(run: &Run) -> Option<u32> {
    run.process().and_then(|process| process.command).and_then(process::foreign_user)
}

/// The live process of the command of a run: the recorded one where its number means something here, or else the one that
/// carries the mark of the run.
fn command_of(run: &Run, shares_pids: bool) -> Option<ProcessRef> {
    let recorded = run.process().and_then(|process| process.command).filter(|_| shares_pids);
    recorded
        .filter(|command| !matches!(process::watch(*command), Watch::Gone))
        .or_else(|| tree::marked_leader(&process_mark(&run.id)))
}
