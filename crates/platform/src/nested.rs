//! Processes of nested pid namespaces (containers), seen from the initial pid namespace.
//!
//! The initial namespace shows every process of the machine, each with its numbers in the namespaces below (`NSpid`). So if no
//! process has the recorded number in the recorded namespace, that process is dead. A namespace that is not the initial one
//! shows only those below itself: there a missing process proves nothing.

use lockkeeper_core::liveness::{ProcessRef, ProcessState};

/// Looks for a process of another pid namespace. `Unreadable` if nothing can be said from here.
///
/// It reads the status of every process of the machine.
pub fn look(namespace: u64, process: ProcessRef) -> ProcessState {
    system::look(namespace, process)
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::unix::fs::MetadataExt;

    use super::{ProcessRef, ProcessState};
    use crate::process_table::{self, TaskState};

    /// The inode of the initial pid namespace, which is the same on every machine (`PROC_PID_INIT_INO`).
    const INITIAL: u64 = 0xefff_fffc;

    pub(super) fn look(namespace: u64, process: ProcessRef) -> ProcessState {
        let is_initial = namespace_of("self").is_ok_and(|own| own == INITIAL);
        // If the system hides processes of other users (`hidepid`), it hides process 1, too.
        let sees_all = is_initial && process_table::own_info().is_ok() && pids(1).is_some();
        let Ok(entries) = std::fs::read_dir("/proc") else { return ProcessState::Unreadable };
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut complete = sees_all;
        for pid in numbers {
            match is_process(pid, namespace, process.pid) {
                Ok(false) => {}
                Ok(true) => match process_table::info(pid) {
                    Ok(info) if info.started != process.started => return ProcessState::Reused,
                    Ok(info) if info.state != TaskState::Zombie => return ProcessState::Running,
                    Ok(_) | Err(_) => return ProcessState::Gone,
                },
                Err(_) => complete = false,
            }
        }
        if complete { ProcessState::Gone } else { ProcessState::Unreadable }
    }

    /// Whether this process has the number `inner` in the namespace. Fails if that cannot be read.
    fn is_process(pid: u32, namespace: u64, inner: u32) -> io::Result<bool> {
        match pids(pid).as_deref() {
            Some([_, .., found]) if *found == inner => match namespace_of(&pid.to_string()) {
                Ok(found) => Ok(found == namespace),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            },
            // It has ended meanwhile, it is not in a nested namespace, or it has another number there.
            Some(_) | None => Ok(false),
        }
    }

    /// The numbers of a process, from the namespace of this process down to its own. None if there is no such process.
    fn pids(pid: u32) -> Option<Vec<u32>> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_ascii_whitespace().map(|number| number.parse().ok()).collect()
    }

    fn namespace_of(process: &str) -> io::Result<u64> {
        Ok(std::fs::metadata(format!("/proc/{process}/ns/pid"))?.ino())
    }
}

/// Only Linux has pid namespaces.
#[cfg(not(target_os = "linux"))]
mod system {
    use super::{ProcessRef, ProcessState};

    pub(super) fn look(_namespace: u64, _process: ProcessRef) -> ProcessState {
        ProcessState::Unreadable
    }
}
