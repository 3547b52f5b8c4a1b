//! Runs whose worker is gone: looked after where their command lives, ended honestly where it does not.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::LockSight;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::{self, Lost, Seen};
use lockkeeper_core::run::{Run, Status};

use super::execute::Done;
use super::{Ask, Control, Executor, Told, locked};
use crate::engine::runs::{RunError, advance};
use crate::exec::Ending;
use crate::platform::process::Watch;
use crate::platform::{clock, poll, process};
use crate::store::runs::Worker;

/// Another worker, and how to be told of its end.
pub(super) struct Other {
    pub(super) worker: Worker,
    pub(super) exit: Option<OwnedFd>,
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
            if self.is_gone(&worker) {
                dead.insert(worker.id);
                continue;
            }
            alive.insert(worker.id.clone());
            let exit = match process::watch(worker.process) {
                Watch::Exit(exit) => Some(exit),
                Watch::Gone | Watch::Unavailable => None,
            };
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
                None if self.is_watched(&run, &around.others) => {}
                Some(_) | None => around.abandoned.push(run),
            }
        }
        drop(here);
        let left: HashSet<&WorkerId> =
            around.abandoned.iter().filter_map(|run| run.worker.as_ref()).collect();
        for worker in dead.iter().filter(|worker| !left.contains(worker)) {
            self.runs.store().note(|tables| tables.remove_worker(worker))?;
            super::heart::forget(&self.runs, worker);
        }
        Ok(around)
    }

    /// A run that is over without being settled may be in the hands of any other worker, which ends its processes.
    fn is_watched(&self, run: &Run, others: &[Other]) -> bool {
        let grace = self.settings.grace * 2;
        let over = run.completed_at.map(|at| clock::now().since(at.moment));
        !others.is_empty() && over.is_some_and(|span| span < grace)
    }

    fn is_gone(&self, worker: &Worker) -> bool {
        let here = self.leases.senses().origin();
        worker.origin.boot == here.boot && self.leases.senses().life().look(worker.holder) == LockSight::Free
    }

    /// Looks after a run that nobody looks after; `silent` when its worker lives but was silent for too long. The
    /// thread ends with the run.
    pub(super) fn adopt(
        self: &Arc<Self>,
        run: &Run,
        silent: bool,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Option<JoinHandle<()>>, RunError> {
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
        let Some((run, request)) = taken else { return Ok(None) };
        self.tell(&Told::Adopted(run.clone()), None);
        let control = self.enter(&run.id).map_err(RunError::Machine)?;
        let executor = Arc::clone(self);
        let work = move || {
            executor.look_after(run, request, silent, &control);
            on_end();
        };
        let spawned = thread::Builder::new().name("adopted".to_owned()).spawn(work);
        spawned.map(Some).map_err(RunError::Machine)
    }

    fn look_after(&self, run: Run, request: Request, silent: bool, control: &Control) {
        let id = run.id.clone();
        let done = if !run.status.is_active() {
            self.end_processes(&run);
            Done::said(run, request)
        } else if silent {
            self.end_processes(&run);
            Done::found(run, request, Seen::Replaced)
        } else {
            match self.see_through(&run, control) {
                Ok(Some(seen)) => Done::found(run, request, seen),
                Ok(None) => Done::said(run, request),
                Err(error) => {
                    self.trouble(format!("cannot look after {}: {error}", run.id));
                    self.end_processes(&run);
                    Done::found(run, request, Seen::Vanished)
                }
            }
        };
        if let Err(error) = self.conclude(done, None) {
            self.trouble(format!("cannot note the end of {id}: {error}"));
        }
        self.leave(&id);
    }

    /// Waits until nothing of the run lives. None when its end was said before its processes were ended.
    fn see_through(&self, run: &Run, control: &Control) -> io::Result<Option<Seen>> {
        let Some(process) = run.process else { return Ok(Some(Seen::Vanished)) };
        let life = self.leases.senses().life();
        // Opened before the look: if it is alive then, its end can be told afterwards.
        let exit = process.command.map(process::watch);
        let exit = match exit {
            Some(Watch::Exit(exit)) => Some(exit),
            Some(Watch::Gone | Watch::Unavailable) | None => None,
        };
        while life.look(process.holder) == LockSight::Held {
            match control.asked() {
                Ask::Nothing => {}
                Ask::Cancel => {
                    self.end_processes(run);
                    return Ok(Some(Seen::Stopped(None)));
                }
                Ask::LetGo => return Ok(None),
            }
            // The command itself may be over while something that it left runs on.
            if let Some(ending) = exit.as_ref().and_then(process::exit_status) {
                self.end_processes(run);
                return Ok(Some(Seen::Ended(Ending::from_wait(ending).into())));
            }
            if run.times_out_at().is_some_and(|at| at <= clock::now()) && self.time_out(run) {
                self.end_processes(run);
                return Ok(None);
            }
            let sentry = self.leases.senses().sentry(process.holder);
            let mut descriptors: Vec<BorrowedFd<'_>> = vec![control.as_fd()];
            descriptors.extend(exit.as_ref().map(AsFd::as_fd));
            descriptors.extend(sentry.as_ref().map(|sentry| sentry.as_fd()));
            let limit = run.times_out_at().map(|at| at.since(clock::now()));
            poll::wait(&descriptors, limit)?;
        }
        let ending = exit.as_ref().and_then(process::exit_status);
        Ok(Some(ending.map_or(Seen::Vanished, |ending| Seen::Ended(Ending::from_wait(ending).into()))))
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
                None => {
                    let found = self.runs.store().read(|tables| tables.run(&id))?;
                    let taken =
                        found.and_then(|run| run.worker).is_some_and(|worker| worker != self.worker.id);
                    if taken {
                        control.ask(Ask::LetGo);
                    }
                }
            }
        }
        Ok(())
    }
}
