//! One pair of hands that executes one run after the other.
//!
//! Whoever finishes says so and claims the next run in one transaction, and does not wait for the disk: the next run was
//! *set aside* for this hand while it was busy, and that is on the disk by then. A power cut loses at most the word of
//! what came after it, and whoever finds a run that was set aside before the cut knows that it may have begun.
//!
//! Runs are set aside only from a queue that is long, by hands that were busy for a moment, and go back as soon as a
//! command takes longer than that: nobody waits for a hand while another is free.

use std::collections::VecDeque;
use std::io;

use lockkeeper_core::id::RunId;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};

use super::conclude::{Done, End};
use super::files::LockFiles;
use super::output::{Output, Spare};
use super::scribe::{News, Scribe};
use super::take::{Line, with_request};
use super::{Executor, Job, Told};
use crate::engine::runs::{RunError, RunFolder};
use crate::platform::life::LifeLock;
use crate::store::StoreError;
use crate::store::runs::Tables;

/// So many runs are set aside for a hand at most; the disk has the time of half of them to hear of the next.
const AT_MOST: usize = 4;
/// So many runs have to be left for others when one is set aside.
const LEFT_FOR_OTHERS: u32 = 8;

/// What a hand keeps from one run to the next.
#[derive(Default)]
pub(super) struct Hand {
    /// Only for the kernel lock of the next run: places in line are with whoever looks.
    line: Line,
    /// The kernel locks of those that will be set aside.
    further: Vec<LifeLock>,
    /// The next first.
    pub(super) asides: VecDeque<SetAside>,
    /// The log of the run that has just ended, if that was over at once.
    pub(super) log: Option<Output>,
    spare: Option<Spare>,
}

/// A run that only this hand begins with.
pub(super) struct SetAside {
    pub(super) run: RunId,
    /// The kernel lock that its processes will share.
    pub(super) life: LifeLock,
    request: Request,
    /// What to wait for until the disk knows.
    written: u64,
}

/// How a hand goes on after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It takes nothing more.
    Rest,
    /// With the next run, if there is one.
    Next,
    /// The same, and nobody else is free: those after that may be set aside.
    Ahead,
}

/// What one transaction did.
struct Written {
    ended: Option<Run>,
    next: Option<(Run, Request)>,
    /// Which of those that were set aside that was.
    was_aside: Option<usize>,
    asides: Vec<(RunId, Request)>,
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

impl Hand {
    /// Lets anybody begin with what was set aside.
    pub(super) fn put_back(&self, tables: &Tables<'_>) -> Result<(), StoreError> {
        self.asides.iter().try_for_each(|aside| tables.put_back(&aside.run, aside.life.holder()).map(|_| ()))
    }

    /// How many more runs are to be set aside: several at once, and not again for each.
    fn wanted(&self, after: After) -> usize {
        let few = self.asides.len() <= AT_MOST / 2;
        if after == After::Ahead && few { AT_MOST - self.asides.len() } else { 0 }
    }
}

impl Executor {
    /// Says how a run ended and takes the next one, which may begin when this returns.
    pub(super) fn go_on(
        &self,
        done: Done,
        hand: &mut Hand,
        after: After,
        scribe: &Scribe,
    ) -> Result<Option<Job>, RunError> {
        if !matches!(done.end, End::Seen(_)) || done.run.lease.is_some() || !done.files.are_none() {
            // Others get what it held only when its end is on the disk.
            hand.log = None;
            self.put_back(hand);
            return self.conclude(done, (after != After::Rest).then_some(&mut hand.line));
        }
        let after = self.make_locks(hand, after);
        let mut again = false;
        let written = self.insist(&format!("note the end of {}", done.run.id), || {
            let again = std::mem::replace(&mut again, true);
            self.runs.store().note(|tables| self.write_down(tables, &done, hand, after, again))
        });
        self.leave(&done.run);
        self.put_away(written.ended.as_ref(), hand);
        let number = scribe.wrote(Some(News::of_end(written.ended, done)));
        // Those before it are not this hand's any more.
        let aside = written.was_aside.and_then(|place| hand.asides.drain(..=place).next_back());
        if aside.is_none() {
            hand.asides.clear();
        }
        let set_aside = written.asides.len().min(hand.further.len());
        let set_aside = written.asides.into_iter().zip(hand.further.drain(..set_aside));
        hand.asides.extend(set_aside.map(|((run, request), life)| SetAside {
            run,
            life,
            request,
            written: number,
        }));
        let Some((run, request)) = written.next else { return Ok(None) };
        let (life, known) = match aside {
            Some(aside) => (Some(aside.life), aside.written),
            None => (hand.line.take_life(), number),
        };
        // Whatever happens to the machine from here on, nobody takes the run for one that has not begun.
        scribe.wait_for(known);
        Ok(Some(Job { run, request, life, lease: None, files: LockFiles::default() }))
    }

