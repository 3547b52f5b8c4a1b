//! Who really has a file locked now, and who waits for it, by the kernel's own word.
//!
//! A file lock belongs to an open file description, so its holders are all processes that have that description open:
//! the process that took it may be long gone. Linux shows the locks of each descriptor in `/proc/PID/fdinfo`, and
//! those who wait in `/proc/locks`. Processes of other users stay hidden from ordinary users, and so does everything
//! on other systems: a [`Sight`] says whether it is complete.

use lockkeeper_core::liveness::ProcessRef;

/// A process that shares a lock or waits for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locker {
    /// The process.
    pub process: ProcessRef,
    /// Its command line, in one short line.
    pub command: String,
}

/// What can be seen of the locks on one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Everyone who has the locked description open.
    pub holders: Vec<Locker>,
    /// Everyone who waits.
    pub waiters: Vec<Locker>,
    /// Whether every process of this user could be looked at. Those of others cannot open a file that is ours alone.
    pub complete: bool,
}

/// A file, as the system tells files apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Its device.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

impl FileId {
    /// The file that was looked at.
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::unnecessary_cast, reason = "the type differs between systems")
    )]
    pub fn of(facts: &rustix::fs::Stat) -> Self {
        Self { device: facts.st_dev as u64, inode: facts.st_ino }
    }
}

/// Looks at the whole-file locks on several files at once; one answer for each.
pub fn look(files: &[FileId]) -> Vec<Sight> {
    here::look(files)
}

/// Whether this process's descriptor `number` itself carries a whole-file lock; `None` when the system does not tell.
pub fn carries_lock(number: i32) -> Option<bool> {
    here::carries_lock(number)
}

/// The processes that share the lock of one open file description on one byte of a file, this one left out.
pub fn sharing(file: FileId, byte: u64) -> Vec<ProcessRef> {
    here::sharing(file, byte)
}

/// The outermost ancestor in an unbroken line that has `file` open as descriptor `number`.
///
/// What a shell opened is inherited downwards only, so this is the process that the lock lives and dies with.
pub fn opener(number: i32, file: FileId) -> Option<ProcessRef> {
    here::opener(number, file)
}

#[cfg(target_os = "linux")]
mod here {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::{FileId, Locker, Sight};
    use crate::{anchor, facts, process};
    use lockkeeper_core::liveness::ProcessRef;

    /// A table that changes under the walk cannot make it endless.
    const MAX_STEPS: usize = 256;

