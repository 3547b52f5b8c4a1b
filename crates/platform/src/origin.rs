//! Origin of claims: the host name, the boot id and the pid namespace of this process.

use std::io;

use lockkeeper_core::liveness::Origin;

/// Returns where claims of this process are made.
///
/// No part changes while a process lives, so callers ask once. If somebody changes the host name, this counts as
/// another machine, and only the TTL can end its claims.
pub fn origin() -> io::Result<Origin> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Origin { host, boot: boot()?, pid_namespace: pid_namespace()?, session: None })
}

#[cfg(target_os = "linux")]
fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
}

#[cfg(target_vendor = "apple")]
fn boot() -> io::Result<String> {
    super::macos::boot_session()
}

/// Other Unixes have no boot id, so the minute of the boot is used: wall clock minus uptime. If somebody sets the wall
/// clock, earlier claims count as claims of another boot, so nobody should set the clock of such a machine.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn boot() -> io::Result<String> {
    use rustix::time::{ClockId, clock_gettime};

    let since_boot = clock_gettime(ClockId::Monotonic).tv_sec;
    let wall = clock_gettime(ClockId::Realtime).tv_sec;
    // The two clocks drift apart by fractions of a second, so minutes are safe.
    Ok(format!("minute-{}", (wall - since_boot + 30) / 60))
}

#[cfg(target_os = "linux")]
fn pid_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;

    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Only Linux has pid namespaces.
#[cfg(not(target_os = "linux"))]
fn pid_namespace() -> io::Result<u64> {
    Ok(0)
}

/// Says whether a file is older than the pid namespace of this process. Then processes outside of this namespace use it, too,
/// and they cannot see the processes in here. A container that was started again counts as well: its namespace is new.
///
/// False in the first pid namespace, from where all processes can be seen, and where the system does not tell.
#[cfg(target_os = "linux")]
pub fn is_older_than_pid_namespace(file: &std::path::Path) -> bool {
    /// `PROC_PID_INIT_INO`: the first pid namespace of a machine.
    const FIRST: u64 = 0xefff_fffc;

    let is_first = pid_namespace().is_ok_and(|namespace| namespace == FIRST);
    let made = || {
        let facts = std::fs::metadata(file).ok()?;
        facts.created().or_else(|_| facts.modified()).ok()
    };
    match (is_first, made(), namespace_begin()) {
        (false, Some(made), Some(begin)) => made < begin,
        _ => false,
    }
}

/// Only Linux has pid namespaces.
#[cfg(not(target_os = "linux"))]
pub fn is_older_than_pid_namespace(_file: &std::path::Path) -> bool {
    false
}

/// When the first process of this pid namespace started.
#[cfg(target_os = "linux")]
fn namespace_begin() -> Option<std::time::SystemTime> {
    use std::time::{Duration, SystemTime};

    use rustix::time::{ClockId, clock_gettime};

    use super::process_table;

    // Fails if `/proc` shows another pid namespace.
    process_table::own_info().ok()?;
    let ticks = process_table::info(1).ok()?.started;
    let started = Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second());
    let now = |clock| Duration::try_from(clock_gettime(clock)).ok();
    let age = now(ClockId::Boottime)?.checked_sub(started)?;
    SystemTime::UNIX_EPOCH.checked_add(now(ClockId::Realtime)?.checked_sub(age)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_is_complete_and_does_not_change() {
        let here = origin().unwrap();
        assert_eq!(here, origin().unwrap());
        assert!(!here.host.is_empty());
        assert!(here.boot.len() >= 8 && !here.boot.contains(char::is_whitespace), "{here:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_process_sees_the_same_namespace() {
        let link = std::process::Command::new("readlink").arg("/proc/self/ns/pid").output().unwrap();
        let text = String::from_utf8(link.stdout).unwrap();
        assert_eq!(text.trim(), format!("pid:[{}]", origin().unwrap().pid_namespace));
    }
}
