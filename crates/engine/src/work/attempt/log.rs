//! The output log of an attempt. The command writes to the file by itself, so that no output is lost if the worker dies.
//!
//! A log that grows beyond its limit keeps its beginning and its end. The bytes between are freed (a hole in the file): the command
//! continues to write, and all other bytes keep their offsets.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::reusable_log::ReusableLog;
use crate::runs::RunFolder;
use lockkeeper_platform::{access, fs as local};

/// How much of the beginning is kept.
const HEAD: u64 = 1024 * 1024;
/// Holes begin and end at blocks.
const BLOCK: u64 = 4096;
/// The shortest and the longest time until the size of a log is read again.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(5);

/// The log of an attempt that is under way.
#[derive(Debug)]
pub(super) struct AttemptLog {
    folder: RunFolder,
    /// The log of the slot, until it is known to be needed.
    reusable: Option<ReusableLog>,
    /// Opened only when something has to be cut: a command that is being started has a copy of every descriptor for a moment, and
    /// would count as a process that writes.
    writer: Option<File>,
    limit: u64,
    size: u64,
    cut_to: u64,
}

impl AttemptLog {
    /// Makes the log of an attempt; the log of the attempt before is renamed.
    pub(super) fn make(folder: &RunFolder, attempt: u32, limit: u64) -> io::Result<Self> {
        folder.make()?;
        folder.begin_attempt(attempt)?;
        let path = folder.output();
        let file = local::only_regular(append_only().create(true).open(&path), &path)?;
        access::inherit(&file, folder.path())?;
        Ok(Self::new(folder, None, limit))
    }

    /// Uses the log of a slot.
    pub(super) fn reuse(log: ReusableLog, folder: &RunFolder, limit: u64) -> Self {
        Self::new(folder, Some(log), limit)
    }

    fn new(folder: &RunFolder, reusable: Option<ReusableLog>, limit: u64) -> Self {
        let folder = folder.clone();
        Self { folder, reusable, writer: None, limit: limit.max(4 * HEAD), size: 0, cut_to: 0 }
    }

    /// Its path.
    pub(super) fn path(&self) -> PathBuf {
        self.reusable.as_ref().map_or_else(|| self.folder.output(), |log| log.path().to_owned())
    }

    /// Puts it into the folder of the run, if it is not there.
    pub(super) fn move_to_run(&mut self) -> io::Result<()> {
        self.reusable.take().map_or(Ok(()), |log| log.move_to(&self.folder))
    }

    /// Cuts the log if it is too long. Returns the log of the slot if nothing was written to it.
    pub(super) fn finish(mut self) -> io::Result<Option<ReusableLog>> {
        // A log that cannot be cut is only larger than it should be.
        let _ = self.look(LATEST);
        match self.reusable.take_if(|log| log.is_unused().unwrap_or(false)) {
            Some(log) => Ok(Some(log)),
            None => self.move_to_run().map(|()| None),
        }
    }

    /// Cuts the log if it is too long; returns when to look again.
    pub(super) fn look(&mut self, elapsed: Duration) -> io::Result<Duration> {
        let size = match &self.writer {
            Some(file) => file.metadata()?.len(),
            None => fs::metadata(self.path())?.len(),
        };
        let grown = size.saturating_sub(self.size);
        self.size = size;
        let kept = size.saturating_sub(self.cut_to.max(HEAD)) + HEAD;
        if kept > self.limit {
            self.cut(size)?;
        }
        // Soon enough: the log grows by less than half of its limit until then.
        let bytes_per_second = grown.max(1) as f64 / elapsed.as_secs_f64().max(0.001);
        let soon = (self.limit as f64 / 2.0 / bytes_per_second).min(LATEST.as_secs_f64());
        Ok(Duration::from_secs_f64(soon).clamp(SOONEST, LATEST))
    }

    fn cut(&mut self, size: u64) -> io::Result<()> {
        let from = self.cut_to.max(HEAD);
        let to = size.saturating_sub(self.limit / 2) / BLOCK * BLOCK;
        if to <= from {
            return Ok(());
        }
        // Written first: a reader that finds zeros must know that the command did not write them.
        let note = json!({ "cut_from": HEAD, "cut_to": to });
        self.folder.put(&self.folder.cut(), note.to_string().as_bytes())?;
        let path = self.path();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(append_only().open(path)?),
        };
        local::punch_hole(writer, from, to - from)?;
        self.cut_to = to;
        Ok(())
    }
}

/// Logs are opened for appending: each write of any process goes to the end.
pub(super) fn append_only() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600).custom_flags(local::NO_FOLLOW | local::NO_WAIT);
    options
}
