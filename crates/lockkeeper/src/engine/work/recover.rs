//! Runs whose worker is gone: looked after where their command lives, ended honestly where it does not.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::liveness::LockState;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::{self, Lost, Seen};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::command::mark;
use super::conclude::Done;
use super::output::rescue;
use super::{Ask, Control, Executor, Told, locked};
use crate::engine::runs::notes::Noted;
use crate::engine::runs::{RunError, advance};
use crate::exec::Ending;
use crate::platform::process::Watch;
use crate::platform::{clock, poll, process, tree};
use crate::store::runs::Worker;

/// Whoever ends the processes of a run that is over takes its grace and so long at most.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait before the store is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Another worker, and how to be told of its end.
pub(super) struct Other {
    pub(super) worker: Worker,
    pub(super) exit: Option<Arc<OwnedFd>>,
}

/// What a look at all that lives showed.
#[derive(Default)]
pub(super) struct Surroundings {
    /// Other workers that live.
    pub(super) others: Vec<Other>,
    /// Runs that other live workers execute.
    pub(super) theirs: Vec<Run>,
    /// Runs that nobody looks after.
    pub(super) abandoned: Vec<Run>,
    /// Runs that are executed here.
    pub(super) ours: Vec<Run>,
    /// When something may be abandoned that is not yet.
    pub(super) look_again: Option<Moment>,
}

impl Executor {
    /// Looks who works on what, and puts away workers that are gone and left nothing.
    pub(super) fn look_around(&self) -> Result<Surroundings, RunError> {
        let (workers, living) = self.runs.store().read(|tables| Ok((tables.workers()?, tables.living()?)))?;
        let mut around = Surroundings::default();
        let mut dead: HashSet<WorkerId> = HashSet::new();
        let mut alive: HashSet<WorkerId> = HashSet::new();
        for worker in workers {
            if worker.id == self.worker.id {
                continue;
            }
            // Watched before the look: whoever dies after it is told of.
            let exit = self.watch_worker(&worker);
            if self.is_gone(&worker) {
                dead.insert(worker.id);
                continue;
            }
            alive.insert(worker.id.clone());
            around.others.push(Other { worker, exit });
        }
        let here = locked(&self.controls);
        for run in living {
            match &run.worker {
                Some(worker) if *worker == self.worker.id => around.ours.push(run),
                Some(worker) if alive.contains(worker) => around.theirs.push(run),
                // An executor outside of Lockkeeper: only it knows.
                Some(_) if run.process.is_none() => {}
                // It is over, and its processes are being ended here.
                None if here.contains_key(&run.id) => {}
                None if dead.is_empty() && !around.others.is_empty() && self.may_be_watched(&run) => {
                    let until = self.watched_until(&run);
                    around.look_again = [around.look_again, until].into_iter().flatten().min();
                }
                Some(_) | None => around.abandoned.push(run),
            }
        }
        drop(here);
        let left: HashSet<&WorkerId> =
            around.abandoned.iter().filter_map(|run| run.worker.as_ref()).collect();
        for worker in dead.iter().filter(|worker| !left.contains(worker)) {
            self.runs.store().remove_ahead_file(worker)?;
            self.runs.store().note(|tables| tables.remove_worker(worker))?;
            super::heart::forget(&self.runs, worker);
            super::hand::forget(&self.runs, worker);
        }
        Ok(around)
    }

    /// Looks after those runs that nobody looks after, each on a thread of its own that ends with the run.
    pub fn adopt_abandoned(
        self: &Arc<Self>,
        wanted: impl Fn(&Run) -> bool,
    ) -> Result<Vec<(RunId, JoinHandle<()>)>, RunError> {
        let mut adopted = Vec::new();
        for run in self.look_around()?.abandoned.into_iter().filter(wanted) {
            adopted.extend(self.adopt(&run, false, || {})?.map(|thread| (run.id, thread)));
        }
        Ok(adopted)
    }

    /// A run that is over without being settled may be in the hands of any other worker, which ends its processes.
    fn may_be_watched(&self, run: &Run) -> bool {
        self.watched_until(run).is_some_and(|until| clock::now() < until)
    }

