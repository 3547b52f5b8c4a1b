//! The command of one run, from its start to its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{LockSight, ProcessRef};
use lockkeeper_core::record::Lease;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::{self, Lost, Seen};
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::command::{mark, why_not_started};
use super::files::LockFiles;
use super::output::Output;
use super::take::{Line, with_request};
use super::{Ask, Control, Executor, Job, Told};
use crate::engine::runs::{RunError, advance, terms};
use crate::exec::{Ending, Event, Next, Running, start};
use crate::platform::tree::{self, Root, Stop, stop_tree};
use crate::platform::{clock, process};
use crate::store::runs::Tables;
use crate::store::{Bell, StoreError};

/// A command that takes longer stays: only then is it noted which process it is.
const SOON: Duration = Duration::from_millis(20);
/// How long to wait before the store is tried again that could not be written.
const STORE_PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// A run whose command is over, and what was seen of that.
#[derive(Debug)]
pub struct Done {
    run: Run,
    request: Request,
    lease: Option<Lease>,
    files: LockFiles,
    end: End,
}

impl Done {
    /// The run as it was when it was taken.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// A run that was found, and what was seen of it.
    pub(super) fn found(run: Run, request: Request, seen: Seen) -> Self {
        Self { run, request, lease: None, files: LockFiles::default(), end: End::Seen(seen) }
    }

    /// A run that was said to be over before its processes were ended.
    pub(super) fn said(run: Run, request: Request) -> Self {
        Self { run, request, lease: None, files: LockFiles::default(), end: End::Said }
    }
}

#[derive(Debug)]
enum End {
    /// To be said.
    Seen(Seen),
    /// It was said before the command was ended.
    Said,
    /// Somebody else has the run.
    NotOurs,
}

impl Executor {
    /// Executes the command of a run that was taken, and waits for its end.
    pub fn execute(&self, job: Job) -> Done {
        let end = match self.enter(&job.run) {
            Ok(control) => {
                self.unless_broken(&job.run, || self.attempt(&job, &control)).unwrap_or_else(|| {
                    self.end_processes(&job.run);
                    End::Seen(Seen::Vanished)
                })
            }
            Err(error) => End::Seen(Seen::NotStarted(126, format!("cannot supervise it: {error}"))),
        };
        let Job { run, request, life, lease, files } = job;
        let holder = life.holder();
        // From here on only what the command left running can have the kernel lock.
        drop(life);
        self.end_leftovers(&run, holder);
        Done { run, request, lease, files, end }
    }

    /// Says how a run ended, gives back what it held, and takes the next one in the same transaction if it may.
    ///
    /// A store that cannot be written is tried again for as long as it takes: what was seen is known to nobody else.
    pub fn conclude(&self, done: Done, line: Option<&mut Line>) -> Result<Option<Job>, RunError> {
        let mut line = line;
        let life = line.as_deref_mut().and_then(|line| match self.next_life(line) {
            Ok(life) => Some(life),
            Err(error) => {
                // The end has to be said in any case; the next run can wait.
                self.trouble(format!("cannot take another run: {error}"));
                None
            }
        });
        let mut again = false;
        let (ended, next) = self.insist(&format!("note the end of {}", done.run.id), || {
            // What failed before may have been only that the disk was not told.
            let claimed_before = std::mem::replace(&mut again, true);
            self.runs.store().write(|tables| {
                let ended = self.say_end(tables, &done)?;
                let Some(life) = life else { return Ok((ended, None)) };
                let known = if claimed_before { tables.run_of_holder(life.holder())? } else { None };
                let next = match known {
                    Some(run) => with_request(tables, Some(run))?,
                    None => self.claim_first(tables, life)?,
                };
                Ok((ended, next))
            })
        });
        self.give_back(&done);
        if let Err(error) = done.files.release() {
            self.trouble(format!("cannot release the lock files of {}: {error}", done.run.id));
        }
        self.leave(&done.run);
        match ended {
            Some(run) => {
                self.write_stage(&run, done.lease.as_ref());
                let waits = run.waits_for_retry();
                let told = if waits { Told::Retrying(run) } else { Told::Ended(run) };
                self.tell(&told, Some(&done.request));
            }
            None => self.tell(&Told::Superseded(done.run), None),
        }
        Ok(next.map(|(run, request)| {
            let life = line.and_then(Line::take_life).expect("it was made for this run");
            Job { run, request, life, lease: None, files: LockFiles::default() }
        }))
    }

