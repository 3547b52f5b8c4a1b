//! Where this process runs: the machine, its boot and the pid namespace.

use std::io;

use lockkeeper_core::liveness::Origin;

/// Tells where claims of this process are made.
///
/// Neither part changes while a process lives (a changed host name counts as another machine, where only time
/// proves anything), so callers ask once.
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
    super::apple::boot_session()
}

/// Other Unixes have no id of a boot: its second is taken, from the wall clock less the time since. When the wall
/// clock is set, a claim of before counts as one of another boot, so such machines should keep their clock.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn boot() -> io::Result<String> {
    use rustix::time::{ClockId, clock_gettime};

    let since_boot = clock_gettime(ClockId::Monotonic).tv_sec;
    let wall = clock_gettime(ClockId::Realtime).tv_sec;
    // The two clocks drift apart by fractions of a second: minutes are safe.
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
    fn the_origin_is_complete_and_stays() {
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
