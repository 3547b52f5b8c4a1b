//! macOS process table and boot id, through libproc and sysctl.
#![cfg(target_vendor = "apple")]
#![expect(unsafe_code, reason = "neither libproc nor sysctl has a safe wrapper among our dependencies")]

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;

use super::process_table::{ProcessInfo, TaskState};

/// Returns the kernel's id of this boot.
pub(super) fn boot_session() -> io::Result<String> {
    let bytes = sysctl_by_name(c"kern.bootsessionuuid")?;
    let text = CStr::from_bytes_until_nul(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(text.to_string_lossy().into_owned())
}

/// Asks libproc about a process. Fails with `NotFound` when there is none.
pub(super) fn info(pid: u32) -> io::Result<ProcessInfo> {
    let number = c_int::try_from(pid).map_err(|_| io::ErrorKind::NotFound)?;
    let mut info = MaybeUninit::<libc::proc_bsdinfo>::zeroed();
    let size = size_of::<libc::proc_bsdinfo>() as c_int;
    // SAFETY: the buffer is as large as the size says.
    let filled =
        unsafe { libc::proc_pidinfo(number, libc::PROC_PIDTBSDINFO, 0, info.as_mut_ptr().cast(), size) };
    if filled != size {
        let error = io::Error::last_os_error();
        let gone = error.raw_os_error() == Some(libc::ESRCH);
        return Err(if gone { io::ErrorKind::NotFound.into() } else { error });
    }
    // SAFETY: the kernel filled all of it, and every bit pattern is valid in it.
    let info = unsafe { info.assume_init() };
    let state = match info.pbi_status {
        libc::SZOMB => TaskState::Zombie,
        libc::SSTOP => TaskState::Stopped,
        _ => TaskState::Active,
    };
    Ok(ProcessInfo {
        pid,
        parent: info.pbi_ppid,
        group: info.pbi_pgid,
        session: 0,
        state,
        started: info.pbi_start_tvsec.wrapping_mul(1_000_000).wrapping_add(info.pbi_start_tvusec),
    })
}

/// Returns the entry of this process.
pub(super) fn own_info() -> io::Result<ProcessInfo> {
    info(std::process::id())
}

/// Lists every process of the machine that this user may see.
pub(super) fn all() -> io::Result<Vec<ProcessInfo>> {
    let mut numbers: Vec<libc::pid_t> = vec![0; 32_768];
    let bytes = c_int::try_from(size_of_val(&numbers[..])).unwrap_or(c_int::MAX);
    // SAFETY: the buffer is as large as the size says.
    let count = unsafe { libc::proc_listallpids(numbers.as_mut_ptr().cast(), bytes) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    numbers.truncate(count);
    Ok(numbers.into_iter().filter_map(|number| info(u32::try_from(number).ok()?).ok()).collect())
}

/// Returns the command line; empty when it cannot be read.
pub(super) fn arguments(pid: u32) -> Vec<String> {
    let Ok(number) = c_int::try_from(pid) else { return Vec::new() };
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, number];
    let bytes = sysctl(&mut name).unwrap_or_default();
    parse_arguments(&bytes).unwrap_or_default()
}

/// The layout is: the number of arguments, the path of the program, padding, then the arguments.
fn parse_arguments(bytes: &[u8]) -> Option<Vec<String>> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_ne_bytes(*count)).ok()?;
    let path_end = rest.iter().position(|byte| *byte == 0)?;
    let padding = rest[path_end..].iter().take_while(|byte| **byte == 0).count();
    let words = rest[path_end + padding..].split(|byte| *byte == 0).take(count);
    Some(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

fn sysctl_by_name(name: &CStr) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 256];
    let mut length = bytes.len();
    let buffer = bytes.as_mut_ptr().cast::<c_void>();
    // SAFETY: the buffer is as large as the length says; nothing is set.
    let outcome =
        unsafe { libc::sysctlbyname(name.as_ptr(), buffer, &raw mut length, std::ptr::null_mut(), 0) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn sysctl(name: &mut [c_int]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 256 * 1024];
    let mut length = bytes.len();
    let buffer = bytes.as_mut_ptr().cast::<c_void>();
    let words = name.len() as libc::c_uint;
    // SAFETY: name and buffer are as long as their lengths say; nothing is set.
    let outcome =
        unsafe { libc::sysctl(name.as_mut_ptr(), words, buffer, &raw mut length, std::ptr::null_mut(), 0) };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(length);
    Ok(bytes)
}
