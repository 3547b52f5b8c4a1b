//! One pair of hands that executes one run after the other.
//!
//! Whoever finishes says so and claims the next run in one transaction, and does not wait for the disk: the command of
//! the next run begins at once if the disk knows that it may, because the run is named in this worker's file. A power cut
//! then loses at most the word of it, and nobody takes the run for one that has not begun.
//!
//! Runs are named only while commands are short. Anybody may claim them all the same: nobody waits for a hand while
//! another is free.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use lockkeeper_core::id::{HolderId, RunId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};

use super::conclude::{Done, End};
use super::files::LockFiles;
use super::output::{Output, Spare};
use super::scribe::Scribe;
use super::take::{Line, with_request};
use super::tell::News;
use super::{Executor, Job, Pipe, Told};
use crate::clock::WallTime;
use crate::engine::runs::{RunError, Runs};
use crate::exec::Finder;
use crate::platform::life::LifeLock;
use crate::store::StoreError;
use crate::store::runs::Tables;

/// Where spare logs are, in a folder for each worker.
const SPARES: &str = "spare";

/// There are fewer hands than this. They have numbers from 1; 0 is whoever keeps nothing.
pub(super) const HANDS: u64 = 2048;

/// What a hand keeps from one run to the next.
#[derive(Default)]
pub(super) struct Hand {
    /// Only for the kernel lock of the next run: places in line are with whoever looks.
    line: Line,
    /// The log of the next run.
    spare: Option<Spare>,
    /// When the command was started, as long as the status log was not told.
    pub(super) started: Option<WallTime>,
    /// How this hand is reached.
    pub(super) pipe: Option<Arc<Pipe>>,
    /// Where programs are.
    pub(super) programs: Finder,
}

/// What one transaction did.
struct Written {
    ended: Option<Run>,
    next: Option<(Run, Request)>,
    /// Those that come after it.
    names: Vec<RunId>,
}

impl Hand {
    /// One of many, by its number.
    pub(super) fn new(number: u32) -> Self {
        let number = if u64::from(number) < HANDS { number } else { 0 };
        Self { line: Line::of_hand(number), ..Self::default() }
    }
}

impl Executor {
    /// Says how a run ended and takes the next one if it may, which may begin when this returns.
    pub(super) fn go_on(
        &self,
        done: Done,
        hand: &mut Hand,
        may_take: bool,
        scribe: &Scribe,
    ) -> Result<Option<Job>, RunError> {
        if !may_take {
            scribe.forget_names();
        }
        if !matches!(done.end, End::Seen(_)) || done.run.lease.is_some() || !done.files.are_none() {
            // Others get what it held only when its end is on the disk.
            self.catch_up(hand, &done.run, &done.request);
            return self.conclude(done, may_take.then_some(&mut hand.line));
        }
        let may_take = may_take && self.has_life(&mut hand.line);
        let wanted = if may_take { scribe.wants_names() } else { 0 };
        let mut again = false;
        let Written { ended, next, names } = self.insist(&format!("note the end of {}", done.run.id), || {
            let again = std::mem::replace(&mut again, true);
            let life = hand.line.life().filter(|_| may_take);
            self.runs.store().note(|tables| self.write_down(tables, &done, life, again, wanted))
        });
        self.leave(&done.run);
        self.put_stage(ended.as_ref());
        let number = scribe.wrote(news(ended, done, hand.started.take()), next.is_none());
        if wanted > 0 {
            scribe.name(names);
        }
        let Some((run, request)) = next else { return Ok(None) };
        // Whatever happens to the machine from here on, nobody takes the run for one that has not begun.
        if run.attempt > 1 || !scribe.may_begin(&run.id) {
            scribe.wait_for(number);
        }
        let life = hand.line.take_life();
        Ok(Some(Job { run, request, life, lease: None, files: LockFiles::default() }))
    }

    /// Tells the status log of the start that it was not told of.
    pub(super) fn catch_up(&self, hand: &mut Hand, run: &Run, request: &Request) {
        if let Some(at) = hand.started.take() {
            self.log_start(at, run, request);
        }
    }

    /// Makes the kernel lock that the next run needs.
    fn has_life(&self, line: &mut Line) -> bool {
        let made = self.next_life(line).map(|_| ());
        if let Err(error) = &made {
            // The end has to be said in any case; the next run can wait.
            self.trouble(format!("cannot take another run: {error}"));
        }
        made.is_ok()
    }

