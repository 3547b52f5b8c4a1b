//! Number sequence: numbers that are never given twice, in a small file of their own.
//!
//! The database is written without fsync, and it may be moved away or lose its log. The numbers must still grow. So
//! the file has the last number, which is written before the transaction that drew it commits. It also has a limit, which is
//! synced to the disk before any number below it is given. In the same boot the last number counts. After another boot the
//! limit counts, since the last writes may be lost.
//!
//! Files may be restored from a backup, or be deleted. So the limit has copies: in the database, in the file `gate`, and in an
//! extended attribute of the folder that the state folder is in, which stays when the state folder is deleted. And `gate` has the
//! change time (`ctime`) that `tokens` had after the last write. If it is another one, another program wrote or restored one of the
//! two: then the last number is not trusted, and the numbers go on above the largest limit. A state folder that was moved away and back has an older limit than the attribute: then they go on above that as well. If there is no attribute, because the
//! file system has none, they also go on above a number made from the wall clock that grows faster than any store draws numbers.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::StoreError;
use lockkeeper_platform::clock;
use lockkeeper_platform::fs::{attribute, changed_at, open_private, open_to_read, set_attribute};
use lockkeeper_platform::wall_clock::epoch_seconds;
use lockkeeper_platform::write_lock::WriteLock;

/// How many numbers are given for each fsync.
const BLOCK: u64 = 4096;
/// Every write is this long, so that each replaces the one before.
const LENGTH: usize = 128;
const HEADING: &str = "lockkeeper-tokens 1";
/// 1 January 2020, in Unix time. Numbers from the wall clock count from here.
const SECOND_ZERO: i64 = 1_577_836_800;
/// How many numbers a second the wall clock stands for. A commit takes 20 µs at least, so no store draws as many.
const NUMBERS_PER_SECOND: u64 = 1 << 17;
/// By how many seconds the wall clock may have been corrected since the boot.
const CLOCK_SLACK: i64 = 60;
/// Some file systems keep change times in whole seconds, or even ones (vfat), once the file is read from the disk again.
const COARSE: u64 = 2_000_000_000;

/// The file `tokens`. The caller holds the write lock while it draws.
#[derive(Debug)]
pub(super) struct Tokens {
    file: File,
    path: PathBuf,
    folder: PathBuf,
    boot: String,
    /// The copy of the limit outside of the state folder, when the file was opened.
    outside: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    boot: String,
    last: u64,
    limit: u64,
}

impl Tokens {
    /// Opens the file, or creates it.
    pub(super) fn open(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let path = folder.join("tokens");
        let file = open_private(&path).map_err(|source| StoreError::io("open", &path, source))?;
        Ok(Self::of(file.into(), path, folder, boot))
    }

    /// Opens an existing file that may not be written.
    pub(super) fn open_to_read(folder: &Path, boot: &str) -> Result<Self, StoreError> {
        let path = folder.join("tokens");
        let file = open_to_read(&path).map_err(|source| StoreError::io("open", &path, source))?;
        Ok(Self::of(file.into(), path, folder, boot))
    }

    fn of(file: File, path: PathBuf, folder: &Path, boot: &str) -> Self {
        let outside = limit_outside(folder);
        Self { file, path, folder: folder.to_owned(), boot: boot.to_owned(), outside }
    }

    /// The boot in which numbers were last given; none when there is nothing yet.
    pub(super) fn boot(&self) -> Result<Option<String>, StoreError> {
        Ok(self.read()?.map(|state| state.boot))
    }

    /// A number that is not below any that was given; zero if none was.
    pub(super) fn limit(&self) -> Result<u64, StoreError> {
        Ok(self.read()?.map_or(0, |state| state.limit))
    }