    pub(super) fn look(files: &[FileId]) -> Vec<Sight> {
        let mut sights = vec![Sight { complete: true, ..Sight::default() }; files.len()];
        // How `/proc/locks` calls the file: not always by the device that stat(2) shows.
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
                    sights.iter_mut().for_each(|sight| sight.complete &= !hidden);
                    continue;
                }
            };
            for descriptor in descriptors.flatten() {
                let Ok(meta) = fs::metadata(descriptor.path()) else { continue };
                let id = FileId { device: meta.dev(), inode: meta.ino() };
                let Some(place) = files.iter().position(|file| *file == id) else { continue };
                let number = descriptor.file_name();
                let info = format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy());
                let Some(name) = fs::read_to_string(info).ok().and_then(|info| locked_as(&info)) else {
                    continue;
                };
                names[place] = Some(name);
                let known = sights[place].holders.iter().any(|holder| holder.process.pid == pid);
                sights[place].holders.extend(if known { None } else { locker(pid) });
            }
        }
        let table = fs::read_to_string("/proc/locks").unwrap_or_default();
        for (sight, name) in sights.iter_mut().zip(names) {
            let Some(name) = name else { continue };
            sight.waiters = waiting_pids(&table, &name).filter_map(locker).collect();
        }
        sights
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
        let mut pid = facts::own().ok()?.parent;
        let mut outermost = None;
        for _ in 0..MAX_STEPS {
            let Ok(meta) = fs::metadata(format!("/proc/{pid}/fd/{number}")) else { break };
            if (FileId { device: meta.dev(), inode: meta.ino() }) != file {
                break;
            }
            let Ok(found) = process::identify(pid) else { break };
            outermost = Some(found);
            let Ok(facts) = facts::of(pid) else { break };
            pid = facts.parent;
        }
        outermost
    }

    fn locker(pid: u32) -> Option<Locker> {
        let process = process::identify(pid).ok()?;
        Some(Locker { process, command: anchor::command_line(pid) })
    }

    /// `lock: 1: FLOCK  ADVISORY  WRITE 4711 00:2a:99 0 EOF`: the device and inode in it, as the kernel writes them.
    fn locked_as(info: &str) -> Option<String> {
        let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.map(|lock| lock.split_ascii_whitespace().collect::<Vec<_>>()).find_map(
            |words| match words[..] {
                [_, "FLOCK", _, _, _, name, ..] => Some(name.to_owned()),
                _ => None,
            },
        )
    }

    /// `lock: 1: OFDLCK ADVISORY  WRITE -1 00:2a:99 4711 4711`: a lock on exactly this byte.
    fn locks_byte(info: &str, byte: u64) -> bool {
        let byte = byte.to_string();
        let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
        locks.map(|lock| lock.split_ascii_whitespace().collect::<Vec<_>>()).any(
            |words| matches!(words[..], [_, "OFDLCK", _, "WRITE", _, _, from, to] if from == byte && to == byte),
        )
    }

    /// `7: -> FLOCK  ADVISORY  WRITE 4712 00:2a:99 0 EOF`.
    fn waiting_pids<'t>(table: &'t str, name: &'t str) -> impl Iterator<Item = u32> + 't {
        table.lines().filter_map(move |line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [_, "->", "FLOCK", _, _, pid, found, ..] if found == name => pid.parse().ok(),
            _ => None,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_kernels_tables_are_read() {
            let info = "pos:\t0\nflags:\t02\nlock:\t1: FLOCK  ADVISORY  WRITE 4711 00:2a:99 0 EOF\n";
            assert_eq!(locked_as(info).as_deref(), Some("00:2a:99"));
            assert_eq!(locked_as("pos:\t0\nlock:\t1: OFDLCK ADVISORY  READ -1 00:2a:99 0 0\n"), None);
            let table = "1: FLOCK  ADVISORY  WRITE 4711 00:2a:99 0 EOF\n\
                1: -> FLOCK  ADVISORY  WRITE 4712 00:2a:99 0 EOF\n\
                1: -> FLOCK  ADVISORY  WRITE 4713 00:2a:98 0 EOF\n";
            assert_eq!(waiting_pids(table, "00:2a:99").collect::<Vec<_>>(), [4712]);
        }

        #[test]
        fn this_process_is_seen_to_hold() {
            let file = tempfile::tempfile().unwrap();
            let meta = file.metadata().unwrap();
            let id = FileId { device: meta.dev(), inode: meta.ino() };
            assert!(look(&[id])[0].holders.is_empty());
            file.lock().unwrap();
            let holders = &look(&[id])[0].holders;
            assert_eq!(holders.len(), 1);
            assert_eq!(holders[0].process, process::current().unwrap());
            use std::os::fd::AsRawFd;
            assert_eq!(carries_lock(file.as_raw_fd()), Some(true));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod here {
    use super::{FileId, Sight};
    use lockkeeper_core::liveness::ProcessRef;

    pub(super) fn look(files: &[FileId]) -> Vec<Sight> {
        vec![Sight::default(); files.len()]
    }

    pub(super) fn carries_lock(_number: i32) -> Option<bool> {
        None
    }

    pub(super) fn opener(_number: i32, _file: FileId) -> Option<ProcessRef> {
        None
    }

    pub(super) fn sharing(_file: FileId, _byte: u64) -> Vec<ProcessRef> {
        Vec::new()
    }
}