    /// Does something to the store until it works: what is not written now is known to nobody else.
    pub(super) fn insist<T>(&self, what: &str, mut act: impl FnMut() -> Result<T, StoreError>) -> T {
        let mut pauses = STORE_PAUSES.iter();
        loop {
            match act() {
                Ok(done) => return done,
                Err(error) => {
                    self.trouble(format!("cannot {what}: {error}; trying again"));
                    thread::sleep(*pauses.next().unwrap_or(&STORE_PAUSES[3]));
                }
            }
        }
    }

    /// None when somebody else has the run by now.
    fn say_end(&self, tables: &Tables<'_>, done: &Done) -> Result<Option<Run>, StoreError> {
        let claim = done.run.claim;
        let Some(run) = tables.run(&done.run.id)?.filter(|run| run.claim == claim) else {
            return Ok(None);
        };
        match &done.end {
            End::NotOurs => Ok(None),
            // It was said before, and only the disk was not told.
            End::Seen(_) if run.waits_for_retry() => Ok(Some(run)),
            End::Said => {
                let settled = life::settle(&run);
                tables.settle(&run, &settled)?;
                Ok(Some(settled))
            }
            End::Seen(seen) => {
                // A worker that was told to stop ends its commands even when nobody called them off.
                let run = match seen {
                    Seen::Stopped(_) if run.status == Status::Running => {
                        match life::cancel(&run, tables.now(), Some("the worker was stopped".to_owned())) {
                            Ok(moved) => advance(tables, &run, moved)?,
                            Err(_) => run,
                        }
                    }
                    _ => run,
                };
                match life::finish(&run, claim, seen.clone(), terms(&done.request), tables.now()) {
                    Ok(moved) => advance(tables, &run, moved).map(Some),
                    // Its time was up in the same moment: that was said already.
                    Err(Lost::Status(_)) => {
                        let settled = life::settle(&run);
                        tables.settle(&run, &settled)?;
                        Ok(Some(settled))
                    }
                    Err(Lost::Claim { .. } | Lost::NotDue | Lost::Nobody) => Ok(None),
                }
            }
        }
    }

    /// What could not be ended keeps the lease, by the kernel lock that it shares.
    fn give_back(&self, done: &Done) {
        let Some((lease, token)) = done.run.lease else { return };
        if done.run.process.is_some_and(|process| !self.others_of(process.holder).is_empty()) {
            return;
        }
        // The end of its processes frees it all the same.
        if let Err(error) = self.leases.release(lease, Some(token)) {
            self.trouble(format!("cannot release the lease of {}: {error}", done.run.id));
        }
    }