    /// The last number given in this boot, if one was.
    pub(super) fn last(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.read()?.filter(|state| state.boot == self.boot).map(|state| state.last))
    }

    /// Starts to draw numbers. `noted` is the limit in the database. The caller holds the write lock.
    pub(super) fn draw<'t>(&'t self, noted: u64, gate: &'t WriteLock) -> Result<Drawing<'t>, StoreError> {
        let state = self.read()?;
        // A copy that cannot be read counts as missing.
        let (in_gate, written_at) = gate.noted().unwrap_or_default();
        // The state folder may have been moved away, replaced by a new one, and moved back.
        let known = noted.max(in_gate).max(self.outside.unwrap_or(0));
        let (last, limit) = match state {
            // The file is new.
            None => (known.max(limit_outside(&self.folder).unwrap_or(0)), 0),
            // One of the files is an old copy, or `gate` is new.
            Some(state) if in_gate == 0 || !self.is_as_written_at(written_at)? => {
                let outside = limit_outside(&self.folder).unwrap_or_else(number_by_wall_clock);
                (known.max(state.limit).max(outside), 0)
            }
            Some(state) if state.limit < known => (known, 0),
            Some(state) if state.boot == self.boot => (state.last, state.limit),
            Some(state) => (state.limit, state.limit),
        };
        Ok(Drawing { tokens: self, gate, last, limit, noted, kept: true })
    }

    /// Whether nobody has written or restored the file since it had this change time. Version 0.1.0 does not note the time (0).
    fn is_as_written_at(&self, noted: u64) -> Result<bool, StoreError> {
        let found = changed_at(&self.file).map_err(|source| self.failed("look at", source))?;
        let is_coarse = found.is_multiple_of(1_000_000_000) && found.abs_diff(noted) <= COARSE;
        Ok(noted == 0 || noted == found || is_coarse)
    }

    /// Whether the last write was made while this machine was running. A file that was copied or restored since was not written
    /// by a process that uses it. A time in the future says that the wall clock is wrong, and nothing else.
    pub(super) fn was_written_since_boot(&self, gate: &WriteLock) -> Result<bool, StoreError> {
        let (_, noted) = gate.noted().unwrap_or_default();
        if noted == 0 || !self.is_as_written_at(noted)? {
            return Ok(false);
        }
        let written = i64::try_from(noted / 1_000_000_000).unwrap_or(i64::MAX);
        let now = epoch_seconds();
        let boot = now - clock::now().as_micros() / 1_000_000;
        Ok(boot + CLOCK_SLACK < written && written <= now + CLOCK_SLACK)
    }

    /// Writes the copy of the limit outside of the state folder, where the file system and its owner allow it. Folders that
    /// many share, such as `/tmp`, are left alone: there is little room for attributes.
    fn set_limit_outside(&self, limit: u64) {
        let outside = self.folder.join("..");
        let is_shared = outside.metadata().map_or(true, |facts| facts.mode() & 0o1000 != 0);
        if !is_shared && let Some(name) = name_outside(&self.folder) {
            let _ = set_attribute(&outside, &name, &limit.to_string());
        }
    }

    fn read(&self) -> Result<Option<State>, StoreError> {
        let mut bytes = [0; LENGTH];
        let mut length = 0;
        while length < LENGTH {
            match self.file.read_at(&mut bytes[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.failed("read", source)),
            }
        }
        if length == 0 {
            return Ok(None);
        }
        let text = std::str::from_utf8(&bytes[..length]).ok();
        text.and_then(State::parse).map(Some).ok_or_else(|| StoreError::Damaged {
            address: self.path.display().to_string(),
            what: "it does not say which numbers were given".to_owned(),
        })
    }

    fn write(&self, last: u64, limit: u64) -> Result<(), StoreError> {
        let mut line = [b' '; LENGTH];
        line[LENGTH - 1] = b'\n';
        let boot = &self.boot;
        let written =
            write!(&mut line[..LENGTH - 1], "{HEADING} boot={boot} last={last:020} limit={limit:020}");
        let written = written.and_then(|()| self.file.write_all_at(&line, 0));
        written.map_err(|source| self.failed("write to", source))
    }

    fn failed(&self, action: &'static str, source: io::Error) -> StoreError {
        StoreError::io(action, &self.path, source)
    }
}

/// Numbers that were drawn and not yet written to the file.
pub(super) struct Drawing<'t> {
    tokens: &'t Tokens,
    gate: &'t WriteLock,
    last: u64,
    limit: u64,
    /// The limit in the database.
    noted: u64,
    kept: bool,
}

impl Drawing<'_> {
    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.kept = false;
        self.last
    }

    /// Makes all later numbers larger than this one.
    pub(super) fn raise(&mut self, above: u64) {
        if self.last < above {
            self.last = above;
            self.kept = false;
        }
    }

    /// Makes sure that these numbers are never drawn again. Called before they are committed.
    ///
    /// Returns the limit if the database does not have it.
    pub(super) fn keep(&mut self) -> Result<Option<u64>, StoreError> {
        if self.kept {
            return Ok(None);
        }
        let moved = self.last >= self.limit;
        if moved {
            self.limit = self.last + BLOCK;
            self.tokens.set_limit_outside(self.limit);
        }
        self.tokens.write(self.last, self.limit)?;
        if moved {
            self.tokens.file.sync_data().map_err(|source| self.tokens.failed("sync", source))?;
        }
        // If the copy is not written, the next number is larger than all limits.
        let _ = changed_at(&self.tokens.file).and_then(|at| self.gate.note(self.limit, at));
        self.kept = true;
        Ok((self.limit != self.noted).then_some(self.limit))
    }
}

/// The copy of the limit outside of the state folder.
fn limit_outside(folder: &Path) -> Option<u64> {
    attribute(&folder.join(".."), &name_outside(folder)?)?.parse().ok()
}

/// The name of the attribute: several state folders may be in one folder.
fn name_outside(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    Some(format!("user.lockkeeper.tokens.{}", folder.file_name()?.to_str()?))
}

/// A number that is larger than every number that a store can have drawn until now.
fn number_by_wall_clock() -> u64 {
    u64::try_from(epoch_seconds() - SECOND_ZERO).unwrap_or(0).saturating_mul(NUMBERS_PER_SECOND)
}

impl State {
    fn parse(text: &str) -> Option<Self> {
        let fields = text.strip_suffix('\n')?.trim_end().strip_prefix(HEADING)?;
        let (boot, numbers) = fields.strip_prefix(" boot=")?.split_once(" last=")?;
        let (last, limit) = numbers.split_once(" limit=")?;
        let state = Self { boot: boot.to_owned(), last: last.parse().ok()?, limit: limit.parse().ok()? };
        (text.len() == LENGTH && state.last <= state.limit).then_some(state)
    }
}

#[cfg(test)]
mod tests;
