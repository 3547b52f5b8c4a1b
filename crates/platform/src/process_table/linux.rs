//! The process table of Linux, from the files of `/proc`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use lockkeeper_core::liveness::ProcessRef;

use super::{IgnoredSignals, MemoryLayout, ProcessInfo, TaskState};

/// How many times, one millisecond apart, the environment of a process is read that is in the middle of exec.
const EXEC_LOOKS: u32 = 200;
/// The number of the first field after the name in a `stat` line.
const FIRST_FIELD: usize = 3;
/// `PF_KTHREAD`: a kernel thread, which has no environment.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Reads `/proc/PID/stat`. Fails with `NotFound` when there is no such process.
pub(crate) fn info(pid: u32) -> io::Result<ProcessInfo> {
    read(&format!("/proc/{pid}/stat"))
}

/// Returns the entry of this process. Fails when `/proc` belongs to another pid namespace.
pub(crate) fn own_info() -> io::Result<ProcessInfo> {
    let info = read("/proc/self/stat")?;
    if info.pid == std::process::id() {
        Ok(info)
    } else {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "/proc shows another pid namespace than this process's",
        ))
    }
}

/// Lists every process in `/proc`, without those that end meanwhile.
pub(crate) fn all() -> io::Result<Vec<ProcessInfo>> {
    let numbers =
        std::fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(numbers.filter_map(|pid| info(pid).ok()).collect())
}

/// Returns the command line; empty when it cannot be read.
pub(crate) fn arguments(pid: u32) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Says whether the process was started with exactly `NAME=value` in its environment.
pub(crate) fn has_environment_entry(pid: u32, entry: &[u8]) -> bool {
    environment(pid).split(|byte| *byte == 0).any(|candidate| candidate == entry)
}

/// Returns the value that a variable had when the process was started.
pub(crate) fn environment_value(pid: u32, name: &str) -> Option<String> {
    let environment = environment(pid);
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Returns the environment that the process was started with; empty when it cannot be read.
///
/// During exec the kernel shows nothing or a part of it. So the bytes only count when their length is the one
/// that the process's `stat` line says.
fn environment(pid: u32) -> Vec<u8> {
    for _ in 0..EXEC_LOOKS {
        let Ok(bytes) = std::fs::read(format!("/proc/{pid}/environ")) else { break };
        let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        match environment_length(&stat) {
            Some(length) if length != bytes.len() as u64 => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Some(_) | None => return bytes,
        }
    }
    Vec::new()
}

/// Returns the length of the environment according to the `stat` line; `None` for a process without memory. An
/// environment that ends at address 0 is not set up yet, so no length is right.
fn environment_length(line: &[u8]) -> Option<u64> {
    let fields = fields(line)?;
    let field = |number: usize| fields.get(number - FIRST_FIELD).copied();
    let number = |index| field(index)?.parse::<u64>().ok();
    if matches!(field(3)?, "Z" | "X" | "x") || number(9)? & KERNEL_THREAD != 0 {
        return None;
    }
    match (number(50)?, number(51)?) {
        (_, 0) => Some(u64::MAX),
        (start, end) => Some(end.saturating_sub(start)),
    }
}

/// Returns the effective user of a process; root for one that hides itself from its own user.
pub(crate) fn user(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid())
}

/// Returns the `wait(2)` status of a zombie.
pub(crate) fn zombie_status(process: ProcessRef) -> Option<i32> {
    let line = std::fs::read(format!("/proc/{}/stat", process.pid)).ok()?;
    let fields = fields(&line)?;
    let field = |number: usize| fields.get(number - FIRST_FIELD).copied();
    let same = field(22)?.parse().map(without_shift) == Ok(process.started);
    // The kernel shows 0, which would mean success, to a user who may not see the status.
    let may_look = std::fs::metadata(format!("/proc/{}", process.pid))
        .is_ok_and(|meta| meta.uid() == rustix::process::geteuid().as_raw());
    let status = field(52)?.parse().ok()?;
    (field(3)? == "Z" && same && (may_look || status != 0)).then_some(status)
}

/// Returns the memory layout. `None` when there is no such process, or this user may not see its addresses: the kernel
/// shows 0 or 1 then.
pub(crate) fn memory_layout(pid: u32) -> Option<MemoryLayout> {
    layout_in(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn layout_in(line: &[u8]) -> Option<MemoryLayout> {
    let fields = fields(line)?;
    let address =
        |number: usize| fields.get(number - FIRST_FIELD)?.parse().ok().filter(|address: &u64| *address > 1);
    Some(MemoryLayout { code: address(26)?, stack: address(28)?, arguments: address(48)? })
}

/// Returns the signals that the process ignores; none when it cannot be seen.
pub(crate) fn ignored_signals(pid: u32) -> IgnoredSignals {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let has = |signal: libc::c_int| mask & (1 << (signal - 1)) != 0;
    IgnoredSignals { interrupt: has(libc::SIGINT), quit: has(libc::SIGQUIT) }
}

/// Says whether one process has the reading end of the pipe open that is the standard output of the other.
pub(crate) fn reads_output_of(reader: u32, writer: u32) -> bool {
    /// In `/proc/PID/fd`, the owner may read a link whose descriptor is open for reading.
    const READABLE: u32 = 0o400;

    let Ok(output) = std::fs::read_link(format!("/proc/{writer}/fd/1")) else { return false };
    let Ok(mut descriptors) = std::fs::read_dir(format!("/proc/{reader}/fd")) else { return false };
    output.to_string_lossy().starts_with("pipe:")
        && descriptors.any(|entry| {
            let Ok(path) = entry.map(|entry| entry.path()) else { return false };
            let is_readable = || path.symlink_metadata().is_ok_and(|meta| meta.mode() & READABLE != 0);
            std::fs::read_link(&path).is_ok_and(|target| target == output) && is_readable()
        })
}

/// Splits the fields of a `stat` line from the state on, which is field 3. The name before it may contain anything.
fn fields(line: &[u8]) -> Option<Vec<&str>> {
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    Some(str::from_utf8(&line[name_end + 1..]).ok()?.split_ascii_whitespace().collect())
}

/// Says whether the number belongs to a thread: `/proc` opens these too, though it does not list them.
pub(crate) fn is_thread(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    leader.is_some_and(|leader| leader.trim().parse() != Ok(pid))
}

fn read(path: &str) -> io::Result<ProcessInfo> {
    // The line has 52 numbers and a name of at most 64 bytes. The start time is well within the first kilobyte.
    let mut buffer = [0; 1024];
    let length = File::open(path)?.read(&mut buffer).map_err(|error| {
        // The process ended between the two calls.
        if error.raw_os_error() == Some(libc::ESRCH) { io::ErrorKind::NotFound.into() } else { error }
    })?;
    let shown = parse(&buffer[..length]);
    let info = shown.map(|shown| ProcessInfo { started: without_shift(shown.started), ..shown });
    info.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("odd {path}")))
}

