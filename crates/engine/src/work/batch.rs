//! Runs that a hand claims several at a time, because its commands are short.
//!
//! The ends of some and the claims of the next ones are one transaction: that costs a short command much less than one
//! for each. A claim stays what it is, and what has not begun is no different from what has, but for three things:
//!
//! 1. Nobody waits behind a long command. When one takes longer than [`SHORT`], those after it are given back at once,
//!    and anybody may take them. Ends are kept back for [`HELD_BACK`] and one command at most.
//! 2. A worker that is killed loses none of them. The hand notes what begins and how it ended: what has ended gets its end
//!    from that, and what has not begun is given back. See [`crate::runs::notes`].
//! 3. Who is called off before it begins is not started.

use std::collections::VecDeque;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, RunId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};
use lockkeeper_core::time::Moment;

use super::conclude::{Done, End};
use super::files::LockFiles;
use super::hand::Hand;
use super::scribe::Scribe;
use super::take::with_request;
use super::tell::News;
use super::{Executor, Job, Told};
use crate::runs::RunError;
use crate::runs::notes::{Noted, Notes, for_hand};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_platform::{clock, random};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Tables;

/// So many runs are claimed at once.
const MOST: usize = 8;
/// A command that takes longer is not short, and what waits behind it is given back.
pub(super) const SHORT: Duration = Duration::from_millis(8);
/// An end that was kept back for so long is written before the next command begins.
const HELD_BACK: Duration = Duration::from_millis(12);

/// What a hand has claimed and not told the end of.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Those that have not begun, the next one first.
    waiting: VecDeque<Job>,
    /// Those that are over.
    over: Vec<Over>,
    notes: Option<Notes>,
    /// So many commands in a row were short.
    streak: usize,
}

/// A run that is over, and when its command was started if the status log was not told of that.
#[derive(Debug)]
struct Over {
    done: Done,
    started: Option<WallTime>,
}

/// What one transaction did.
struct Written {
    ended: Vec<Option<Run>>,
    claimed: Vec<(Run, Request)>,
    /// Those that come after them.
    names: Vec<RunId>,
}

impl Batch {
    /// Whether anything waits for the end of the present command.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.over.is_empty()
    }

    /// Counts a command that has ended.
    pub(super) fn count(&mut self, took: Duration) {
        self.streak = if took < SHORT { self.streak + 1 } else { 0 };
    }

    /// Notes what becomes of a run; false when there are no notes of it.
    pub(super) fn note(&self, holder: HolderId, noted: Noted) -> std::io::Result<bool> {
        self.notes.as_ref().map_or(Ok(false), |notes| notes.note(holder, noted))
    }

    /// How many may be claimed now. All recent commands have to have been short, and as many have to be left for each
    /// other hand.
    fn room(&self, left_for_each: usize) -> usize {
        MOST.min(2 * self.streak).min(left_for_each).max(1).saturating_sub(self.waiting.len())
    }

    /// Those that have not begun are given back with the next transaction.
    fn give_up_waiting(&mut self) {
        let given_up = self.waiting.drain(..).map(|job| Over { done: Done::not_begun(job), started: None });
        self.over.extend(given_up);
    }

    /// Makes room in the notes where the store knows all.
    fn forget_notes(&mut self) {
        let Some(notes) = &mut self.notes else { return };
        let runs = self.waiting.iter().map(|job| &job.run).chain(self.over.iter().map(|over| &over.done.run));
        let kept: Vec<HolderId> = runs.filter_map(|run| Some(run.process?.holder)).collect();
        notes.forget(|holder| kept.contains(&holder));
    }

    fn what_is_noted(&self) -> String {
        match self.over.as_slice() {
            [] => "note the end of no run".to_owned(),
            [one] => format!("note the end of {}", one.done.run.id),
            [one, others @ ..] => format!("note the end of {} and {} more", one.done.run.id, others.len()),
        }
    }

    fn is_kept_back_for_long(&self, now: Moment) -> bool {
        self.over.first().is_some_and(|over| now.since(over.done.ended_at.moment) >= HELD_BACK)
    }
}