    /// `again` when it failed before: it may have been only the last step of it.
    fn write_down(
        &self,
        tables: &Tables<'_>,
        done: &Done,
        life: Option<&LifeLock>,
        again: bool,
        wanted: usize,
    ) -> Result<Written, StoreError> {
        let ended = self.say_end(tables, done)?;
        let Some(life) = life else { return Ok(Written { ended, next: None, names: Vec::new() }) };
        let known = if again { tables.run_of_holder(life.holder())? } else { None };
        let next = match known {
            Some(run) => with_request(tables, Some(run))?,
            None => self.claim_first(tables, life)?,
        };
        let names = if wanted > 0 && next.is_some() { tables.next_plain(wanted)? } else { Vec::new() };
        Ok(Written { ended, next, names })
    }

    /// The log of an attempt. It is a spare one where a crash leaves no doubt about whose it is.
    pub(super) fn open_log(&self, job: &Job, hand: &mut Hand) -> io::Result<Output> {
        let (folder, limit) = (self.runs.folder_of(&job.run.id), self.settings.output_limit);
        let path = job.run.process.and_then(|process| self.spare_of(&self.worker.id, process.holder));
        if let Some(path) = path.filter(|_| job.run.attempt == 1 && job.lease.is_none()) {
            let spare = hand.spare.take().map_or_else(|| Spare::make(&path), Ok);
            // One that is in the way of something is not worth a failure.
            if let Ok(spare) = spare {
                return Ok(Output::in_spare(spare, &folder, limit));
            }
        }
        Output::open(&folder, job.run.attempt, limit)
    }

    /// Keeps the log of a run whose command is over, for itself or for the next one. From here on the spare log has
    /// nothing of this run.
    pub(super) fn keep_log(&self, run: &Run, output: Output, hand: &mut Hand) {
        match output.into_spare() {
            Ok(spare) => hand.spare = spare,
            Err(error) => self.trouble(format!("cannot keep what {} wrote: {error}", run.id)),
        }
    }

    /// Where the hand that executes a run has its spare log: the last digits of the run's kernel lock tell which hand
    /// that is.
    pub(super) fn spare_of(&self, worker: &WorkerId, holder: HolderId) -> Option<PathBuf> {
        let number = holder.0 % HANDS;
        (number > 0).then(|| spares_of(&self.runs, worker).join(number.to_string()))
    }

    /// A run that was over at once and went well leaves nothing but what it wrote.
    fn put_stage(&self, ended: Option<&Run>) {
        if let Some(run) = ended.filter(|run| run.status != Status::Succeeded || run.attempt > 1) {
            self.write_stage(run, None);
        }
    }
}

/// Removes the spare logs of a worker that is gone.
pub(super) fn forget(runs: &Runs, worker: &WorkerId) {
    let _ = fs::remove_dir_all(spares_of(runs, worker));
}

/// Removes the spare logs of workers that nobody knows any more: those of earlier boots.
pub(super) fn sweep(runs: &Runs) -> Result<(), RunError> {
    // Looked at first: whoever has some by now was written down before.
    let entries: Vec<_> = fs::read_dir(runs.folder().join(SPARES)).into_iter().flatten().flatten().collect();
    if entries.is_empty() {
        return Ok(());
    }
    let (workers, living) = runs.store().read(|tables| Ok((tables.workers()?, tables.living()?)))?;
    // What their commands wrote is looked for when somebody looks after the runs.
    let known =
        workers.iter().map(|worker| &worker.id).chain(living.iter().filter_map(|run| run.worker.as_ref()));
    let known: HashSet<&str> = known.map(WorkerId::as_str).collect();
    for entry in entries.iter().filter(|entry| !known.contains(&*entry.file_name().to_string_lossy())) {
        let _ = fs::remove_dir_all(entry.path());
    }
    Ok(())
}

fn spares_of(runs: &Runs, worker: &WorkerId) -> PathBuf {
    runs.folder().join(SPARES).join(worker.as_str())
}

/// What is to be told of the end of a run. It is none when somebody else has the run by now.
fn news(ended: Option<Run>, done: Done, started_at: Option<WallTime>) -> News {
    let Done { run, request, .. } = done;
    let told = match ended {
        Some(ended) if ended.waits_for_retry() => Told::Retrying(ended),
        Some(ended) => Told::Ended(ended),
        None => Told::Superseded(run.clone()),
    };
    News { told, request: Some(request), at: WallTime::now(), started: started_at.map(|at| (at, run)) }
}
