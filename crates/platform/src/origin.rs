//! Origin of claims: the host name, the boot id and the pid namespace of this process.

use std::io;

use lockkeeper_core::liveness::Origin;

/// Returns where claims of this process are made.
///
/// No part changes while a process lives, so callers ask once. If somebody changes the host name, this counts as
/// another machine, and only the TTL can end its claims.
pub fn origin() -> io::Result<Origin> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Origin { host, boot: boot()?, pid_namespace: pid_namespace()? })
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
