//! The command of one run, from its start to its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::liveness::{LockSight, ProcessRef};
use lockkeeper_core::run::life::{self, Lost, Seen};
use lockkeeper_core::run::{Run, Stamp, Status};
use lockkeeper_core::time::Moment;

use super::batch::SHORT;
use super::command::{mark, why_not_started};
use super::conclude::{Done, End, STORE_PAUSES};
use super::hand::Hand;
use super::output::Output;
use super::scribe::Scribe;
use super::{Ask, Control, Executor, Job, Pipe, Told};
use crate::runs::notes::Noted;
use crate::runs::{RunError, advance};
use lockkeeper_platform::exec::{
    Ending, Event, Next, Running, between_starts, is_command_of_another, start_cached,
};
use lockkeeper_platform::tree::{self, Root, Stop, stop_tree};
use lockkeeper_platform::{clock, process};
use lockkeeper_store::Bell;
use lockkeeper_store::runs::now;

/// A command that takes longer stays: only then is it noted which process it is.
const SOON: Duration = Duration::from_millis(20);
/// So long after each other a kernel lock is looked at while others may start.
const PAUSES: [Duration; 3] =
    [Duration::from_micros(200), Duration::from_micros(500), Duration::from_millis(1)];
/// So often it is looked at, so long after each other, while nobody starts, before it counts as shared.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_micros(250);

impl Executor {
    /// Executes the command of a run that was taken, and waits for its end.
    pub fn execute(&self, job: Job) -> Done {
        let mut hand = Hand::default();
        let done = self.execute_with(job, &mut hand, None);
        self.catch_up(&mut hand, &done.run, &done.request);
        done
    }

    /// The same, with what a hand keeps from one run to the next, and with whoever knows what may begin at once.
    pub(super) fn execute_with(&self, job: Job, hand: &mut Hand, scribe: Option<&Scribe>) -> Done {
        let mut job = job;
        (hand.started, hand.began_at) = (None, None);
        if hand.pipe.is_none() {
            hand.pipe = Pipe::new().ok().map(Arc::new);
        }
        let end = match self.enter(&job.run, hand.pipe.as_ref()) {
            Ok(control) => {
                let attempted =
                    self.unless_broken(&job.run.clone(), || self.attempt(&mut job, &control, hand, scribe));
                attempted.unwrap_or_else(|| {
                    self.end_processes(&job.run);
                    End::Seen(Seen::Vanished)
                })
            }
            Err(error) => End::Seen(Seen::NotStarted(126, format!("cannot supervise it: {error}"))),
        };
        let ended_at = now();
        let Job { run, request, life, lease, files } = job;
        // From here on only what the command left running can have the kernel lock.
        drop(life);
        if let Some(process) = run.process {
            self.end_leftovers(&run, process.holder);
            self.note_end(process.holder, &end, ended_at, hand);
        }
        Done { run, request, lease, files, end, ended_at }
    }

    /// Counts what was executed, and notes how it ended for those who find it if this process is killed.
    fn note_end(&self, holder: HolderId, end: &End, ended_at: Stamp, hand: &mut Hand) {
        let Some(began_at) = hand.began_at else { return };
        hand.batch.count(ended_at.moment.since(began_at.moment));
        if let End::Seen(Seen::Ended(ending)) = end {
            // Without the note it would be one of which nobody saw the end.
            let _ = hand.batch.note(holder, Noted::Ended { ending: *ending, began_at, ended_at });
        }
    }

    fn attempt(&self, job: &mut Job, control: &Control, hand: &mut Hand, scribe: Option<&Scribe>) -> End {
        match control.was_asked() {
            Ask::Nothing => {}
            Ask::Cancel => return End::Seen(Seen::Stopped(None)),
            Ask::Over => return End::Said,
            Ask::LetGo => return End::NotOurs,
        }
        let output = match self.open_log(job, hand) {
            Ok(output) => output,
            Err(error) => {
                let folder = self.runs.folder_of(&job.run.id);
                let why = format!("cannot write to {}: {error}", folder.path().display());
                return End::Seen(Seen::NotStarted(126, why));
            }
        };
        if !self.is_still_ours(&job.run) {
            return End::NotOurs;
        }
        if let Err(error) = self.make_ready(job, hand) {
            self.keep_log(&job.run, output, hand);
            self.trouble(format!("cannot begin with {}: {error}", job.run.id));
            return End::NotBegun;
        }
        let spec = self.spec(job, &output);
        let running = match start_cached(&spec, job.life.as_ref(), &mut hand.programs) {
            Ok(running) => running,
            // Somebody has cleared it away: another one is made.
            Err(_) if output.is_gone() => return self.attempt(job, control, hand, scribe),
            Err(error) => {
                self.keep_log(&job.run, output, hand);
                let why = why_not_started(&error, &job.request.dir);
                return End::Seen(Seen::NotStarted(error.exit_code(), why));
            }
        };
        if job.lease.is_none() {
            // The command has it. What is open here, others have as well until they begin.
            job.life = None;
        }
        hand.started = Some(self.tell_start(&job.run));
        match self.supervise(job, running, output, control, hand, scribe) {
            Ok(end) => end,
            Err(error) => {
                self.trouble(format!("cannot supervise {}: {error}", job.run.id));
                self.end_processes(&job.run);
                End::Seen(Seen::Vanished)
            }
        }
    }

