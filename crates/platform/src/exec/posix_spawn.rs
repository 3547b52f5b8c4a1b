//! `posix_spawn(3)`: starts a worker's command without a copy of this process.
//!
//! std cannot do this. It forks as soon as the child has to inherit one more descriptor (`pre_exec`) and, in a static
//! build, when the command has a folder. The cost of a fork grows with the memory of this process. And until exec a
//! forked child holds a copy of every liveness lock, so the worker would see its finished commands as alive.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use rustix::process::Pid;

use crate::signal;

/// The first descriptor after the standard streams.
const FIRST: c_int = 3;
/// A descriptor from this number on is above the places from [`FIRST`] on, to which the inherited descriptors move at first.
pub(super) const LOWEST: c_int = 10;

/// What to start, in the form that libc wants it.
#[derive(Debug)]
pub(super) struct Image {
    /// The file. A relative path starts at `dir`.
    pub(super) file: CString,
    /// The name of the program and its arguments.
    pub(super) args: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub(super) env: Vec<CString>,
    /// The folder to run in.
    pub(super) dir: Option<CString>,
    /// The file that the child opens as standard output and error. Its standard input is empty then.
    pub(super) log: Option<CString>,
}

impl Image {
    /// If a name is there twice in `env`, the last value counts.
    pub(super) fn new(
        file: &Path,
        args: &[&OsStr],
        env: &[(OsString, OsString)],
        dir: Option<&Path>,
        log: Option<&Path>,
    ) -> io::Result<Self> {
        Ok(Self {
            file: c_string(file.as_os_str())?,
            args: args.iter().map(|arg| c_string(arg)).collect::<io::Result<_>>()?,
            env: environment(env)?,
            dir: dir.map(|dir| c_string(dir.as_os_str())).transpose()?,
            log: log.map(|log| c_string(log.as_os_str())).transpose()?,
        })
    }
}

/// Starts a command in a process group of its own, with no signal blocked and the default action for SIGPIPE. It inherits
/// the standard streams and these descriptors, and no others. Each comes with the number that it gets. No descriptor but the first
/// may be one of the places from [`FIRST`] on, of which there are as many as descriptors.
#[expect(unsafe_code, reason = "std has no way to start a command like this")]
pub(super) fn spawn(image: &Image, inherited: &[(BorrowedFd<'_>, c_int)]) -> io::Result<Pid> {
    let actions = FileActions::new(image, inherited)?;
    let attributes = Attributes::new()?;
    let mut pid = 0;
    // SAFETY: both structures are initialised, both lists end with a null pointer, and all texts outlive the call.
    let error = unsafe {
        let (actions, attributes) = (actions.0.as_ptr(), attributes.0.as_ptr());
        let (args, env) = (pointers(&image.args), pointers(&image.env));
        libc::posix_spawn(
            &raw mut pid,
            image.file.as_ptr(),
            actions,
            attributes,
            args.as_ptr().cast(),
            env.as_ptr().cast(),
        )
    };
    checked(error)?;
    Ok(Pid::from_raw(pid).expect("posix_spawn returns a pid above 0"))
}

/// What the child does with its descriptors and its folder, in this order.
struct FileActions(MaybeUninit<libc::posix_spawn_file_actions_t>);

#[expect(unsafe_code, reason = "the structure is initialised, filled and destroyed by libc")]
impl FileActions {
    fn new(image: &Image, inherited: &[(BorrowedFd<'_>, c_int)]) -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        // SAFETY: init fills the structure.
        checked(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) })?;
        let mut actions = Self(actions);
        let list = actions.0.as_mut_ptr();
        let end = FIRST + inherited.len() as c_int;
        let places = || inherited.iter().zip(FIRST..end);
        // SAFETY: the structure is initialised. libc copies the paths.
        unsafe {
            // The other descriptors are closed before exec: until then the child shares the locks of all commands. So the
            // inherited ones move to the first places, and from there to their own numbers.
            for ((descriptor, _), place) in places() {
                checked(libc::posix_spawn_file_actions_adddup2(list, descriptor.as_raw_fd(), place))?;
            }
            checked(libc::posix_spawn_file_actions_addclosefrom_np(list, end))?;
            for ((_, number), place) in places() {
                checked(libc::posix_spawn_file_actions_adddup2(list, place, *number))?;
                checked(libc::posix_spawn_file_actions_addclose(list, place))?;
            }
            if let Some(log) = &image.log {
                let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW;
                let null = c"/dev/null".as_ptr();
                checked(libc::posix_spawn_file_actions_addopen(list, 0, null, libc::O_RDONLY, 0))?;
                checked(libc::posix_spawn_file_actions_addopen(list, 1, log.as_ptr(), flags, 0))?;
                checked(libc::posix_spawn_file_actions_adddup2(list, 1, 2))?;
            }
            if let Some(dir) = &image.dir {
                checked(libc::posix_spawn_file_actions_addchdir_np(list, dir.as_ptr()))?;
            }
        }
        Ok(actions)
    }
}

#[expect(unsafe_code, reason = "as above")]
impl Drop for FileActions {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nobody uses it any more.
        unsafe { libc::posix_spawn_file_actions_destroy(self.0.as_mut_ptr()) };
    }
}

/// The process group and the signals of the child.
struct Attributes(MaybeUninit<libc::posix_spawnattr_t>);

#[expect(unsafe_code, reason = "as above")]
impl Attributes {
    fn new() -> io::Result<Self> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: init fills the structure.
        checked(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        let mut attributes = Self(attributes);
        let list = attributes.0.as_mut_ptr();
        let flags = libc::POSIX_SPAWN_SETPGROUP | libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        // SAFETY: the structure is initialised, and the sets are copied.
        unsafe {
            checked(libc::posix_spawnattr_setflags(list, flags as c_short))?;
            checked(libc::posix_spawnattr_setpgroup(list, 0))?;
            checked(libc::posix_spawnattr_setsigmask(list, &signal::set_of(&[])))?;
            checked(libc::posix_spawnattr_setsigdefault(list, &signal::set_of(&[libc::SIGPIPE])))?;
        }
        Ok(attributes)
    }
}

#[expect(unsafe_code, reason = "as above")]
impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and nobody uses it any more.
        unsafe { libc::posix_spawnattr_destroy(self.0.as_mut_ptr()) };
    }
}

/// These functions return the error number.
fn checked(error: c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

fn environment(variables: &[(OsString, OsString)]) -> io::Result<Vec<CString>> {
    let last: BTreeMap<&OsStr, &OsStr> =
        variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
    let entry = |(name, value): (&OsStr, &OsStr)| c_string(&[name, value].join(OsStr::new("=")));
    last.into_iter().map(entry).collect()
}

/// Returns pointers to the texts, and a null pointer at the end.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}
