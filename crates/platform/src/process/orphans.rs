//! Orphans: reaps the processes that this process has adopted as a subreaper, and leaves the children of its own code alone.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use super::checked;

/// The pids of children that their own code waits for.
static GUARDED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Keeps [`reap_orphans`] from reaping a child that other code waits for, until it is dropped.
#[derive(Debug)]
pub struct ChildGuard {
    /// `None` for a child of any thread but the main thread: nobody takes it for an orphan.
    pid: Option<u32>,
}

impl ChildGuard {
    /// Starts a child and guards it. [`reap_orphans`] waits until this is done.
    ///
    /// Other threads than the main thread need no guard: they start many children at once and do not wait for a lock.
    pub fn start<C>(
        start: impl FnOnce() -> io::Result<C>,
        pid: impl FnOnce(&C) -> u32,
    ) -> io::Result<(C, Self)> {
        if !is_main_thread() {
            return start().map(|child| (child, Self { pid: None }));
        }
        let mut guarded = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
        let child = start()?;
        let pid = pid(&child);
        guarded.insert(pid);
        Ok((child, Self { pid: Some(pid) }))
    }

    /// Guards a process that is a child of this one, or becomes one when its parent dies.
    pub(crate) fn of(pid: u32) -> Self {
        GUARDED.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
        Self { pid: Some(pid) }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            GUARDED.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        }
    }
}

/// Says whether this is the main thread: Linux makes orphans its children. Other systems have no subreapers.
fn is_main_thread() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::thread::gettid() == rustix::process::getpid();
    #[cfg(not(target_os = "linux"))]
    false
}

/// Reaps the orphans that this process adopted as a subreaper and that have ended. Returns the pids of those that still
/// live. Leaves children with a [`ChildGuard`] alone, and those of other threads than the main thread.
pub fn reap_orphans() -> Vec<u32> {
    let own = std::process::id();
    let path = format!("/proc/{own}/task/{own}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let numbers = text.split_ascii_whitespace().filter_map(|number| number.parse().ok());
    let mut alive = Vec::new();
    // Taken after the list was read: a child of our own in the list has its guard by then.
    let guarded = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
    for number in numbers.filter(|number| !guarded.contains(number)) {
        let Some(pid) = checked(number) else { continue };
        if let Ok(None) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG) {
            alive.push(number);
        }
    }
    alive
}