    fn watched_until(&self, run: &Run) -> Option<Moment> {
        run.completed_at.map(|at| at.moment.after(self.settings.grace + SETTLED_WITHIN))
    }

    /// Something that can be read once another worker is gone.
    fn watch_worker(&self, worker: &Worker) -> Option<Arc<OwnedFd>> {
        let probe = self.leases.probe();
        if probe.shares_pids_with(&worker.origin)
            && let Watch::Exit(exit) = process::watch(worker.process)
        {
            return Some(exit);
        }
        // Numbers of another pid namespace mean nothing here, but its kernel lock does.
        if worker.origin.boot == probe.origin().boot { probe.watch_lock(worker.holder) } else { None }
    }

    fn is_gone(&self, worker: &Worker) -> bool {
        let here = self.leases.probe().origin();
        worker.origin.boot == here.boot
            && self.leases.probe().liveness_file().look(worker.holder) == LockState::Free
    }

    /// Looks after a run that nobody looks after; `silent` when its worker lives but was silent for too long. The
    /// thread ends with the run.
    pub(super) fn adopt(
        self: &Arc<Self>,
        run: &Run,
        silent: bool,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Option<JoinHandle<()>>, RunError> {
        if !silent && self.do_as_noted(run)? {
            return Ok(None);
        }
        let taken = self.runs.store().write(|tables| {
            let Some(found) = tables.run(&run.id)?.filter(|found| found.claim == run.claim) else {
                return Ok(None);
            };
            let Some(request) = tables.request(&run.request)? else { return Ok(None) };
            if !found.status.is_active() {
                return Ok(found.process.map(|_| (found, request.request)));
            }
            match life::adopt(&found, run.claim, self.worker.id.clone()) {
                Ok(moved) => Ok(Some((advance(tables, &found, moved)?, request.request))),
                Err(_) => Ok(None),
            }
        })?;
        let before = run;
        let Some((run, request)) = taken else { return Ok(None) };
        self.rescue_log(before);
        self.tell(&Told::Adopted(run.clone()), None);
        let control = self.enter(&run, None).map_err(RunError::Machine)?;
        let executor = Arc::clone(self);
        let work = move || {
            executor.look_after(run, request, silent, &control);
            on_end();
        };
        let spawned = thread::Builder::new().name("adopted".to_owned()).spawn(work);
        spawned.map(Some).map_err(RunError::Machine)
    }

    /// Ends a run as its worker noted it, or gives it back if it had not begun; false when that is not known.
    fn do_as_noted(&self, run: &Run) -> Result<bool, RunError> {
        let free = |holder| self.leases.probe().liveness_file().look(holder) == LockState::Free;
        let noted = match self.runs.noted(run) {
            Some(noted @ (Noted::Waits | Noted::Ended { .. })) => noted,
            Some(Noted::Begun) | None => return Ok(false),
        };
        if !run.process.is_some_and(|process| free(process.holder)) {
            return Ok(false);
        }
        let after = self.runs.end_as_noted(run, noted)?;
        after.iter().for_each(|after| self.put_stage(after));
        match after.filter(|after| !after.was_given_back()) {
            Some(after) if after.waits_for_retry() => self.tell(&Told::Retrying(after), None),
            Some(after) => self.tell(&Told::Ended(after), None),
            None => {}
        }
        Ok(true)
    }

    /// Puts what a command wrote before its worker was gone where it belongs.
    fn rescue_log(&self, run: &Run) {
        let spare = run.worker.as_ref().zip(run.process);
        let spare = spare.and_then(|(worker, process)| self.spare_of(worker, process.holder));
        if let Some(Err(error)) = spare.map(|spare| rescue(&spare, &self.runs.folder_of(&run.id))) {
            self.trouble(format!("cannot keep what {} wrote: {error}", run.id));
        }
    }

    fn look_after(&self, run: Run, request: Request, silent: bool, control: &Control) {
        let found = run.clone();
        let done = if !run.status.is_active() {
            self.end_processes(&run);
            Done::said(run, request)
        } else if silent {
            self.end_processes(&run);
            Done::found(run, request, Seen::Replaced)
        } else {
            match self.unless_broken(&run, || self.see_through(&run, control)) {
                Some(Ok(Some(seen))) => Done::found(run, request, seen),
                Some(Ok(None)) => Done::said(run, request),
                failed => {
                    if let Some(Err(error)) = failed {
                        self.trouble(format!("cannot look after {}: {error}", run.id));
                    }
                    self.end_processes(&run);
                    Done::found(run, request, Seen::Vanished)
                }
            }
        };
        if let Err(error) = self.conclude(done, None) {
            self.trouble(format!("cannot note the end of {}: {error}", found.id));
            self.leave(&found);
        }
    }

    /// Waits until nothing of the run lives. None when its end was said before its processes were ended.
    fn see_through(&self, run: &Run, control: &Control) -> io::Result<Option<Seen>> {
        let Some(process) = run.process else { return Ok(Some(Seen::Vanished)) };
        let life = self.leases.probe().liveness_file();
        let held = life.look(process.holder) == LockState::Held;
        // A command that nobody had the time to write down is found by its mark.
        let command = process.command.or_else(|| held.then(|| tree::marked_leader(&mark(run))).flatten());
        let exit = match command.map(process::watch) {
            Some(Watch::Exit(exit)) => Some(exit),
            Some(Watch::Unavailable) if held => None,
            Some(Watch::Gone | Watch::Unavailable) | None => {
                // How it ended was seen by nobody. What it left behind is ended with it.
                self.end_processes(run);
                return Ok(Some(Seen::Vanished));
            }
        };
        loop {
            match control.asked() {
                Ask::Nothing => {}
                Ask::Cancel => {
                    self.end_processes(run);
                    return Ok(Some(Seen::Stopped(None)));
                }
                Ask::Over => {
                    self.end_processes(run);
                    return Ok(None);
                }
                Ask::LetGo => return Ok(None),
            }
            let ended = match &exit {
                Some(exit) => poll::wait(&[exit.as_fd()], Some(Duration::ZERO))?.any(),
                None => life.look(process.holder) != LockState::Held,
            };
            if ended {
                let status = exit.as_ref().zip(command).and_then(|(exit, command)| {
                    process::exit_status(exit, command)
                        .map(|status| Seen::Ended(Ending::from_wait(status).into()))
                });
                self.end_processes(run);
                return Ok(Some(status.unwrap_or(Seen::Vanished)));
            }
            if run.times_out_at().is_some_and(|at| at <= clock::now()) && self.time_out(run) {
                self.end_processes(run);
                return Ok(None);
            }
            let sentry = if exit.is_none() { self.leases.probe().watch_lock(process.holder) } else { None };
            let mut descriptors: Vec<BorrowedFd<'_>> = vec![control.as_fd()];
            descriptors.extend(exit.as_ref().map(AsFd::as_fd));
            descriptors.extend(sentry.as_ref().map(|sentry| sentry.as_fd()));
            // A store that could not be written when the time was up is not asked all the time.
            let limit = run.times_out_at().map(|at| at.since(clock::now()).max(AGAIN));
            poll::wait(&descriptors, limit)?;
        }
    }

    fn time_out(&self, run: &Run) -> bool {
        let moved = self.runs.change(&run.id, |found, tables| {
            if found.claim != run.claim {
                return Err(Lost::Claim { given: run.claim, current: found.claim });
            }
            life::time_out(found, tables.now()).ok_or(Lost::NotDue)
        });
        moved.is_ok()
    }

    /// Tells those who execute a run here that it was called off, or that somebody else has it.
    pub(super) fn pass_on(&self, ours: &[Run]) -> Result<(), RunError> {
        let here: Vec<_> =
            locked(&self.controls).iter().map(|(id, control)| (id.clone(), Arc::clone(control))).collect();
        for (id, control) in here {
            match ours.iter().find(|run| run.id == id) {
                Some(run) if run.status == Status::Cancelling => {
                    control.ask(Ask::Cancel);
                }
                Some(_) => {}
                // It may just have been taken or be over: only the record tells.
                None => match self.runs.store().read(|tables| tables.run(&id))? {
                    Some(run) if run.claim != control.claim => control.ask(Ask::LetGo),
                    Some(run) if run.status.is_terminal() => control.ask(Ask::Over),
                    Some(_) | None => {}
                },
            }
        }
        Ok(())
    }
}
