//! Process table: parent, group, state and start time of a process, from `/proc` or libproc.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
mod other;

/// The entry of one process, read at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    /// 0 where it is not known, for example in another pid namespace.
    pub(super) session: u32,
    pub(super) state: TaskState,
    /// Start time: ticks since boot on Linux, microseconds of the wall clock on macOS. Only compared for equality.
    pub(super) started: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    /// It runs or sleeps.
    Active,
    /// A signal stopped it. It may be continued at any time.
    Stopped,
    /// It ended, and its parent has not waited for it yet.
    Zombie,
}

/// Where exec put the program of a process: its code, its stack and its arguments. A fork has the addresses of its parent.
/// Each exec chooses them at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryLayout {
    code: u64,
    stack: u64,
    arguments: u64,
}

/// Which of the keyboard's signals a process ignores. Shells let their background jobs ignore them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IgnoredSignals {
    pub(super) interrupt: bool,
    pub(super) quit: bool,
}

#[cfg(target_vendor = "apple")]
pub(super) use super::macos::{all, arguments, info, own_info};

#[cfg(target_os = "linux")]
pub(super) use linux::{
    all, arguments, environment_value, has_environment_entry, ignored_signals, info, is_thread,
    memory_layout, own_info, reads_output_of, user, zombie_status,
};

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub(super) use other::{all, arguments, info, own_info};

#[cfg(not(target_os = "linux"))]
pub(super) fn user(_pid: u32) -> Option<u32> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn memory_layout(_pid: u32) -> Option<MemoryLayout> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn ignored_signals(_pid: u32) -> IgnoredSignals {
    IgnoredSignals::default()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn reads_output_of(_reader: u32, _writer: u32) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn zombie_status(_process: lockkeeper_core::liveness::ProcessRef) -> Option<i32> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn has_environment_entry(_pid: u32, _entry: &[u8]) -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn environment_value(_pid: u32, _name: &str) -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_thread(_pid: u32) -> bool {
    false
}
