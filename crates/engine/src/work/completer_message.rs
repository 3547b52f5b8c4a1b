//! Messages to the completer's thread.

use std::sync::mpsc::Sender;

use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::record::Lease;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::{Run, Status};

use super::claimer::Claimed;
use super::lock_files::LockFiles;
use crate::runs::completing::AttemptResult;
use lockkeeper_platform::wall_clock::WallTime;

/// A message to the completer's thread.
pub(super) enum CompleterMessage {
    /// A command that takes long was started.
    Started(Box<Started>),
    /// The ends of these attempts are on the disk.
    Committed(Vec<Committed>),
    /// The worker ends: nothing comes after this.
    Shutdown,
}

/// The start of a command.
pub(super) struct Started {
    pub(super) run: Run,
    pub(super) request: Request,
    pub(super) lease: Option<Lease>,
    /// None if it is unknown.
    pub(super) process: Option<ProcessRef>,
    pub(super) at: WallTime,
}

/// An attempt that has finished, with the lease and the files that are still held for it.
pub(super) struct Finished {
    pub(super) end: AttemptResult,
    pub(super) lease: Option<Lease>,
    pub(super) files: LockFiles,
    /// When the command was started, if that is not in the status log yet.
    pub(super) started_at: Option<WallTime>,
    /// Whether the completer was told of the start before. If so, the run has a stage file.
    pub(super) is_reported: bool,
    /// False if the worker had to end before the processes of the run were gone. Then the end is not written: the next worker
    /// rescues the run.
    pub(super) is_over: bool,
    /// Whether its thread can begin with another run at once.
    pub(super) wants_next: bool,
}

/// An attempt whose end is on the disk.
pub(super) struct Committed {
    pub(super) finished: Finished,
    /// The run after its end. None when another worker has it.
    pub(super) ended: Option<Run>,
    /// Answered when everything is published and released, if a thread waits for that.
    pub(super) reply: Option<Sender<Option<Claimed>>>,
}

impl Finished {
    /// An attempt whose command did not run here.
    pub(super) fn of(end: AttemptResult) -> Self {
        let files = LockFiles::default();
        Self {
            end,
            lease: None,
            files,
            started_at: None,
            is_reported: true,
            is_over: true,
            wants_next: false,
        }
    }

    /// Whether the run gets no stage file: it held nothing, and succeeded at once.
    pub(super) fn is_trivial(&self, run: &Run) -> bool {
        let held_nothing = self.lease.is_none() && self.files.is_empty();
        held_nothing && !self.is_reported && run.status() == Status::Succeeded && run.attempt() == 1
    }
}