    /// Makes the kernel locks that the next runs may need.
    fn make_locks(&self, hand: &mut Hand, after: After) -> After {
        if after == After::Rest {
            return after;
        }
        let made = self.next_life(&mut hand.line).map(|_| ()).and_then(|()| {
            while hand.further.len() < hand.wanted(after) {
                hand.further.push(self.new_life()?);
            }
            Ok(())
        });
        match made {
            Ok(()) => after,
            Err(error) => {
                // The end has to be said in any case; the next run can wait.
                self.trouble(format!("cannot take another run: {error}"));
                After::Rest
            }
        }
    }

    /// `again` when it failed before: it may have been only the last step of it.
    fn write_down(
        &self,
        tables: &Tables<'_>,
        done: &Done,
        hand: &Hand,
        after: After,
        again: bool,
    ) -> Result<Written, StoreError> {
        let ended = self.say_end(tables, done)?;
        let mut written = Written { ended, next: None, was_aside: None, asides: Vec::new() };
        let Some(life) = hand.line.life().filter(|_| after != After::Rest) else {
            hand.put_back(tables)?;
            return Ok(written);
        };
        for (place, aside) in hand.asides.iter().enumerate() {
            written.next = self.claim_aside(tables, aside, again)?;
            if written.next.is_some() {
                written.was_aside = Some(place);
                break;
            }
        }
        if written.next.is_none() && again {
            written.next = with_request(tables, tables.run_of_holder(life.holder())?)?;
        }
        if written.next.is_none() {
            written.next = self.claim_first(tables, life)?;
        }
        if written.next.is_some() {
            for life in hand.further.iter().take(hand.wanted(after)) {
                match self.set_aside(tables, life)? {
                    Some(aside) => written.asides.push(aside),
                    None => break,
                }
            }
        }
        Ok(written)
    }

    /// None when it was called off or given up meanwhile.
    fn claim_aside(
        &self,
        tables: &Tables<'_>,
        aside: &SetAside,
        again: bool,
    ) -> Result<Option<(Run, Request)>, StoreError> {
        let holder = aside.life.holder();
        match tables.set_aside_for(&aside.run, holder)? {
            Some(run) => self.claim_in(tables, &run, aside.request.clone(), &aside.life),
            None if again => with_request(tables, tables.run_of_holder(holder)?),
            None => Ok(None),
        }
    }

    /// Sets the next run aside, if it needs nothing but a hand and there are enough for others.
    fn set_aside(
        &self,
        tables: &Tables<'_>,
        life: &LifeLock,
    ) -> Result<Option<(RunId, Request)>, StoreError> {
        if !tables.more_ready_than(LEFT_FOR_OTHERS)?
            || !tables.due_retries(tables.now().moment, 1)?.is_empty()
        {
            return Ok(None);
        }
        let first = tables.ready(None, 1)?.pop();
        let Some((run, request)) = with_request(tables, first)? else { return Ok(None) };
        if request.needs_lease() || self.needs_files(&request) {
            return Ok(None);
        }
        Ok(tables.set_aside(&run.id, life.holder())?.then_some((run.id, request)))
    }

    fn put_back(&self, hand: &mut Hand) {
        if hand.asides.is_empty() {
            return;
        }
        if let Err(error) = self.runs.store().note(|tables| hand.put_back(tables)) {
            // Others find out that nobody has the kernel locks.
            self.trouble(format!("cannot put back what was set aside: {error}"));
        }
        hand.asides.clear();
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

impl News {
    /// None when somebody else has the run by now.
    fn of_end(ended: Option<Run>, done: Done) -> Self {
        match ended {
            Some(run) if run.waits_for_retry() => {
                Self { told: Told::Retrying(run), request: Some(done.request) }
            }
            Some(run) => Self { told: Told::Ended(run), request: Some(done.request) },
            None => Self { told: Told::Superseded(done.run), request: None },
        }
    }
}
