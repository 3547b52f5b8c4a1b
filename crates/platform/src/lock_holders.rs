//! Lock holders: which processes hold a file lock now, and which wait for it, according to the kernel.
//!
//! A file lock belongs to an open file description. So its holders are all processes that have that description open;
//! the process that took the lock may have ended long ago. Linux shows the locks of each descriptor in
//! `/proc/PID/fdinfo`, and the waiting processes in `/proc/locks`. An ordinary user cannot see the processes of other
//! users, and on other systems nobody can see any: [`LockHolders::complete`] says whether everything was visible.

use lockkeeper_core::liveness::ProcessRef;

use super::{holder_process, process};

/// A process that holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockProcess {
    /// The process.
    pub process: ProcessRef,
    /// Its command line, in one short line.
    pub command: String,
    /// Whether a signal has stopped it (SIGSTOP, Ctrl-Z): it does nothing until it is continued.
    pub is_stopped: bool,
    /// For a holder, the process that took the lock, if the system shows it. A process that inherited the lock is another one.
    pub taker: Option<u32>,
}

impl LockProcess {
    /// Describes a process.
    pub fn of(process: ProcessRef) -> Self {
        let command = holder_process::command_line(process.pid);
        Self { process, command, is_stopped: process::is_stopped(process), taker: None }
    }
}

/// The holders of the lock on one file, and the processes that wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockHolders {
    /// The processes that have the locked description open.
    pub holders: Vec<LockProcess>,
    /// The processes that wait for the lock.
    pub waiters: Vec<LockProcess>,
    /// Whether every process of this user could be inspected. Other users cannot open a file with mode 0600.
    pub complete: bool,
}

/// The identity of a file: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

impl FileId {
    /// Returns the identity in the result of `stat(2)`.
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::unnecessary_cast, reason = "the type differs between systems")
    )]
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self { device: stat.st_dev as u64, inode: stat.st_ino }
    }
}

/// Finds the processes that hold or wait for the `flock(2)` locks on several files; one result for each file.
pub fn find(files: &[FileId]) -> Vec<LockHolders> {
    system::find(files)
}

/// Finds a process that has the `flock(2)` lock on a file. If several share it, a stopped one: the others may wait for it.
///
/// Of the processes of other users only the one that took the lock is visible, and of those in other pid namespaces none.
pub fn holder(file: FileId) -> Option<LockProcess> {
    let shared = find(&[file]).pop().map(|found| found.holders).unwrap_or_default();
    shared.into_iter().max_by_key(|holder| holder.is_stopped).or_else(|| system::taker(file))
}

/// Says whether descriptor `number` of this process carries a `flock(2)` lock; `None` when the system does not show it.
pub fn carries_lock(number: i32) -> Option<bool> {
    system::carries_lock(number)
}

/// Returns the other processes that share an open-file-description lock on one byte of a file.
pub fn sharing(file: FileId, byte: u64) -> Vec<ProcessRef> {
    system::sharing(file, byte)
}

