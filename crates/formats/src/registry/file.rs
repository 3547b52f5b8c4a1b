//! Registry file: our processes, appending shells and `sed -i` change it at the same time.
//!
//! Our own processes take turns with a `flock` on the folder, which leaves nothing behind. A new line is one appending
//! write, so other programs can append at the same time. To change a line, we write a whole new file and exchange it with
//! the old one. A shell may still append to the old file. Its lines are carried over when nobody has the old file open
//! for writing any more, so no foreign line is lost. If another program replaced the file in between, the exchange is
//! undone and repeated on the new version. One case remains: a `sed -i` that read the file before our change undoes the
//! change with its rename. The next `cleanup` makes the change again.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lockkeeper_platform::{flock, fs as platform_fs, rename_exchange};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use rustix::io::Errno;

use super::{Entry, HEADER, Ledger, MAX_BYTES, RegistryError};

/// Above this size, old finished lines move to `registry.log.1`.
pub const ROTATE_ABOVE: usize = 64 * 1024;
const KEEP: usize = ROTATE_ABOVE / 2;
/// Above this size, `registry.log.1` is started again.
const KEEP_OLD: u64 = 256 * 1024;
/// How long a program that appends may take between opening the file and closing it.
const APPENDER_LIMIT: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_micros(200);
/// How many times to try. A try fails only if another program replaced the file in between.
const TRIES: usize = 50;

/// The registry of one lock folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    folder: PathBuf,
    path: PathBuf,
}

impl Registry {
    /// Describes the registry of a folder, which may be missing.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), path: folder.join("registry.log") }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file with its header if it is missing.
    pub fn create_if_missing(&self) -> Result<(), RegistryError> {
        let _locked = self.lock_folder()?;
        self.create_locked()
    }

    /// Reads all lines; none when there is no file.
    pub fn read(&self) -> Result<Ledger, RegistryError> {
        match self.open(OFlags::RDONLY)? {
            Some(mut file) => Ok(Ledger::parse(&self.read_all(&mut file)?)),
            None => Ok(Ledger::default()),
        }
    }

    /// Adds a line.
    pub fn append(&self, entry: &Entry) -> Result<(), RegistryError> {
        let locked = self.lock_folder()?;
        self.create_locked()?;
        for _ in 0..TRIES {
            let Some(mut file) = self.open(OFlags::RDWR | OFlags::APPEND)? else {
                self.create_locked()?;
                continue;
            };
            let length = file.metadata().map_err(self.failed("look at"))?.len();
            if length > ROTATE_ABOVE as u64 {
                drop(locked);
                return self.edit(|ledger| ledger.push(entry.clone()));
            }
            // If the last line is incomplete, ours starts on a new line.
            let torn = length > 0 && last_byte(&mut file).map_err(self.failed("read"))? != b'\n';
            let line = format!("{}{entry}\n", if torn { "\n" } else { "" });
            file.write_all(line.as_bytes()).map_err(self.failed("write to"))?;
            // If the file was replaced meanwhile, the line may be missing in the new one.
            if self.is_current(&file)? || self.read()?.entries().any(|found| found == entry) {
                return Ok(());
            }
        }
        Err(RegistryError::KeepsChanging { path: self.path.clone() })
    }

    /// Changes lines. Other programs see the change in one step. Writes nothing when nothing changed.
    pub fn edit<T>(&self, mut change: impl FnMut(&mut Ledger) -> T) -> Result<T, RegistryError> {
        let _locked = self.lock_folder()?;
        for _ in 0..TRIES {
            let Some(mut file) = self.open(OFlags::RDONLY)? else {
                self.create_locked()?;
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
        Err(RegistryError::KeepsChanging { path: self.path.clone() })
    }

    /// Frees space on a full disk: removes `registry.log.1` and all finished lines.
    pub fn make_room(&self) -> Result<(), RegistryError> {
        match fs::remove_file(self.old_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.failed("remove")(error));
            }
            Ok(()) | Err(_) => {}
        }
        let _locked = self.lock_folder()?;
        let Some(mut file) = self.open(OFlags::RDONLY)? else { return Ok(()) };
        let before = self.read_all(&mut file)?;
        let mut ledger = Ledger::parse(&before);
        if !ledger.rotate(0).is_empty() {
            self.write_in_place(before.len() as u64, &ledger.to_bytes())?;
        }
        Ok(())
    }

    /// Replaces the file `old`, of which `read` bytes were read. Returns false when another program was faster.
    fn replace(&self, old: &mut File, read: u64, ledger: &Ledger) -> Result<bool, RegistryError> {
        let spare = self.folder.join(".registry.tmp");
        let bytes = ledger.to_bytes();
        let mut new = match self.write_spare(&spare, &bytes) {
            Err(error) if error.is_full() => return self.write_in_place(read, &bytes),
            outcome => outcome?,
        };
        if !rename_exchange::exchange_paths(&spare, &self.path).map_err(self.failed("replace"))? {
            // Without an exchange, lines that others append within these microseconds are lost.
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

    /// Overwrites the file, for a full disk that has no space for a second file. Returns false when others appended.
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
        // A process that was killed left it behind. We have the folder locked, so we may remove it.
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
        // Opened for reading now, so that the system can say whether another process writes to it.
        File::open(spare).map_err(self.failed("open"))
    }

    /// Appends the lines to the registry that others appended to a replaced file.
    fn carry_over(&self, displaced: &mut File, from: u64) -> Result<(), RegistryError> {
        let give_up_at = Instant::now() + APPENDER_LIMIT;
        while platform_fs::has_writers(&*displaced) == Some(true) && Instant::now() < give_up_at {
            // There is no event for closing a file. Other programs close it within microseconds.
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
            .ok_or_else(|| RegistryError::KeepsChanging { path: self.path.clone() })?;
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

    fn create_locked(&self) -> Result<(), RegistryError> {
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
        // With NONBLOCK, opening a FIFO does not wait.
        let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let not_regular = || RegistryError::NotRegular { path: self.path.clone() };
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(not_regular()),
            Err(error) => return Err(self.failed("open")(error.into())),
        };
        let stat = fstat(&file).map_err(|error| self.failed("look at")(error.into()))?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
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

    /// Locks the folder against our own processes.
    fn lock_folder(&self) -> Result<File, RegistryError> {
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