/// The start time in ticks as processes outside of all time namespaces see it.
fn without_shift(shown: u64) -> u64 {
    let shift = crate::clock::shift_micros();
    if shift == 0 {
        return shown;
    }
    let ticks = i64::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100);
    shown.wrapping_sub((shift * ticks / 1_000_000).cast_unsigned())
}

/// Parses a `stat` line. The name in parentheses may contain `)` and newlines: the fields start after the last `)`.
fn parse(line: &[u8]) -> Option<ProcessInfo> {
    let name_start = line.iter().position(|byte| *byte == b'(')?;
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let pid = str::from_utf8(&line[..name_start]).ok()?.trim().parse().ok()?;
    let mut fields = str::from_utf8(&line[name_end + 1..]).ok()?.split_ascii_whitespace();
    let letter = fields.next()?;
    let mut next = || fields.next()?.parse::<i64>().ok();
    let (parent, group, session) = (next()?, next()?, next()?);
    // Fields 7 to 19 are between the session and the number of threads, field 21 is before the start time.
    let threads = (7..=20).map(|_| next()).last()??;
    let started = (21..=22).map(|_| next()).last()??;
    let state = match letter {
        // A main thread that has ended also shows Z while other threads still run.
        "Z" | "X" | "x" if threads <= 1 => TaskState::Zombie,
        "T" | "t" => TaskState::Stopped,
        _ => TaskState::Active,
    };
    Some(ProcessInfo {
        pid,
        parent: u32::try_from(parent).ok()?,
        group: u32::try_from(group).ok()?,
        session: u32::try_from(session).ok()?,
        state,
        started: u64::try_from(started).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_process_name_is_skipped() {
        let rest = "S 7 11 12 0 -1 4194560 9 0 0 0 1 2 3 4 20 0 5 0 123456 1 2";
        for name in ["sh", "a b", "x) R 1 1 1", "((", ")", "a\nb", ""] {
            let info = parse(format!("42 ({name}) {rest}").as_bytes()).unwrap();
            assert_eq!((info.pid, info.parent, info.started), (42, 7, 123_456), "{name:?}");
            assert_eq!((info.group, info.session, info.state), (11, 12, TaskState::Active));
        }
    }

    #[test]
    fn only_a_zombie_without_live_threads_has_ended() {
        let line = |threads| format!("42 (x) Z 7 11 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 1");
        assert_eq!(parse(line(1).as_bytes()).unwrap().state, TaskState::Zombie);
        assert_eq!(parse(line(3).as_bytes()).unwrap().state, TaskState::Active);
    }

    #[test]
    fn the_length_of_an_environment_is_known_once_the_program_is_loaded() {
        let line = |state: &str, flags: u64, range: &str| {
            format!("42 (x) {state} 7 11 12 0 -1 {flags} {} {range} 0", vec!["1"; 40].join(" "))
        };
        let length = |state, flags, range| environment_length(line(state, flags, range).as_bytes());
        assert_eq!(length("R", 4_194_560, "900 912"), Some(12));
        assert_eq!(length("R", 4_194_560, "900 900"), Some(0));
        assert_eq!(length("R", 4_194_560, "0 0"), Some(u64::MAX));
        assert_eq!(length("S", KERNEL_THREAD, "0 0"), None);
        assert_eq!(length("Z", 4_194_560, "0 0"), None);
        assert!(!environment(std::process::id()).is_empty());
    }

    #[test]
    fn a_layout_that_may_not_be_seen_is_not_known() {
        let line = |code: u64, stack: u64, arguments: u64| {
            let numbers =
                |range: std::ops::RangeInclusive<u32>| range.map(|_| "7").collect::<Vec<_>>().join(" ");
            let (before, after) = (numbers(4..=25), numbers(29..=47));
            format!("42 (a) b) S {before} {code} 9 {stack} {after} {arguments} 9 9 9 0")
        };
        let layout = |code, stack, arguments| layout_in(line(code, stack, arguments).as_bytes());
        assert_eq!(layout(10, 20, 30), Some(MemoryLayout { code: 10, stack: 20, arguments: 30 }));
        assert_eq!((layout(1, 20, 30), layout(10, 0, 30), layout(10, 20, 0)), (None, None, None));
        assert!(memory_layout(std::process::id()).is_some());
    }

    #[test]
    fn an_incomplete_line_is_refused() {
        for text in
            ["", "42", "42 (sh)", "42 (sh) S 1 2 3", "x (sh) S 7 11 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99"]
        {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
