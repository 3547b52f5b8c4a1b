//! The registry as a file that our processes, appending shells and `sed -i` change at the same time.
//!
//! Our own processes take turns by a `flock` on the folder, which leaves nothing behind. A new line is one appending
//! write, so it mixes with other appenders. A change to a line is a whole new file that changes places with the old
//! one; whatever a shell still appended to the old one is carried over once nobody has it open for writing, so no
//! foreign line is lost. If another program replaced the file in between, the exchange is undone and done again on its
//! version. What cannot be helped is a `sed -i` that read the file before our change: its rename undoes the change,
//! and the next `cleanup` does it again.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

use super::{Entry, HEADER, Ledger, MAX_BYTES, RegistryError};
use lockkeeper_platform::{flock, fs as platform_fs, rename_exchange};

/// Beyond this, old finished lines move to `registry.log.1`.
pub const ROTATE_ABOVE: usize = 64 * 1024;
const KEEP: usize = ROTATE_ABOVE / 2;
/// The old lines are started anew beyond this.
const KEEP_OLD: u64 = 256 * 1024;
/// How long an appender may take between opening the file and closing it.
const APPENDER_PATIENCE: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// Each try loses only against another program that replaced the file in between.
const TRIES: usize = 50;

/// The registry of one lock folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    folder: PathBuf,
    path: PathBuf,
}

impl Registry {
    /// The registry in a folder, which may be missing.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), path: folder.join("registry.log") }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins the file with its header if there is none.
    pub fn begin(&self) -> Result<(), RegistryError> {
        let _turn = self.turn()?;
        self.begin_in_turn()
    }

    /// Everything in it; nothing when there is no file.
    pub fn read(&self) -> Result<Ledger, RegistryError> {
        match self.open(OFlags::RDONLY)? {
            Some(mut file) => Ok(Ledger::parse(&self.read_all(&mut file)?)),
            None => Ok(Ledger::default()),
        }
    }

    /// Adds a line.
    pub fn append(&self, entry: &Entry) -> Result<(), RegistryError> {
        let turn = self.turn()?;
        self.begin_in_turn()?;
        for _ in 0..TRIES {
            let Some(mut file) = self.open(OFlags::RDWR | OFlags::APPEND)? else {
                self.begin_in_turn()?;
                continue;
            };
            let length = file.metadata().map_err(self.failed("look at"))?.len();
            if length > ROTATE_ABOVE as u64 {
                drop(turn);
                return self.edit(|ledger| ledger.push(entry.clone()));
            }
            // A torn last line must not swallow ours.
            let torn = length > 0 && last_byte(&mut file).map_err(self.failed("read"))? != b'\n';
            let line = format!("{}{entry}\n", if torn { "\n" } else { "" });
            file.write_all(line.as_bytes()).map_err(self.failed("write to"))?;
            // Written to a file that was just replaced: it may not be in the new one.
            if self.is_current(&file)? || self.read()?.entries().any(|found| found == entry) {
                return Ok(());
            }
        }
        Err(RegistryError::Restless { path: self.path.clone() })
    }

    /// Changes lines, in one step as everybody else sees it; nothing is written when nothing changed.
    pub fn edit<T>(&self, mut change: impl FnMut(&mut Ledger) -> T) -> Result<T, RegistryError> {
        let _turn = self.turn()?;
        for _ in 0..TRIES {
            let Some(mut file) = self.open(OFlags::RDONLY)? else {
                self.begin_in_turn()?;
                continue;
            };
            let before = self.read_all(&mut file)?;
            let mut ledger = Ledger::parse(&before);
            let unchanged = ledger.clone();
            let outcome = change(&mut ledger);
            let mut old = Vec::new();
            if before.len() > ROTATE_ABOVE {
                old = ledger.rotate(KEEP);
            }
            if ledger == unchanged || self.replace(&mut file, before.len() as u64, &ledger)? {
                self.keep_old(&old)?;
                return Ok(outcome);
            }
        }
        Err(RegistryError::Restless { path: self.path.clone() })
    }