/// Returns the topmost ancestor that has `file` open as descriptor `number`, without a gap in between.
///
/// Children inherit what a shell has opened, so the lock ends when this process ends.
pub fn opener(number: i32, file: FileId) -> Option<ProcessRef> {
    system::opener(number, file)
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use lockkeeper_core::liveness::ProcessRef;

    use super::{FileId, LockHolders, LockProcess};
    use crate::{process, process_table};

    /// The most ancestors that are visited, so that the search ends even if the process table changes meanwhile.
    const MAX_STEPS: usize = 256;

    pub(super) fn find(files: &[FileId]) -> Vec<LockHolders> {
        let mut found = vec![LockHolders { complete: true, ..LockHolders::default() }; files.len()];
        // The name of each file in `/proc/locks`. Its device may differ from the one that stat(2) shows.
        let mut names: Vec<Option<String>> = vec![None; files.len()];
        let own = rustix::process::geteuid().as_raw();
        let pids = fs::read_dir("/proc").into_iter().flatten();
        for pid in pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
            let descriptors = match fs::read_dir(format!("/proc/{pid}/fd")) {
                Ok(descriptors) => descriptors,
                Err(error) => {
                    let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
                    let hidden =
                        denied && fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == own);
                    found.iter_mut().for_each(|holders| holders.complete &= !hidden);
                    continue;
                }
            };
            for descriptor in descriptors.flatten() {
                let Ok(meta) = fs::metadata(descriptor.path()) else { continue };
                let id = FileId { device: meta.dev(), inode: meta.ino() };
                let Some(place) = files.iter().position(|file| *file == id) else { continue };
                let number = descriptor.file_name();
                let info = format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy());
                let Some((name, taker)) = fs::read_to_string(info).ok().and_then(|info| locked_as(&info))
                else {
                    continue;
                };
                names[place] = Some(name);
                let known = found[place].holders.iter().any(|holder| holder.process.pid == pid);
                let holder = if known { None } else { lock_process(pid) };
                found[place].holders.extend(holder.map(|holder| LockProcess { taker, ..holder }));
            }
        }
        let table = fs::read_to_string("/proc/locks").unwrap_or_default();
        for (holders, name) in found.iter_mut().zip(names) {
            let Some(name) = name else { continue };
            holders.waiters = waiting_pids(&table, &name).filter_map(lock_process).collect();
        }
        found
    }

    pub(super) fn carries_lock(number: i32) -> Option<bool> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        Some(locked_as(&info).is_some())
    }

    pub(super) fn sharing(file: FileId, byte: u64) -> Vec<ProcessRef> {
        let own = std::process::id();
        let pids = fs::read_dir("/proc").into_iter().flatten();
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let shares = |pid: &u32| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            descriptors.into_iter().any(|descriptor| {
                let number = descriptor.file_name();
                fs::metadata(descriptor.path())
                    .is_ok_and(|meta| FileId { device: meta.dev(), inode: meta.ino() } == file)
                    && fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy()))
                        .is_ok_and(|info| locks_byte(&info, byte))
            })
        };
        pids.filter(|pid| *pid != own).filter(shares).filter_map(|pid| process::identify(pid).ok()).collect()
    }

    pub(super) fn opener(number: i32, file: FileId) -> Option<ProcessRef> {
        let mut pid = process_table::own_info().ok()?.parent;
        let mut outermost = None;
        for _ in 0..MAX_STEPS {
            let Ok(meta) = fs::metadata(format!("/proc/{pid}/fd/{number}")) else { break };
            if (FileId { device: meta.dev(), inode: meta.ino() }) != file {
                break;
            }
            let Ok(found) = process::identify(pid) else { break };
            outermost = Some(found);
            let Ok(facts) = process_table::info(pid) else { break };
            pid = facts.parent;
        }
        outermost
    }

    pub(super) fn taker(file: FileId) -> Option<LockProcess> {
        let (major, minor) = (rustix::fs::major(file.device), rustix::fs::minor(file.device));
        let name = format!("{major:02x}:{minor:02x}:{}", file.inode);
        let table = fs::read_to_string("/proc/locks").unwrap_or_default();
        taking_pid(&table, &name).and_then(lock_process)
    }

    fn lock_process(pid: u32) -> Option<LockProcess> {
        process::identify(pid).ok().map(LockProcess::of)
    }

    /// Returns device and inode, and the process that took the lock, of `lock: 1: FLOCK  ADVISORY  WRITE 4711 00:2a:99 0 EOF`.
    fn locked_as(info: &str) -> Option<(String, Option<u32>)> {
        let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.map(|lock| lock.split_ascii_whitespace().collect::<Vec<_>>()).find_map(
            |words| match words[..] {
                [_, "FLOCK", _, _, taker, name, ..] => Some((name.to_owned(), taker.parse().ok())),
                _ => None,
            },
        )
    }

    /// Says whether there is a line such as `lock: 1: OFDLCK ADVISORY  WRITE -1 00:2a:99 4711 4711` for this byte.
    fn locks_byte(info: &str, byte: u64) -> bool {
        let byte = byte.to_string();
        let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.map(|lock| lock.split_ascii_whitespace().collect::<Vec<_>>()).any(
            |words| matches!(words[..], [_, "OFDLCK", _, "WRITE", _, _, from, to] if from == byte && to == byte),
        )
    }

    /// Returns the pids in lines such as `7: -> FLOCK  ADVISORY  WRITE 4712 00:2a:99 0 EOF`.
    fn waiting_pids<'t>(table: &'t str, name: &'t str) -> impl Iterator<Item = u32> + 't {
        table.lines().filter_map(move |line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [_, "->", "FLOCK", _, _, pid, found, ..] if found == name => pid.parse().ok(),
            _ => None,
        })
    }

    /// Returns the pid in a line such as `7: FLOCK  ADVISORY  WRITE 4711 00:2a:99 0 EOF`.
    fn taking_pid(table: &str, name: &str) -> Option<u32> {
        table.lines().find_map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [_, "FLOCK", _, _, pid, found, ..] if found == name => pid.parse().ok(),
            _ => None,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::lock_holders::holder;

        #[test]
        fn the_lines_of_the_kernel_are_parsed() {
            let info = "pos:\t0\nflags:\t02\nlock:\t1: FLOCK  ADVISORY  WRITE 4711 00:2a:99 0 EOF\n";
            assert_eq!(locked_as(info), Some(("00:2a:99".to_owned(), Some(4711))));
            assert_eq!(locked_as("pos:\t0\nlock:\t1: OFDLCK ADVISORY  READ -1 00:2a:99 0 0\n"), None);
            let table = "1: FLOCK  ADVISORY  WRITE 4711 00:2a:99 0 EOF\n\
                1: -> FLOCK  ADVISORY  WRITE 4712 00:2a:99 0 EOF\n\
                1: -> FLOCK  ADVISORY  WRITE 4713 00:2a:98 0 EOF\n";
            assert_eq!(waiting_pids(table, "00:2a:99").collect::<Vec<_>>(), [4712]);
            assert_eq!(taking_pid(table, "00:2a:99"), Some(4711));
            assert_eq!(taking_pid(table, "00:2a:98"), None, "it only waits");
        }

        #[test]
        fn this_process_is_found_as_the_holder() {
            let file = tempfile::tempfile().unwrap();
            let meta = file.metadata().unwrap();
            let id = FileId { device: meta.dev(), inode: meta.ino() };
            assert!(find(&[id])[0].holders.is_empty());
            file.lock().unwrap();
            let holders = &find(&[id])[0].holders;
            assert_eq!(holders.len(), 1);
            assert_eq!(holders[0].process, process::current().unwrap());
            use std::os::fd::AsRawFd;
            assert_eq!(carries_lock(file.as_raw_fd()), Some(true));
            assert_eq!(holder(id).as_ref(), Some(&holders[0]));
            assert!(!holders[0].is_stopped);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use lockkeeper_core::liveness::ProcessRef;

    use super::{FileId, LockHolders, LockProcess};

    pub(super) fn find(files: &[FileId]) -> Vec<LockHolders> {
        vec![LockHolders::default(); files.len()]
    }

    pub(super) fn carries_lock(_number: i32) -> Option<bool> {
        None
    }

    pub(super) fn opener(_number: i32, _file: FileId) -> Option<ProcessRef> {
        None
    }

    pub(super) fn taker(_file: FileId) -> Option<LockProcess> {
        None
    }

    pub(super) fn sharing(_file: FileId, _byte: u64) -> Vec<ProcessRef> {
        Vec::new()
    }
}
