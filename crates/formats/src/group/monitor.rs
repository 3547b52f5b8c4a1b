//! Deadlock monitor lock: the one monitor of a lock folder holds `deadlock_monitor.pid` locked while it runs.
//!
//! The monitor of the shell scripts only writes its pid there, and locks nothing. While it runs, it is the monitor of the folder: we
//! start no second one, and do not overwrite its pid.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_platform::lock_holders::{self, FileId, LockProcess};
use lockkeeper_platform::{flock, process};
use rustix::fs::{OFlags, fstat};

use super::folder::open_in;
use super::{Folders, GroupError, failed};

const NAME: &str = "deadlock_monitor.pid";
/// The name of our monitor in the process table.
pub const MONITOR: &str = "deadlock_monitor";
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox"];
/// The most bytes that are read of the file.
const MAX_PID_TEXT: u64 = 32;
/// Clocks of processes and of files differ by less than this.
const SLACK: Duration = Duration::from_secs(5);
/// A shell may take this long from the start of its monitor until it has written the pid.
const START: Duration = Duration::from_secs(60);

/// The lock of the monitor. Its holder is the monitor, or is about to start it.
#[derive(Debug)]
pub struct MonitorLock {
    file: File,
    path: PathBuf,
}

impl MonitorLock {
    /// Takes the lock; `None` when there is a monitor already, ours or another program's.
    pub fn take(folders: &Folders) -> Result<Option<Self>, GroupError> {
        folders.create_first()?;
        let opened = open_in(folders.first(), NAME, OFlags::RDWR | OFlags::CREATE)?;
        let path = opened.path;
        let taken = flock::try_lock(&opened.file);
        match taken.map_err(|source| GroupError::Io { action: "lock", path: path.clone(), source })? {
            true => {
                let file = File::from(opened.file);
                Ok(if foreign(&file).is_some() { None } else { Some(Self { file, path }) })
            }
            false => Ok(None),
        }
    }

    /// Adopts the lock that the starting command passes as standard input; `None` when it passed none.
    pub fn adopt(folders: &Folders) -> Result<Option<Self>, GroupError> {
        let path = folders.first().join(NAME);
        let (Ok(given), Ok(named)) = (fstat(rustix::stdio::stdin()), rustix::fs::lstat(&path)) else {
            return Ok(None);
        };
        if !flock::same_file(&given, &named) {
            return Ok(None);
        }
        let file = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
        Ok(Some(Self { file: File::from(file.map_err(failed("use", &path))?), path }))
    }

    /// Writes the pid of the monitor into the file.
    pub fn sign(&mut self, pid: u32) -> Result<(), GroupError> {
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(format!("{pid}\n").as_bytes())
        };
        let path = self.path.clone();
        write(&mut self.file).map_err(|source| GroupError::Io { action: "write", path, source })
    }

    /// Returns a copy of the descriptor, to pass it to the monitor.
    pub fn share(&self) -> Result<OwnedFd, GroupError> {
        rustix::io::fcntl_dupfd_cloexec(self.file.as_fd(), 3).map_err(failed("share", &self.path))
    }

    /// Returns the process that is the monitor now.
    pub fn holder(folders: &Folders) -> Result<Option<LockProcess>, GroupError> {
        let opened = match open_in(folders.first(), NAME, OFlags::RDONLY) {
            Ok(opened) => opened,
            Err(GroupError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let file = FileId::of(&opened.stat);
        let own = std::process::id();
        let found = lock_holders::find(&[file]).pop().unwrap_or_default();
        let holder = found.holders.into_iter().find(|holder| holder.process.pid != own);
        Ok(holder.or_else(|| foreign(&File::from(opened.file))))
    }
}

/// The monitor of another program: the live process whose pid is in the file, although it has not locked it. A process that
/// started after the pid was written is another one with the same number, and a process that is no monitor was never one.
fn foreign(mut file: &File) -> Option<LockProcess> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(MAX_PID_TEXT).read_to_string(&mut text).ok()?;
    let pid: u32 = text.trim().parse().ok().filter(|pid| *pid != std::process::id())?;
    let process = process::identify(pid).ok()?;
    let written = file.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
    // Its shell writes the pid as soon as it has started it.
    let wrote_it = |age: Duration| age + SLACK >= written && age <= written + START;
    let is_it = process::age(process).is_none_or(wrote_it);
    Some(LockProcess::of(process)).filter(|found| is_it && is_monitor(found))
}

/// Whether a process can be a monitor: ours has this name, and those of the shell scripts are shells.
pub fn is_monitor(process: &LockProcess) -> bool {
    let program = process.command.split_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().trim_start_matches('-');
    name == MONITOR || SHELLS.contains(&name)
}
