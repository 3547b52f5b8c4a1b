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
    use std::collections::BTreeMap;
    use std::ffi::{CStr, CString, OsStr, OsString, c_char};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    use rustix::process::Pid;

    use super::Start;

    #[expect(unsafe_code, reason = "neither std nor rustix can start a command like this")]
    pub(super) fn start(start: &Start<'_>) -> io::Result<Pid> {
        let file = text(start.file.as_os_str())?;
        let words = start.words.iter().map(|word| text(word)).collect::<io::Result<Vec<_>>>()?;
        let env = environment(start.env)?;
        let dir = start.dir.map(|dir| text(dir.as_os_str())).transpose()?;
        let log = start.log.map(|log| text(log.as_os_str())).transpose()?;
        let mut actions = Actions::new()?;
        // Its path begins at this process's folder.
        if let Some(log) = &log {
            actions.open(c"/dev/null", 0, libc::O_RDONLY)?;
            actions.open(log, 1, libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW)?;
            actions.copy(1, 2)?;
        }
        if let Some(dir) = &dir {
            actions.change_folder(dir)?;
        }
        for (descriptor, number) in &start.descriptors {
            actions.copy(descriptor.as_raw_fd(), *number)?;
        }
        let attributes = Attributes::of_own_group()?;
        let (words, env) = (pointers(&words), pointers(&env));
        let mut pid = 0;
        // SAFETY: both lists end with a null pointer, everything that is pointed to outlives the call, and nothing of it
        // is changed.
        let outcome = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                file.as_ptr(),
                &raw const actions.raw,
                &raw const attributes.raw,
                words.as_ptr(),
                env.as_ptr(),
            )
        };
        checked(outcome)?;
        Pid::from_raw(pid).ok_or_else(|| io::Error::other("a command was started without a number"))
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

    /// As the system wants lists of texts; it does not change them.
    fn pointers(texts: &[CString]) -> Vec<*mut c_char> {
        texts.iter().map(|text| text.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
    }

    /// These functions return what others leave in `errno`.
    fn checked(outcome: i32) -> io::Result<()> {
        match outcome {
            0 => Ok(()),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// What happens in the new process before the program begins.
    struct Actions {
        raw: libc::posix_spawn_file_actions_t,
    }

    #[expect(unsafe_code, reason = "as above")]
    impl Actions {
        fn new() -> io::Result<Self> {
            let mut raw = MaybeUninit::uninit();
            // SAFETY: the call fills in what it is pointed to.
            checked(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
            // SAFETY: it succeeded.
            Ok(Self { raw: unsafe { raw.assume_init() } })
        }

        fn change_folder(&mut self, dir: &CString) -> io::Result<()> {
            // SAFETY: the actions were made, and the text is copied.
            checked(unsafe { libc::posix_spawn_file_actions_addchdir_np(&raw mut self.raw, dir.as_ptr()) })
        }

        fn open(&mut self, path: &CStr, number: i32, flags: i32) -> io::Result<()> {
            // SAFETY: the actions were made, and the text is copied.
            checked(unsafe {
                libc::posix_spawn_file_actions_addopen(&raw mut self.raw, number, path.as_ptr(), flags, 0)
            })
        }

        /// Whoever calls keeps the descriptor open until the actions are used.
        fn copy(&mut self, descriptor: i32, number: i32) -> io::Result<()> {
            // SAFETY: the actions were made; the descriptor is only noted.
            checked(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.raw, descriptor, number) })
        }
    }

    #[expect(unsafe_code, reason = "as above")]
    impl Drop for Actions {
        fn drop(&mut self) {
            // SAFETY: the actions were made, and nobody uses them any more.
            unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.raw) };
        }
    }

    /// What the new process is like.
    struct Attributes {
        raw: libc::posix_spawnattr_t,
    }

    #[expect(unsafe_code, reason = "as above")]
    impl Attributes {
        fn of_own_group() -> io::Result<Self> {
            let mut raw = MaybeUninit::uninit();
            // SAFETY: the call fills in what it is pointed to.
            checked(unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
            // SAFETY: it succeeded.
            let mut attributes = Self { raw: unsafe { raw.assume_init() } };
            let none = signals(&[])?;
            let by_default = signals(&[libc::SIGPIPE])?;
            let flags =
                libc::POSIX_SPAWN_SETPGROUP | libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
            let raw = &raw mut attributes.raw;
            // SAFETY: the attributes were made, and the sets are copied. The flags fit into their type.
            unsafe {
                checked(libc::posix_spawnattr_setpgroup(raw, 0))?;
                checked(libc::posix_spawnattr_setsigmask(raw, &raw const none))?;
                checked(libc::posix_spawnattr_setsigdefault(raw, &raw const by_default))?;
                checked(libc::posix_spawnattr_setflags(raw, flags as libc::c_short))?;
            }
            Ok(attributes)
        }
    }

    #[expect(unsafe_code, reason = "as above")]
    impl Drop for Attributes {
        fn drop(&mut self) {
            // SAFETY: the attributes were made, and nobody uses them any more.
            unsafe { libc::posix_spawnattr_destroy(&raw mut self.raw) };
        }
    }

    #[expect(unsafe_code, reason = "as above")]
    fn signals(members: &[i32]) -> io::Result<libc::sigset_t> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the first call fills in what it is pointed to, the others change it. They fail only for other numbers.
        unsafe {
            if libc::sigemptyset(set.as_mut_ptr()) != 0 {
                return Err(io::Error::last_os_error());
            }
            for member in members {
                if libc::sigaddset(set.as_mut_ptr(), *member) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(set.assume_init())
        }
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