    fn attempt(&self, job: &Job, control: &Control) -> End {
        let folder = self.runs.folder_of(&job.run.id);
        let prepared = Output::open(&folder, job.run.attempt, self.settings.output_limit)
            .and_then(|output| Ok((self.spec(job, &output)?, output)));
        let (spec, output) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let why = format!("cannot write to {}: {error}", folder.path().display());
                return End::Seen(Seen::NotStarted(126, why));
            }
        };
        if !self.is_still_ours(&job.run) {
            return End::NotOurs;
        }
        let running = match start(&spec, Some(&job.life)) {
            Ok(running) => running,
            Err(error) => {
                let why = why_not_started(&error, &job.request.dir);
                return End::Seen(Seen::NotStarted(error.exit_code(), why));
            }
        };
        drop(spec);
        self.tell(&Told::Started(job.run.clone()), Some(&job.request));
        match self.supervise(job, running, output, control) {
            Ok(end) => end,
            Err(error) => {
                self.trouble(format!("cannot supervise {}: {error}", job.run.id));
                self.end_processes(&job.run);
                End::Seen(Seen::Vanished)
            }
        }
    }

    /// A worker that was frozen between the claim and the start may have been replaced: it asks before it starts.
    fn is_still_ours(&self, run: &Run) -> bool {
        let since = run.started_at.map(|at| clock::now().since(at.moment));
        if since.is_none_or(|since| since < self.settings.heartbeat) {
            return true;
        }
        self.insist(&format!("see whose {} is", run.id), || {
            self.runs.store().read(|tables| {
                Ok(tables
                    .run(&run.id)?
                    .is_some_and(|found| found.claim == run.claim && found.status.is_active()))
            })
        })
    }

    fn supervise(
        &self,
        job: &Job,
        mut running: Running,
        mut output: Output,
        control: &Control,
    ) -> io::Result<End> {
        let soon = clock::now().after(SOON);
        let soon = job.run.times_out_at().map_or(soon, |at| at.min(soon));
        if let Some(ending) = running.supervise_until(soon)? {
            output.finish();
            return Ok(End::Seen(Seen::Ended(ending.into())));
        }
        if let Ok(command) = running.process() {
            let noted = self.runs.store().note(|tables| {
                let Some(run) = tables.run(&job.run.id)? else { return Ok(()) };
                match life::started(&run, job.run.claim, command) {
                    Ok(moved) => advance(tables, &run, moved).map(|_| ()),
                    Err(_) => Ok(()),
                }
            });
            if let Err(error) = noted {
                self.trouble(format!("cannot note the process of {}: {error}", job.run.id));
            }
        }
        self.write_stage(&job.run, job.lease.as_ref());
        let bell = job.lease.as_ref().and_then(|lease| lease.bell());
        let bell = bell.and_then(|bell| self.leases.store().bell_with_id(bell).ok());
        let mut watch = Watch {
            executor: self,
            job,
            control,
            bell: bell.as_deref(),
            output,
            looked_at: clock::now(),
            look_at: clock::now().after(SOON),
            not_before: None,
            stopped: None,
        };
        let mut extra: Vec<BorrowedFd<'_>> = vec![control.as_fd()];
        extra.extend(bell.as_ref().map(|bell| bell.as_fd()));
        let mark = mark(&job.run);
        let ending = running.supervise_marked(&extra, Some(&mark), &mut |event| watch.on_event(event))?;
        Ok(watch.end(ending))
    }

    /// Ends what the command left running. What has the kernel lock is alive; those that closed it are found among
    /// the orphans that this process took in.
    fn end_leftovers(&self, run: &Run, holder: HolderId) {
        let mark = mark(run);
        let left = process::reap_orphans().into_iter().any(|orphan| tree::carries(orphan, &mark));
        if left || self.leases.senses().life().look(holder) == LockSight::Held {
            self.end_processes(run);
            process::reap_orphans();
        }
    }

    /// Ends every process that carries the run's mark, and those that share its kernel lock without the mark.
    pub(super) fn end_processes(&self, run: &Run) {
        let mark = mark(run);
        self.end_tree(run, Root::Marked, Some(&mark));
        let Some(process) = run.process else { return };
        for one in self.others_of(process.holder) {
            self.end_tree(run, Root::Process(one), None);
        }
    }

    fn end_tree(&self, run: &Run, root: Root, mark: Option<&str>) {
        match stop_tree(&Stop { root, grace: self.settings.grace, mark }) {
            Ok(left) if left.is_empty() => {}
            Ok(left) => self.trouble(format!("{} processes of {} could not be ended", left.len(), run.id)),
            Err(error) => self.trouble(format!("cannot end the processes of {}: {error}", run.id)),
        }
    }

    /// The processes that share a run's kernel lock, without workers: they hold it before the command begins.
    fn others_of(&self, holder: HolderId) -> Vec<ProcessRef> {
        let life = self.leases.senses().life();
        if life.look(holder) != LockSight::Held {
            return Vec::new();
        }
        let workers = self.runs.store().read(|tables| tables.workers()).unwrap_or_default();
        let is_worker = |process: &ProcessRef| workers.iter().any(|worker| worker.process == *process);
        life.processes(holder).into_iter().filter(|process| !is_worker(process)).collect()
    }

    /// None when this program itself failed on the way: that costs one run, and neither a hand nor the others' runs.
    pub(super) fn unless_broken<T>(&self, run: &Run, act: impl FnOnce() -> T) -> Option<T> {
        let done = panic::catch_unwind(AssertUnwindSafe(act)).ok();
        if done.is_none() {
            self.trouble(format!("{} was given up because of a bug of this program", run.id));
        }
        done
    }

    pub(super) fn trouble(&self, what: String) {
        self.tell(&Told::Trouble(what), None);
    }
}

