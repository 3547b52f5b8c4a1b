//! Where the lock file of a group is, and how it is opened safely.
//!
//! The folder is `LOCK_DIR`, by default `/tmp/ce_locks`. Where a group's file cannot be created there (disk full,
//! read-only, another user's folder) it goes to `~/.cache/ce_locks` instead. One lock must never become two, so:
//!
//! 1. A file in the cache folder counts before everything else: it is there only because somebody had to go there, and
//!    whoever comes later goes there too, also when `LOCK_DIR` works again.
//! 2. Else a file in `LOCK_DIR` counts, even if it can only be opened for reading, which is enough to lock it. If it
//!    is there and cannot be opened at all, that is an error: others hold it there.
//! 3. Only a group that has no file in either folder gets a new one, in `LOCK_DIR` if possible. That choice is made
//!    under a `flock` on the user's home folder, by everyone, so two processes cannot choose differently.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat};
use rustix::io::Errno;

use super::{GroupError, GroupId, failed};
use crate::registry::Registry;
use lockkeeper_platform::flock;

/// Where the scripts of this format keep their locks.
const DEFAULT: &str = "/tmp/ce_locks";

/// The folder that was asked for and the one to fall back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    first: PathBuf,
    /// The user's cache folder, in which `ce_locks` is the folder to fall back to.
    cache: Option<PathBuf>,
}

/// Why the first folder is not used.
#[derive(Debug)]
pub enum Unusable {
    /// The file cannot be created there now.
    Now(Box<GroupError>),
    /// It could not when the group was first used, and others may still hold the lock in the other folder.
    Before,
}

/// An open lock file, not locked yet.
#[derive(Debug)]
pub struct Opened {
    /// A description of its own.
    pub file: OwnedFd,
    /// Where it is.
    pub path: PathBuf,
    /// Which file it is.
    pub facts: Stat,
    /// The registry beside it.
    pub registry: Registry,
    /// Why it is not in the first folder, if it is not.
    pub unusable: Option<Unusable>,
}

impl Folders {
    /// Reads `LOCK_DIR`, `XDG_CACHE_HOME` and `HOME`.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let first = set("LOCK_DIR").unwrap_or_else(|| PathBuf::from(DEFAULT));
        let cache = set("XDG_CACHE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| set("HOME").filter(|home| home.is_absolute()).map(|home| home.join(".cache")));
        let first = std::path::absolute(&first).unwrap_or(first);
        let cache = cache.filter(|cache| cache.join("ce_locks") != first);
        Self { first, cache }
    }

    /// The folder that was asked for.
    pub fn first(&self) -> &Path {
        &self.first
    }

    /// Those of the folders that exist, the first one first.
    pub fn existing(&self) -> Vec<PathBuf> {
        let both = [Some(self.first.clone()), self.second()];
        both.into_iter().flatten().filter(|folder| folder.is_dir()).collect()
    }

    /// Makes the first folder with its registry, unless that has to wait for the first lock.
    pub fn begin(&self) -> Result<(), GroupError> {
        make_folder(&self.first)
    }

    /// Opens the lock file of a group; makes it, its folder and the registry where they are missing.
    pub fn open(&self, group: &GroupId) -> Result<Opened, GroupError> {
        if let Some(found) = self.find(group)? {
            return Ok(found);
        }
        let _choosing = self.choose_alone();
        if let Some(found) = self.find(group)? {
            return Ok(found);
        }
        let refusal = match create(&self.first, group) {
            Ok(opened) => return Ok(opened),
            Err(refusal) if lets_fall_back(&refusal) => refusal,
            Err(refusal) => return Err(refusal),
        };
        // Old logs first, if space is what is missing.
        if is_full(&refusal)
            && Registry::new(&self.first).make_room().is_ok()
            && let Ok(opened) = create(&self.first, group)
        {
            return Ok(opened);
        }
        let Some(second) = self.second() else { return Err(refusal) };
        match create(&second, group) {
            Ok(opened) => Ok(Opened { unusable: Some(Unusable::Now(Box::new(refusal))), ..opened }),
            Err(second) => Err(GroupError::NoFolder { first: Box::new(refusal), second: Box::new(second) }),
        }
    }

    /// Opens the lock file that is there already.
    pub fn find(&self, group: &GroupId) -> Result<Option<Opened>, GroupError> {
        if let Some(second) = self.second()
            && let Some(opened) = open_existing(&second, group)?
        {
            return Ok(Some(Opened { unusable: Some(Unusable::Before), ..opened }));
        }
        match open_existing(&self.first, group) {
            // Another user's folder: its locks are that user's own.
            Err(GroupError::Forged { path, .. }) if path == self.first => Ok(None),
            outcome => outcome,
        }
    }

    /// The folder to fall back to.
    pub fn second(&self) -> Option<PathBuf> {
        self.cache.as_ref().map(|cache| cache.join("ce_locks"))
    }

