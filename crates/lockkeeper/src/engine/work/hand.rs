//! One pair of hands that executes one run after the other.
//!
//! Whoever finishes says so and claims the next run in one transaction, and does not wait for the disk: the command of
//! the next run begins at once if the disk knows that it may, because the run is named in this worker's file. A power cut
//! then loses at most the word of it, and nobody takes the run for one that has not begun.
//!
//! Runs are named only while commands are short. Anybody may claim them all the same: nobody waits for a hand while
//! another is free.

use std::io;
use std::sync::Arc;

use lockkeeper_core::id::RunId;
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
use crate::engine::runs::{RunError, RunFolder};
use crate::exec::Finder;
use crate::platform::life::LifeLock;
use crate::store::StoreError;
use crate::store::runs::Tables;

/// What a hand keeps from one run to the next.
#[derive(Default)]
pub(super) struct Hand {
    /// Only for the kernel lock of the next run: places in line are with whoever looks.
    line: Line,
    /// The log of the run that has just ended, if that was over at once.
    pub(super) log: Option<Output>,
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
    /// The log of an attempt: the spare one, if there is one.
    pub(super) fn open_log(&mut self, folder: &RunFolder, attempt: u32, limit: u64) -> io::Result<Output> {
        match self.spare.take() {
            // A spare one that is gone or in the way of something is not worth a failure.
            Some(spare) if attempt == 1 => {
                Output::reuse(spare, folder, limit).or_else(|_| Output::open(folder, attempt, limit))
            }
            spare => {
                self.spare = spare;
                Output::open(folder, attempt, limit)
            }
        }
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
            hand.log = None;
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
        self.put_away(ended.as_ref(), hand);
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

    /// A run that was over at once, held nothing and went well leaves what it wrote, and nothing if that is nothing.
    fn put_away(&self, ended: Option<&Run>, hand: &mut Hand) {
        match (ended, hand.log.take()) {
            (Some(run), Some(log)) if run.status == Status::Succeeded && run.attempt == 1 => {
                hand.spare = log.into_spare().or(hand.spare.take());
            }
            (Some(run), _) => self.write_stage(run, None),
            (None, _) => {}
        }
    }
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