/// Keeps an eye on everything that may end a command before it ends by itself.
struct Watch<'w> {
    executor: &'w Executor,
    job: &'w Job,
    control: &'w Control,
    bell: Option<&'w dyn Bell>,
    output: Output,
    looked_at: Moment,
    look_at: Moment,
    /// When the store is asked again that could not be written.
    not_before: Option<Moment>,
    stopped: Option<Stopped>,
}

/// Why a command was ended.
enum Stopped {
    Canceled,
    TimedOut,
    Over,
    LetGo,
    LeaseLost,
}

impl Watch<'_> {
    fn on_event(&mut self, event: Event) -> Next {
        let now = clock::now();
        let stop = match event {
            Event::Started => None,
            Event::Ready(0) => self.asked(),
            Event::Ready(_) => self.lease_lost(),
            Event::Deadline => self.time_is_up(now),
        };
        if let Some(stop) = stop {
            self.stopped = Some(stop);
            return Next::Stop(self.executor.settings.grace);
        }
        if self.look_at <= now {
            let elapsed = now.since(self.looked_at);
            let pause = self.output.look(elapsed).unwrap_or(Duration::from_secs(5));
            (self.looked_at, self.look_at) = (now, now.after(pause));
        }
        if !self.job.files.beat(now) {
            self.stopped = Some(Stopped::LeaseLost);
            return Next::Stop(self.executor.settings.grace);
        }
        let times_out_at = self.job.run.times_out_at().max(self.not_before);
        Next::WaitUntil(times_out_at.map_or(self.look_at, |at| at.min(self.look_at)))
    }

    fn asked(&self) -> Option<Stopped> {
        match self.control.asked() {
            Ask::Nothing => None,
            Ask::Cancel => Some(Stopped::Canceled),
            Ask::Over => Some(Stopped::Over),
            Ask::LetGo => Some(Stopped::LetGo),
        }
    }

    fn lease_lost(&self) -> Option<Stopped> {
        if let Some(bell) = self.bell {
            bell.quiet();
        }
        let lease = self.job.lease.as_ref()?;
        // A store that cannot be read says nothing about the lease.
        self.executor.leases.loss(lease.id, lease.token).ok().flatten().map(|_| Stopped::LeaseLost)
    }

    /// The run is moved before any signal is sent: from then on it can end in no other way.
    fn time_is_up(&mut self, now: Moment) -> Option<Stopped> {
        if self.job.run.times_out_at().is_none_or(|at| at > now) {
            return None;
        }
        let claim = self.job.run.claim;
        let moved = self.executor.runs.change(&self.job.run.id, |run, tables| {
            if run.claim != claim {
                return Err(Lost::Claim { given: claim, current: run.claim });
            }
            life::time_out(run, tables.now()).ok_or(Lost::NotDue)
        });
        match moved {
            Ok(_) => Some(Stopped::TimedOut),
            Err(RunError::Lost { source: Lost::Claim { .. }, .. }) => Some(Stopped::LetGo),
            Err(RunError::Lost { current: Status::Cancelling, .. }) => Some(Stopped::Canceled),
            Err(RunError::Lost { current, .. }) if current.is_terminal() => Some(Stopped::Over),
            Err(_) => {
                self.not_before = Some(now.after(STORE_PAUSES[1]));
                None
            }
        }
    }

    fn end(mut self, ending: Ending) -> End {
        self.output.finish();
        let ending = ending.into();
        match self.stopped {
            None => End::Seen(Seen::Ended(ending)),
            Some(Stopped::Canceled) => End::Seen(Seen::Stopped(Some(ending))),
            Some(Stopped::LeaseLost) => End::Seen(Seen::LeaseLost(Some(ending))),
            Some(Stopped::TimedOut | Stopped::Over) => End::Said,
            Some(Stopped::LetGo) => End::NotOurs,
        }
    }
}
