//! One pair of hands that executes one run after the other, and what it keeps from one to the next.
//!
//! Whoever finishes says so and claims the next [runs](super::batch) in one transaction, and does not wait for the disk:
//! the command of the next run begins at once if the disk knows that it may, because the run is named in this worker's
//! file. A power cut then loses at most the word of it, and nobody takes the run for one that has not begun.
//!
//! Runs are named only while commands are short. Anybody may claim them all the same: nobody waits for a hand while
//! another is free.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use lockkeeper_core::id::{HolderId, WorkerId};
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Stamp, Status};

use super::batch::Batch;
use super::output::{Output, Spare};
use super::take::Line;
use super::{Executor, Job, Pipe};
use crate::runs::notes::hand_of;
use crate::runs::{RunError, Runs};
use lockkeeper_platform::exec::ProgramCache;
use lockkeeper_platform::wall_clock::WallTime;

/// What a hand keeps from one run to the next.
#[derive(Default)]
pub(super) struct Hand {
    /// From 1.
    pub(super) number: u32,
    /// Only for the kernel lock of the next run: places in line are with whoever looks.
    pub(super) line: Line,
    /// What it has claimed and not told the end of.
    pub(super) batch: Batch,
    /// The log of the next run.
    spare: Option<Spare>,
    /// When the command began.
    pub(super) began_at: Option<Stamp>,
    /// When the command was started, as long as the status log was not told.
    pub(super) started: Option<WallTime>,
    /// How this hand is reached.
    pub(super) pipe: Option<Arc<Pipe>>,
    /// Where programs are.
    pub(super) programs: ProgramCache,
}

impl Hand {
    /// One of many, by its number.
    pub(super) fn new(number: u32) -> Self {
        Self { number, line: Line::of_hand(number), ..Self::default() }
    }
}

impl Executor {
    /// Tells the status log of the start that it was not told of.
    pub(super) fn catch_up(&self, hand: &mut Hand, run: &Run, request: &Request) {
        if let Some(at) = hand.started.take() {
            self.log_start(at, run, request);
        }
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

    /// Where the hand that executes a run has its spare log.
    pub(super) fn spare_of(&self, worker: &WorkerId, holder: HolderId) -> Option<PathBuf> {
        hand_of(holder).map(|hand| self.runs.folder_of_hands(worker).join(hand.to_string()))
    }

    /// A run that was over at once and went well leaves nothing but what it wrote.
    pub(super) fn put_stage(&self, run: &Run) {
        let nothing = run.status == Status::Succeeded && run.attempt == 1;
        if !nothing && !run.was_given_back() {
            self.write_stage(run, None);
        }
    }
}

/// Removes what the hands of a worker had that is gone.
pub(super) fn forget(runs: &Runs, worker: &WorkerId) {
    let _ = fs::remove_dir_all(runs.folder_of_hands(worker));
}

/// Removes what the hands of workers had that nobody knows any more: those of earlier boots.
pub(super) fn sweep(runs: &Runs) -> Result<(), RunError> {
    // Looked at first: whoever has some by now was written down before.
    let entries: Vec<_> = fs::read_dir(runs.all_hands()).into_iter().flatten().flatten().collect();
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
