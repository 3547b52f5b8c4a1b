//! Starting a command without a copy of this process, and with exactly the descriptors that it is to have.
//!
//! std does that too, but not when a folder is given and the program is linked statically: then it forks, which costs
//! more the larger this process is. And it hands no descriptors on but the first three; others have to be open to
//! whatever is started at the same moment. Here many threads start commands at once and none gets another's.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::process::Pid;

/// What is to be started.
#[derive(Debug)]
pub struct Start<'s> {
    /// The file. A relative path begins at `dir`.
    pub file: &'s Path,
    /// What the program is told that it is called, and its arguments.
    pub words: Vec<&'s OsStr>,
    /// The whole environment; of the same name the last counts.
    pub env: &'s [(OsString, OsString)],
    /// The folder to run in, if not the present one.
    pub dir: Option<&'s Path>,
    /// The file that it appends its output and its errors to, with nothing to read; this process's own streams if there
    /// is none.
    pub log: Option<&'s Path>,
    /// What the command has open besides: which descriptor of this process, under which number.
    pub descriptors: Vec<(BorrowedFd<'s>, i32)>,
}

/// Starts a command in a process group of its own, with no signal blocked and SIGPIPE as it is by default. None where
/// only std can start one.
pub fn start(start: &Start<'_>) -> io::Result<Option<Pid>> {
    #[cfg(target_os = "linux")]
    return linux::start(start).map(Some);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = start;
        Ok(None)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::atomic::{AtomicI32, Ordering};

    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::Start;
    use crate::signal;

    /// Enough for the few calls that the new process makes before its program begins.
    const STACK: usize = 32 * 1024;

    /// As posix_spawn(3) does it. But that asks for the handler of every signal there is, and maps a stack each time:
    /// together a tenth of what the start of a small program costs.
    pub(super) fn start(start: &Start<'_>) -> io::Result<Pid> {
        let file = text(start.file.as_os_str())?;
        let words = start.words.iter().map(|word| text(word)).collect::<io::Result<Vec<_>>>()?;
        let env = environment(start.env)?;
        let dir = start.dir.map(|dir| text(dir.as_os_str())).transpose()?;
        let log = start.log.map(|log| text(log.as_os_str())).transpose()?;
        let beginning = Beginning {
            file: &file,
            words: pointers(&words),
            env: pointers(&env),
            dir: dir.as_deref(),
            log: log.as_deref(),
            descriptors: start.descriptors.iter().map(|(one, number)| (one.as_raw_fd(), *number)).collect(),
            others: others(start.descriptors.iter().map(|(_, number)| *number)),
            failed: AtomicI32::new(0),
        };
        let pid = clone(&beginning)?;
        match beginning.failed.load(Ordering::SeqCst) {
            0 => Ok(pid),
            number => {
                // It has ended. Whoever takes in orphans may have been faster.
                let _ = rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
                Err(io::Error::from_raw_os_error(number))
            }
        }
    }

    /// What the new process does before its program begins, prepared so that it only has to make the calls.
    struct Beginning<'b> {
        file: &'b CStr,
        words: Vec<*const c_char>,
        env: Vec<*const c_char>,
        dir: Option<&'b CStr>,
        log: Option<&'b CStr>,
        descriptors: Vec<(c_int, c_int)>,
        /// Which numbers it has nothing under, from the first to the last.
        others: Vec<(c_int, c_int)>,
        /// Why its program did not begin.
        failed: AtomicI32,
    }

    /// Returns when the program has begun, or the new process has ended.
    fn clone(beginning: &Beginning<'_>) -> io::Result<Pid> {
        thread_local! {
            static OF_THIS_THREAD: RefCell<Box<[MaybeUninit<u8>]>> =
                RefCell::new(Box::<[u8]>::new_uninit_slice(STACK));
        }
        OF_THIS_THREAD.with_borrow_mut(|stack| clone_on(stack, beginning))
    }

    #[expect(unsafe_code, reason = "neither std nor rustix can start a command like this")]
    fn clone_on(stack: &mut [MaybeUninit<u8>], beginning: &Beginning<'_>) -> io::Result<Pid> {
        let end = stack.as_mut_ptr_range().end;
        // It grows downwards, from where every system wants it.
        let top = end.wrapping_sub(end.addr() % 64);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let told = std::ptr::from_ref(beginning).cast_mut();
        let (pid, error) = signal::undisturbed(|| {
            // SAFETY: the new process has a stack of its own, and this thread sleeps until it uses our memory no more:
            // what it is pointed to is there, and nobody changes it. It makes calls that a signal handler may make, and
            // does nothing else: it asks for no memory, takes no lock and cannot panic.
            let pid = unsafe { libc::clone(begin, top.cast(), flags, told.cast()) };
            (pid, io::Error::last_os_error())
        });
        if pid < 0 { Err(error) } else { Ok(Pid::from_raw(pid).expect("a process has a number above 0")) }
    }

    #[expect(unsafe_code, reason = "as above")]
    extern "C" fn begin(told: *mut c_void) -> c_int {
        // SAFETY: whoever started this process waits, and has it.
        let beginning = unsafe { &*told.cast_const().cast::<Beginning<'_>>() };
        let prepared = prepare(beginning);
        if prepared.is_ok() {
            // SAFETY: both lists end with a null pointer, and every text with a null byte.
            unsafe {
                libc::execve(beginning.file.as_ptr(), beginning.words.as_ptr(), beginning.env.as_ptr())
            };
        }
        let error = prepared.err().unwrap_or_else(io::Error::last_os_error);
        beginning.failed.store(error.raw_os_error().unwrap_or(libc::EINVAL), Ordering::SeqCst);
        // SAFETY: nothing of this process's memory is touched any more.
        unsafe { libc::_exit(127) }
    }

    #[expect(unsafe_code, reason = "as above")]
    fn prepare(beginning: &Beginning<'_>) -> io::Result<()> {
        // SAFETY: the texts end with a null byte, and descriptors that are not there are refused. Nothing in this process
        // uses those that are closed.
        unsafe {
            for (descriptor, number) in &beginning.descriptors {
                checked(match descriptor == number {
                    true => libc::fcntl(*number, libc::F_SETFD, 0),
                    false => libc::dup2(*descriptor, *number),
                })?;
            }
            // They would be closed anyway when the program begins. But until then this process would share the locks of
            // all other commands, which others look at. Where the system cannot do it, they look again.
            for (first, last) in &beginning.others {
                libc::syscall(libc::SYS_close_range, *first, *last, 0);
            }
            checked(libc::setpgid(0, 0))?;
            if let Some(log) = beginning.log {
                // What is opened gets the lowest number that is free.
                libc::close(0);
                checked(libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY))?;
                libc::close(1);
                // Its path begins at this process's folder.
                checked(libc::open(log.as_ptr(), libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW))?;
                checked(libc::dup2(1, 2))?;
            }
            if let Some(dir) = beginning.dir {
                checked(libc::chdir(dir.as_ptr()))?;
            }
        }
        signal::begin_anew()
    }

    /// The numbers above the first three that are none of these.
    fn others(numbers: impl Iterator<Item = c_int>) -> Vec<(c_int, c_int)> {
        let mut numbers: Vec<c_int> = numbers.filter(|number| *number > 2).collect();
        numbers.sort_unstable();
        let firsts = std::iter::once(3).chain(numbers.iter().map(|number| number + 1));
        let lasts = numbers.iter().map(|number| number - 1).chain([c_int::MAX]);
        firsts.zip(lasts).filter(|(first, last)| first <= last).collect()
    }

    fn checked(outcome: c_int) -> io::Result<()> {
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn text(text: &OsStr) -> io::Result<CString> {
        Ok(CString::new(text.as_bytes())?)
    }

    fn environment(variables: &[(OsString, OsString)]) -> io::Result<Vec<CString>> {
        let different: BTreeMap<&OsStr, &OsStr> =
            variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
        let entry = |(name, value): (&OsStr, &OsStr)| {
            let mut entry = name.to_owned();
            entry.push("=");
            entry.push(value);
            text(&entry)
        };
        different.into_iter().map(entry).collect()
    }

    /// As the system wants lists of texts.
    fn pointers(texts: &[CString]) -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::fd::{AsFd, AsRawFd};

    /// What a shell script writes, that is started with these.
    fn written(script: &str, env: &[(&str, &str)], dir: Option<&Path>, passed_on: &[(&File, i32)]) -> String {
        let mut output = tempfile::NamedTempFile::new().unwrap();
        let env: Vec<_> = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let descriptors = passed_on.iter().map(|(file, number)| (file.as_fd(), *number)).collect();
        let log = Some(output.path());
        let words = ["called so", "-c", script].map(OsStr::new).to_vec();
        let pid = start(&Start { file: Path::new("/bin/sh"), words, env: &env, dir, log, descriptors })
            .unwrap()
            .unwrap();
        let ended = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        assert_eq!(ended.unwrap().1.exit_status(), Some(0));
        output.rewind().unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_command_gets_its_words_environment_and_folder_and_a_group_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let env = [("A", "1"), ("B", "2"), ("A", "3")];
        let script =
            "echo $0 $A $B; pwd; cut -d ' ' -f 5 /proc/$$/stat; echo $$; grep SigBlk /proc/self/status";
        let text = written(script, &[env[0], env[1], env[2], ("PATH", "/usr/bin:/bin")], Some(&dir), &[]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["called so 3 2", dir.to_str().unwrap()]);
        assert_eq!(lines[2], lines[3]);
        assert_eq!(lines[4].split_ascii_whitespace().last(), Some("0000000000000000"));
    }

    #[test]
    fn only_what_is_passed_on_is_open() {
        let (mut one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let text = written("echo kept >&9; ls /proc/$$/fd", &[("PATH", "/usr/bin:/bin")], None, &[(&one, 9)]);
        assert!(text.lines().any(|line| line == "9"), "{text}");
        assert!(!text.lines().any(|line| line == other.as_raw_fd().to_string() && line != "9"), "{text}");
        let mut kept = String::new();
        one.rewind().unwrap();
        one.read_to_string(&mut kept).unwrap();
        assert_eq!(kept, "kept\n");
    }

    #[test]
    fn no_handler_and_no_ignored_pipe_is_handed_on() {
        let received = crate::signal::Signals::receive(&[crate::signal::Signal::USR1]);
        let script = "grep -E 'Sig(Ign|Cgt)' /proc/self/status";
        let text = written(script, &[("PATH", "/usr/bin:/bin")], None, &[]);
        drop(received);
        let sets: Vec<u64> = text
            .lines()
            .map(|line| u64::from_str_radix(line.split_ascii_whitespace().last().unwrap(), 16).unwrap())
            .collect();
        let bit = |signal: i32| 1 << (signal - 1);
        // std lets this process ignore SIGPIPE.
        assert_eq!((sets[0] & bit(libc::SIGPIPE), sets[1] & bit(libc::SIGUSR1)), (0, 0), "{text}");
    }

    #[test]
    fn a_start_that_fails_leaves_nothing_behind() {
        let words = vec![OsStr::new("nothing")];
        let nothing = Start {
            file: Path::new("/nowhere/nothing"),
            words,
            env: &[],
            dir: None,
            log: None,
            descriptors: Vec::new(),
        };
        assert!(start(&nothing).is_err());
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
        assert_eq!(children, "");
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let begin = |file: &str, dir: Option<&str>| {
            let (words, dir) = (vec![OsStr::new(file)], dir.map(Path::new));
            start(&Start { file: Path::new(file), words, env: &[], dir, log: None, descriptors: Vec::new() })
                .unwrap_err()
                .kind()
        };
        assert_eq!(begin("/nowhere/true", None), io::ErrorKind::NotFound);
        assert_eq!(begin("/", None), io::ErrorKind::PermissionDenied);
        assert_eq!(begin("/bin/true", Some("/nowhere")), io::ErrorKind::NotFound);
        assert_eq!(begin("/bin/tr\0ue", None), io::ErrorKind::InvalidInput);
    }
}