    /// Takes the kernel lock that the command will share, and notes that it may begin, if that was not done with the
    /// claim. From here on nobody takes the run for one that has not begun.
    fn make_ready(&self, job: &mut Job, hand: &mut Hand) -> io::Result<()> {
        let began_at = now();
        hand.began_at = Some(began_at);
        let Some(process) = job.run.process else { return Ok(()) };
        if job.life.is_none() {
            job.life = Some(self.leases.senses().life().hold(process.holder)?);
        }
        if hand.batch.note(process.holder, Noted::Begun)? {
            job.run.started_at = Some(began_at);
        }
        Ok(())
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
        hand: &mut Hand,
        scribe: Option<&Scribe>,
    ) -> io::Result<End> {
        let began_at = clock::now();
        let soon = began_at.after(SOON);
        let soon = job.run.times_out_at().map_or(soon, |at| at.min(soon));
        let mut ended = None;
        if let Some(scribe) = scribe.filter(|_| !hand.batch.is_empty()) {
            ended = running.supervise_until(began_at.after(SHORT))?;
            if ended.is_none() {
                self.break_up(hand, scribe);
            }
        }
        if ended.is_none() {
            ended = running.supervise_until(soon)?;
        }
        if let Some(ending) = ended {
            output.finish();
            self.keep_log(&job.run, output, hand);
            return Ok(End::Seen(Seen::Ended(ending.into())));
        }
        // What is named and does not begin soon would be doubted for nothing.
        scribe.into_iter().for_each(Scribe::forget_names);
        self.catch_up(hand, &job.run, &job.request);
        self.note_start(job, running.process().ok());
        if let Err(error) = output.put_in_place() {
            self.trouble(format!("cannot keep what {} writes in its place: {error}", job.run.id));
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

    /// Notes which process a command is that takes long.
    fn note_start(&self, job: &Job, command: Option<ProcessRef>) {
        let Some(command) = command else { return };
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

    /// Ends what the command left running. What has the kernel lock is alive; those that closed it are found among
    /// the orphans that this process took in.
    fn end_leftovers(&self, run: &Run, holder: HolderId) {
        let mark = mark(run);
        let left = process::reap_orphans().into_iter().any(|orphan| tree::has_mark(orphan, &mark));
        if left || self.is_shared(holder) {
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

    /// Whether any process shares a run's kernel lock. Others do so for a moment when they begin: it is looked at again
    /// before anybody is kept from starting, and before anybody is looked for.
    fn is_shared(&self, holder: HolderId) -> bool {
        let look = || self.leases.senses().life().look(holder) == LockSight::Held;
        let stays_held = |pause: Duration| {
            let held = look();
            if held {
                thread::sleep(pause);
            }
            held
        };
        PAUSES.into_iter().all(stays_held)
            && (0..LOOKS).all(|_| {
                let held = between_starts(look);
                if held {
                    thread::sleep(BETWEEN_LOOKS);
                }
                held
            })
    }

    /// The processes that share a run's kernel lock, without workers: they hold it before the command begins.
    pub(super) fn others_of(&self, holder: HolderId) -> Vec<ProcessRef> {
        if !self.is_shared(holder) {
            return Vec::new();
        }
        let sharing = between_starts(|| self.leases.senses().life().processes(holder));
        let workers = self.runs.store().read(|tables| tables.workers()).unwrap_or_default();
        let is_worker = |process: &ProcessRef| workers.iter().any(|worker| worker.process == *process);
        let others = sharing.into_iter().filter(|process| !is_command_of_another(process.pid, holder));
        others.filter(|process| !is_worker(process) && !process::is_before_exec(process.pid)).collect()
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
