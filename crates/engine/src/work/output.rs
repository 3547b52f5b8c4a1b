//! What commands write: straight into a file, so that it is all there whatever happens to the worker.
//!
//! A log that grows beyond its limit keeps its beginning and its end. What lies between is given back to the disk as
//! a hole: the command goes on writing, and every byte that is left stays where it was.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::runs::RunFolder;
use lockkeeper_platform::fs as local;
use lockkeeper_platform::fs::has_writers;

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
    /// Open once something had to be cut: every process that is started meanwhile has a copy for a moment, and would be
    /// taken for one that writes.
    writer: Option<File>,
    /// The spare log that it is, until it is known to be needed.
    spare: Option<Spare>,
    folder: RunFolder,
    limit: u64,
    size: u64,
    cut_to: u64,
}

/// An empty log, for the next run of a hand: most commands that are over at once write nothing, and to make a folder and
/// a file for each of them would cost more than the rest of it.
#[derive(Debug)]
pub(super) struct Spare {
    path: PathBuf,
    reader: File,
}

impl Spare {
    /// Makes one, or takes what is there.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        drop(options().create(true).open(path)?);
        let reader = File::options().read(true).custom_flags(local::NO_FOLLOW).open(path)?;
        let spare = Self { path: path.to_owned(), reader };
        if spare.is_unused()? { Ok(spare) } else { Err(io::ErrorKind::AlreadyExists.into()) }
    }

    /// Whether nothing was written to it and nobody is left who could.
    fn is_unused(&self) -> io::Result<bool> {
        Ok(self.reader.metadata()?.len() == 0 && has_writers(&self.reader) == Some(false))
    }

    fn become_log_of(&self, folder: &RunFolder) -> io::Result<()> {
        folder.make()?;
        fs::rename(&self.path, folder.output())
    }
}

/// Gives a run the log that a worker had for it when it was killed, if there is anything in it or will be.
pub(super) fn rescue(path: &Path, folder: &RunFolder) -> io::Result<()> {
    let reader = match File::options().read(true).custom_flags(local::NO_FOLLOW).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let spare = Spare { path: path.to_owned(), reader };
    if spare.is_unused()? || folder.output().try_exists()? { Ok(()) } else { spare.become_log_of(folder) }
}

impl Output {
    /// Opens the log of an attempt; that of the attempt before is put aside.
    pub(super) fn open(folder: &RunFolder, attempt: u32, limit: u64) -> io::Result<Self> {
        folder.make()?;
        if attempt > 1 {
            put_aside(&folder.cut(), &folder.cut_of(attempt - 1))?;
            put_aside(&folder.output(), &folder.output_of(attempt - 1))?;
        }
        drop(options().create(true).open(folder.output())?);
        Ok(Self::new(None, folder, limit))
    }

    /// Has the log of a first attempt be a spare one.
    pub(super) fn in_spare(spare: Spare, folder: &RunFolder, limit: u64) -> Self {
        Self::new(Some(spare), folder, limit)
    }

    fn new(spare: Option<Spare>, folder: &RunFolder, limit: u64) -> Self {
        let folder = folder.clone();
        Self { writer: None, spare, folder, limit: limit.max(4 * HEAD), size: 0, cut_to: 0 }
    }

    /// Whether it is not where it was.
    pub(super) fn is_gone(&self) -> bool {
        !self.path().try_exists().unwrap_or(true)
    }

    /// Puts the log into the folder of its run, if it is not there.
    pub(super) fn put_in_place(&mut self) -> io::Result<()> {
        if let Some(spare) = &self.spare {
            spare.become_log_of(&self.folder)?;
            self.spare = None;
        }
        Ok(())
    }

    /// The spare log that it was, if it still is one; else it is put into its place.
    pub(super) fn into_spare(mut self) -> io::Result<Option<Spare>> {
        self.writer = None;
        match self.spare.take_if(|spare| spare.is_unused().unwrap_or(false)) {
            Some(spare) => Ok(Some(spare)),
            None => self.put_in_place().map(|()| None),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.spare.as_ref().map_or_else(|| self.folder.output(), |spare| spare.path.clone())
    }

    fn writer(&mut self) -> io::Result<&File> {
        let path = self.path();
        match &mut self.writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(options().open(path)?)),
        }
    }

    /// Cuts the log if it is too long; returns when to look again.
    pub(super) fn look(&mut self, elapsed: Duration) -> io::Result<Duration> {
        let open = self.writer.as_ref().or(self.spare.as_ref().map(|spare| &spare.reader));
        let size = match open {
            Some(file) => file.metadata()?.len(),
            None => fs::metadata(self.folder.output())?.len(),
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
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