    /// Makes room on a full disk: what is finished goes, the old lines first.
    pub fn make_room(&self) -> Result<(), RegistryError> {
        match fs::remove_file(self.old_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.failed("remove")(error));
            }
            Ok(()) | Err(_) => {}
        }
        let _turn = self.turn()?;
        let Some(mut file) = self.open(OFlags::RDONLY)? else { return Ok(()) };
        let before = self.read_all(&mut file)?;
        let mut ledger = Ledger::parse(&before);
        if !ledger.rotate(0).is_empty() {
            self.write_in_place(before.len() as u64, &ledger.to_bytes())?;
        }
        Ok(())
    }

    /// Puts the new lines in place of `old`, of which `read` bytes were read. False when another program was faster.
    fn replace(&self, old: &mut File, read: u64, ledger: &Ledger) -> Result<bool, RegistryError> {
        let spare = self.folder.join(".registry.tmp");
        let bytes = ledger.to_bytes();
        let mut new = match self.write_spare(&spare, &bytes) {
            Err(error) if error.is_full() => return self.write_in_place(read, &bytes),
            outcome => outcome?,
        };
        if !rename_exchange::exchange_paths(&spare, &self.path).map_err(self.failed("replace"))? {
            // Without an exchange, what is appended within these microseconds is lost.
            fs::rename(&spare, &self.path).map_err(self.failed("replace"))?;
            return Ok(true);
        }
        let displaced = fs::symlink_metadata(&spare).map_err(self.failed("look at"))?;
        let ours = old.metadata().map_err(self.failed("look at"))?;
        let expected = {
            use std::os::unix::fs::MetadataExt;
            (displaced.dev(), displaced.ino()) == (ours.dev(), ours.ino())
        };
        let won = if expected {
            self.carry_over(old, read)?;
            true
        } else {
            rename_exchange::exchange_paths(&spare, &self.path).map_err(self.failed("replace"))?;
            self.carry_over(&mut new, bytes.len() as u64)?;
            false
        };
        fs::remove_file(&spare).map_err(self.failed("remove"))?;
        Ok(won)
    }

    /// For a full disk, where a second file would need the very space that is missing. False when others appended.
    fn write_in_place(&self, read: u64, bytes: &[u8]) -> Result<bool, RegistryError> {
        let Some(mut file) = self.open(OFlags::RDWR)? else { return Ok(false) };
        if file.metadata().map_err(self.failed("look at"))?.len() != read {
            return Ok(false);
        }
        file.write_all(bytes).map_err(self.failed("write to"))?;
        file.set_len(bytes.len() as u64).map_err(self.failed("shorten"))?;
        Ok(true)
    }

    fn write_spare(&self, spare: &Path, bytes: &[u8]) -> Result<File, RegistryError> {
        // Somebody who was killed in the middle left it; whoever has the turn may remove it.
        match fs::remove_file(spare) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.failed("remove")(error));
            }
            Ok(()) | Err(_) => {}
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(spare, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.map_err(|error| self.failed("create")(error.into()))?);
        let written = file.write_all(bytes);
        if written.is_err() {
            let _ = fs::remove_file(spare);
        }
        written.map_err(self.failed("write"))?;
        drop(file);
        // Read from here on, so that the system can tell whether anybody else writes.
        File::open(spare).map_err(self.failed("open"))
    }

    /// Appends to the registry what others appended to a file that is not the registry any more.
    fn carry_over(&self, displaced: &mut File, from: u64) -> Result<(), RegistryError> {
        let patience_ends = Instant::now() + APPENDER_PATIENCE;
        while platform_fs::has_writers(&*displaced) == Some(true) && Instant::now() < patience_ends {
            // Nothing tells when an appender closes the file; it does so within microseconds.
            std::thread::sleep(LOOK_AGAIN);
        }
        let mut tail = Vec::new();
        displaced.seek(SeekFrom::Start(from)).map_err(self.failed("read"))?;
        displaced.read_to_end(&mut tail).map_err(self.failed("read"))?;
        if tail.is_empty() {
            return Ok(());
        }
        let mut file = self
            .open(OFlags::WRONLY | OFlags::APPEND)?
            .ok_or_else(|| RegistryError::Restless { path: self.path.clone() })?;
        file.write_all(&tail).map_err(self.failed("write to"))
    }

    fn keep_old(&self, old: &[u8]) -> Result<(), RegistryError> {
        if old.is_empty() {
            return Ok(());
        }
        let path = self.old_path();
        let large = fs::symlink_metadata(&path).is_ok_and(|meta| meta.len() > KEEP_OLD);
        let kind = if large { OFlags::TRUNC } else { OFlags::APPEND };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | kind;
        let opened = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.map_err(|error| self.failed("open")(error.into()))?);
        file.write_all(old).map_err(self.failed("write to"))
    }

    fn old_path(&self) -> PathBuf {
        self.folder.join("registry.log.1")
    }

    fn begin_in_turn(&self) -> Result<(), RegistryError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(&self.path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                let written = File::from(file).write_all(format!("{HEADER}\n").as_bytes());
                written.map_err(self.failed("write to"))
            }
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(self.failed("create")(error.into())),
        }
    }

    fn open(&self, how: OFlags) -> Result<Option<File>, RegistryError> {
        // NONBLOCK keeps the opening of a FIFO from waiting.
        let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let not_regular = || RegistryError::NotRegular { path: self.path.clone() };
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(not_regular()),
            Err(error) => return Err(self.failed("open")(error.into())),
        };
        let facts = fstat(&file).map_err(|error| self.failed("look at")(error.into()))?;
        let regular = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
        if regular { Ok(Some(File::from(file))) } else { Err(not_regular()) }
    }

    fn read_all(&self, file: &mut File) -> Result<Vec<u8>, RegistryError> {
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(self.failed("read"))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(RegistryError::TooLarge { path: self.path.clone() });
        }
        Ok(bytes)
    }

    fn is_current(&self, file: &File) -> Result<bool, RegistryError> {
        let failed = |error: Errno| self.failed("look at")(error.into());
        match rustix::fs::lstat(&self.path) {
            Ok(found) => Ok(flock::same_file(&found, &fstat(file).map_err(failed)?)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Waits for our turn among our own processes.
    fn turn(&self) -> Result<File, RegistryError> {
        let failed = |source| RegistryError::Io { action: "lock", path: self.folder.clone(), source };
        let folder = File::open(&self.folder).map_err(failed)?;
        flock::lock(&folder).map_err(failed)?;
        Ok(folder)
    }

    fn failed(&self, action: &'static str) -> impl Fn(io::Error) -> RegistryError + '_ {
        move |source| RegistryError::Io { action, path: self.path.clone(), source }
    }
}

fn last_byte(file: &mut File) -> io::Result<u8> {
    let mut byte = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests;