    /// Held while a new file is placed: a lock on the folder above the cache folder, normally the user's home, which
    /// is there before anybody needs it. Without one there is nothing to choose.
    fn choose_alone(&self) -> Option<File> {
        let folder = File::open(self.cache.as_ref()?.parent()?).ok()?;
        flock::lock(&folder).ok()?;
        Some(folder)
    }
}

fn create(folder: &Path, group: &GroupId) -> Result<Opened, GroupError> {
    make_folder(folder)?;
    open_in(folder, &group.file_name(), OFlags::RDWR | OFlags::CREATE)
}

fn open_existing(folder: &Path, group: &GroupId) -> Result<Option<Opened>, GroupError> {
    let Some(facts) = check_folder(folder)? else { return Ok(None) };
    let name = group.file_name();
    let refused = match open_in(folder, &name, OFlags::RDWR) {
        Err(GroupError::Io { source, .. }) if is_denied(&source) => open_in(folder, &name, OFlags::RDONLY),
        outcome => outcome,
    };
    match refused {
        Err(GroupError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(GroupError::Io { path, source, .. }) if is_denied(&source) => {
            let hidden = rustix::fs::lstat(&path).is_err();
            let own = facts.st_uid == rustix::process::geteuid().as_raw();
            // Whether it is there cannot be seen in another user's folder: its locks are that user's own.
            if hidden && !own { Ok(None) } else { Err(GroupError::Barred { path, source }) }
        }
        outcome => outcome.map(Some),
    }
}

/// Opens a file and looks at what was opened, so that nothing can be put in its place in between.
pub(super) fn open_in(folder: &Path, name: &str, how: OFlags) -> Result<Opened, GroupError> {
    let path = folder.join(name);
    // NONBLOCK keeps the opening of a FIFO from waiting; it means nothing for files.
    let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::LOOP) => return Err(GroupError::Link { path }),
        Err(Errno::ISDIR | Errno::NXIO) => {
            return Err(GroupError::WrongKind { path, wanted: "a regular file" });
        }
        Err(error) => return Err(failed("open", path)(error)),
    };
    let facts = fstat(&file).map_err(failed("look at", &path))?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
        return Err(GroupError::WrongKind { path, wanted: "a regular file" });
    }
    let folder_owner = rustix::fs::stat(folder).map_err(failed("look at", folder))?.st_uid;
    let own = rustix::process::geteuid().as_raw();
    if facts.st_uid != own && facts.st_uid != folder_owner {
        return Err(GroupError::Forged { path, owner: facts.st_uid });
    }
    Ok(Opened { file, path, facts, registry: Registry::new(folder), unusable: None })
}

fn is_denied(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

fn make_folder(folder: &Path) -> Result<(), GroupError> {
    if check_folder(folder)?.is_none() {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let made = builder.recursive(true).create(folder);
        made.map_err(|source| GroupError::Io { action: "create", path: folder.to_owned(), source })?;
        check_folder(folder)?;
    }
    match Registry::new(folder).begin() {
        // The lock itself needs no registry.
        Err(error) if !error.is_full() && !is_read_only(folder) => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_read_only(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err()
}

/// Checks who can put files there. A link is followed only if we or the system's owner made it.
fn check_folder(folder: &Path) -> Result<Option<Stat>, GroupError> {
    let own = rustix::process::geteuid();
    let trusted = |uid: u32| uid == own.as_raw() || uid == 0 || own.is_root();
    let link = match rustix::fs::statat(CWD, folder, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) => facts,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR) => {
            return Err(GroupError::WrongKind { path: folder.to_owned(), wanted: "inside a folder" });
        }
        Err(error) => return Err(failed("look at", folder)(error)),
    };
    let is_link = FileType::from_raw_mode(link.st_mode) == FileType::Symlink;
    if is_link && link.st_uid != own.as_raw() && link.st_uid != 0 {
        return Err(GroupError::Link { path: folder.to_owned() });
    }
    let facts = rustix::fs::stat(folder).map_err(failed("look at", folder))?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::Directory {
        return Err(GroupError::WrongKind { path: folder.to_owned(), wanted: "a folder" });
    }
    if trusted(facts.st_uid) {
        Ok(Some(facts))
    } else {
        Err(GroupError::Forged { path: folder.to_owned(), owner: facts.st_uid })
    }
}

/// Whether a refusal means that the file provably is not and cannot be in the first folder.
fn lets_fall_back(refusal: &GroupError) -> bool {
    match refusal {
        GroupError::Io { source, .. } => matches!(
            source.kind(),
            ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::PermissionDenied
        ),
        // A whole folder of another user; a single forged file is an attack instead.
        GroupError::Forged { path, .. } => path.is_dir(),
        GroupError::Registry(error) => error.is_full(),
        GroupError::Link { .. }
        | GroupError::WrongKind { .. }
        | GroupError::Barred { .. }
        | GroupError::NoFolder { .. }
        | GroupError::NotOpen { .. }
        | GroupError::OtherFile { .. }
        | GroupError::Replaced { .. } => false,
    }
}

fn is_full(refusal: &GroupError) -> bool {
    matches!(refusal, GroupError::Io { source, .. }
        if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}