impl Executor {
    /// Notes how a run ended, and says which is the next: one that was claimed with it, or one that is claimed now if
    /// `may_take`. It may begin when this returns.
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
        let holds = done.run.lease.is_some() || !done.files.are_none();
        if hand.batch.is_empty() && (holds || matches!(done.end, End::Said | End::NotOurs)) {
            // Others get what it held only when its end is on the disk.
            self.catch_up(hand, &done.run, &done.request);
            return self.conclude(done, may_take.then_some(&mut hand.line));
        }
        // Whatever kept it from beginning may keep the others.
        let hindered = matches!(done.end, End::NotBegun);
        let started = hand.started.take();
        hand.batch.over.push(Over { done, started });
        if hindered {
            hand.batch.streak = 0;
        }
        if hand.batch.streak == 0 {
            // Perhaps the worker was frozen, and the others were called off meanwhile.
            hand.batch.give_up_waiting();
        } else if !hand.batch.is_kept_back_for_long(clock::now())
            && let Some(job) = hand.batch.waiting.pop_front()
        {
            return Ok(Some(job));
        }
        let hands = usize::try_from(self.worker.jobs).unwrap_or(usize::MAX).max(1);
        let room = if may_take && !hindered { hand.batch.room(scribe.named() / hands) } else { 0 };
        let holders = self.prepare_claims(room, hand);
        let wanted = if holders.is_empty() { 0 } else { scribe.wants_names() };
        let mut again = false;
        let written = self.insist(&hand.batch.what_is_noted(), || {
            let again = std::mem::replace(&mut again, true);
            self.runs.store().note(|tables| self.write_down(tables, &hand.batch, &holders, again, wanted))
        });
        self.wrote(written, hand, wanted, scribe);
        Ok(hand.batch.waiting.pop_front())
    }

    /// A command takes long: the ends before it are written, and those after it are given back.
    pub(super) fn break_up(&self, hand: &mut Hand, scribe: &Scribe) {
        if hand.batch.is_empty() {
            return;
        }
        hand.batch.give_up_waiting();
        let batch = &hand.batch;
        match self.runs.store().note(|tables| self.write_down(tables, batch, &[], false, 0)) {
            Ok(written) => self.wrote(written, hand, 0, scribe),
            // The command is not left alone for it. It is tried again when that has ended.
            Err(error) => self.trouble(format!("cannot {}: {error}", hand.batch.what_is_noted())),
        }
    }

    /// The numbers of the kernel locks for so many runs. Of those that will have to wait for another it is noted that they
    /// have not begun; where that cannot be, nobody waits.
    fn prepare_claims(&self, room: usize, hand: &mut Hand) -> Vec<HolderId> {
        let number = || random::holder_id().map(|random| for_hand(random, hand.number));
        let holders: Vec<HolderId> = match (0..room).map(|_| number()).collect() {
            Ok(holders) => holders,
            Err(error) => {
                // Ends have to be said in any case; the next run can wait.
                self.trouble(format!("cannot take another run: {error}"));
                return Vec::new();
            }
        };
        let alone = hand.batch.waiting.is_empty();
        let noted = match &mut hand.batch.notes {
            _ if alone && room < 2 => return holders,
            Some(notes) => notes.prepare(&holders),
            none => {
                let path = self.runs.notes_of(&self.worker.id, u64::from(hand.number));
                Notes::make(&path, self.runs.store().boot())
                    .and_then(|notes| none.insert(notes).prepare(&holders))
            }
        };
        if noted.is_ok() {
            return holders;
        }
        hand.batch.forget_notes();
        if alone { number().into_iter().collect() } else { Vec::new() }
    }

    /// `again` when it failed before: it may have been only the last step of it.
    fn write_down(
        &self,
        tables: &Tables<'_>,
        batch: &Batch,
        holders: &[HolderId],
        again: bool,
        wanted: usize,
    ) -> Result<Written, StoreError> {
        let ended =
            batch.over.iter().map(|over| self.say_end(tables, &over.done)).collect::<Result<_, _>>()?;
        let mut claimed = Vec::new();
        if again {
            for holder in holders {
                claimed.extend(with_request(tables, tables.run_of_holder(*holder)?)?);
            }
        }
        if claimed.is_empty() {
            claimed = self.claim_next(tables, holders, batch.waiting.is_empty())?;
        }
        let names = if wanted > 0 && !claimed.is_empty() { tables.next_plain(wanted)? } else { Vec::new() };
        Ok(Written { ended, claimed, names })
    }

    /// Claims the next runs for these kernel locks, if they need no lease. A retry, and whose time is limited, does not wait
    /// for others and has nobody wait for it: it is claimed if the first can begin `at_once`.
    fn claim_next(
        &self,
        tables: &Tables<'_>,
        holders: &[HolderId],
        at_once: bool,
    ) -> Result<Vec<(Run, Request)>, StoreError> {
        let mut claimed = Vec::new();
        for ((run, request), holder) in self.next_runs(tables, holders.len())?.into_iter().zip(holders) {
            let alone = run.status != Status::Queued || run.timeout.is_some() || run.give_up_at.is_some();
            let free = !request.needs_lease() && !self.needs_files(&request);
            if !free || (alone && !(at_once && claimed.is_empty())) {
                break;
            }
            let Some(taken) = self.claim_in(tables, &run, request, *holder)? else { break };
            claimed.push(taken);
            if alone {
                break;
            }
        }
        Ok(claimed)
    }

    /// Goes on from what was committed: the rest has to wait until the disk knows.
    fn wrote(&self, written: Written, hand: &mut Hand, wanted: usize, scribe: &Scribe) {
        let Written { ended, claimed, names } = written;
        let batch = &mut hand.batch;
        let nothing_left = claimed.is_empty() && batch.waiting.is_empty();
        let over = std::mem::take(&mut batch.over);
        over.iter().for_each(|over| self.leave(&over.done.run));
        ended.iter().flatten().for_each(|run| self.put_stage(run));
        let news = ended.into_iter().zip(over).filter_map(|(ended, over)| news(ended, over)).collect();
        let number = scribe.wrote(news, nothing_left);
        if wanted > 0 {
            scribe.name(names);
        }
        let mut may_begin = true;
        for (run, request) in claimed {
            // Who was claimed before may not be queued on the disk: that it is named says nothing then.
            may_begin &= run.claim == 1 && scribe.may_begin(&run.id);
            // Who calls it off reaches this hand from now on. That it fails is told when it is to begin.
            let _ = self.enter(&run, hand.pipe.as_ref());
            batch.waiting.push_back(Job {
                run,
                request,
                life: None,
                lease: None,
                files: LockFiles::default(),
            });
        }
        batch.forget_notes();
        // Whatever happens to the machine from here on, nobody takes them for runs that have not begun.
        if !may_begin {
            scribe.wait_for(number);
        }
    }
}

/// What is to be told of the end of a run: nothing when it was given back.
fn news(ended: Option<Run>, over: Over) -> Option<News> {
    let Over { done: Done { run, request, end, ended_at, .. }, started } = over;
    let told = match ended {
        Some(ended) if ended.was_given_back() => return None,
        None if matches!(end, End::NotBegun) => return None,
        Some(ended) if ended.waits_for_retry() => Told::Retrying(ended),
        Some(ended) => Told::Ended(ended),
        // Somebody else has it by now.
        None => Told::Superseded(run.clone()),
    };
    let at = WallTime::from_micros(ended_at.unix_micros);
    Some(News { told, request: Some(request), at, started: started.map(|at| (at, run)) })
}
