//! What commands write: straight into a file, so that it is all there whatever happens to the worker.
//!
//! A log that grows beyond its limit keeps its beginning and its end. What lies between is given back to the disk as
//! a hole: the command goes on writing, and every byte that is left stays where it was.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::engine::runs::RunFolder;
use crate::platform::fs as local;
use crate::platform::replace::has_writers;

/// How much of the beginning is kept.
const HEAD: u64 = 1024 * 1024;
/// Holes begin and end at blocks.
const BLOCK: u64 = 4096;
/// How often a log is looked at, at least and at most.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(5);

/// The log of an attempt that goes on.
#[derive(Debug)]
pub(super) struct Output {
    /// Not open while the command runs, unless it is looked at: every process that is started meanwhile has a copy for a
    /// moment, and would be taken for one that writes.
    writer: Option<File>,
    /// The same file, where it was a spare one.
    reader: Option<File>,
    folder: RunFolder,
    limit: u64,
    size: u64,
    cut_to: u64,
}

/// A folder with a log that nothing was written to, for the next run: to rename it costs a tenth of making it.
///
/// It keeps the name of the run that it was for until another needs it.
#[derive(Debug)]
pub(super) struct Spare {
    reader: File,
    folder: RunFolder,
}

impl Output {
    /// Opens the log of an attempt; that of the attempt before is put aside.
    pub(super) fn open(folder: &RunFolder, attempt: u32, limit: u64) -> io::Result<Self> {
        folder.make()?;
        if attempt > 1 {
            put_aside(&folder.cut(), &folder.cut_of(attempt - 1))?;
            put_aside(&folder.output(), &folder.output_of(attempt - 1))?;
        }
        let file = options().create(true).open(folder.output())?;
        Ok(Self::new(file, None, folder, limit))
    }

    fn new(writer: File, reader: Option<File>, folder: &RunFolder, limit: u64) -> Self {
        let (writer, folder) = (Some(writer), folder.clone());
        Self { writer, reader, folder, limit: limit.max(4 * HEAD), size: 0, cut_to: 0 }
    }

    /// Has the log of a first attempt be the spare one.
    pub(super) fn reuse(spare: Spare, folder: &RunFolder, limit: u64) -> io::Result<Self> {
        let Spare { reader, folder: before } = spare;
        before.rename_to(folder)?;
        let file = options().open(folder.output())?;
        Ok(Self::new(file, Some(reader), folder, limit))
    }

    /// A spare log, if nothing was written to this one and nobody is left who could.
    pub(super) fn into_spare(self) -> Option<Spare> {
        let Self { writer, reader, folder, size, .. } = self;
        drop(writer);
        if size > 0 {
            return None;
        }
        let reader = match reader {
            Some(reader) => reader,
            None => File::options().read(true).custom_flags(local::NO_FOLLOW).open(folder.output()).ok()?,
        };
        let unwritten = has_writers(&reader) == Some(false) && reader.metadata().ok()?.len() == 0;
        unwritten.then_some(Spare { reader, folder })
    }

    /// For the command's standard output and error.
    pub(super) fn descriptors(&mut self) -> io::Result<(OwnedFd, OwnedFd)> {
        let writer = self.writer()?.try_clone()?;
        self.writer.take().map_or_else(|| writer.try_clone(), Ok).map(|first| (first.into(), writer.into()))
    }

    fn writer(&mut self) -> io::Result<&File> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(options().open(self.folder.output())?)),
        }
    }

    /// Cuts the log if it is too long; returns when to look again.
    pub(super) fn look(&mut self, elapsed: Duration) -> io::Result<Duration> {
        let size = match self.writer.as_ref().or(self.reader.as_ref()) {
            Some(file) => file.metadata()?.len(),
            None => std::fs::metadata(self.folder.output())?.len(),
        };
        let grown = size.saturating_sub(self.size);
        self.size = size;
        let kept = size.saturating_sub(self.cut_to.max(HEAD)) + HEAD;
        if kept > self.limit {
            self.cut(size)?;
        }
        // In time to see it before it has grown by half of its limit.
        let pace = grown.max(1) as f64 / elapsed.as_secs_f64().max(0.001);
        let soon = Duration::from_secs_f64((self.limit as f64 / 2.0 / pace).min(LATEST.as_secs_f64()));
        Ok(soon.clamp(SOONEST, LATEST))
    }

    /// Cuts what was written since the last look.
    pub(super) fn finish(&mut self) {
        // A log that cannot be cut is only larger than it should be.
        let _ = self.look(LATEST);
    }

    fn cut(&mut self, size: u64) -> io::Result<()> {
        let from = self.cut_to.max(HEAD);
        let to = size.saturating_sub(self.limit / 2) / BLOCK * BLOCK;
        if to <= from {
            return Ok(());
        }
        // Told first: a reader that finds zeros must know that they are none of the command's.
        let note = json!({ "cut_from": HEAD, "cut_to": to });
        self.folder.put(&self.folder.cut(), note.to_string().as_bytes())?;
        local::punch_hole(self.writer()?, from, to - from)?;
        self.cut_to = to;
        Ok(())
    }
}

/// How logs are opened: each write goes to the end, whoever makes it.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600).custom_flags(local::NO_FOLLOW);
    options
}

/// Renames a file that need not be there.
fn put_aside(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
