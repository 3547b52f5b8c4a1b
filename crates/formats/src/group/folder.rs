//! Lock folders: finds or creates the lock file of a group, and opens it safely.
//!
//! The folder is `LOCK_DIR`, by default `/tmp/ce_locks`. If a group's file cannot be created there (disk full,
//! read-only, another user's folder), it is created in the fallback folder `~/.cache/ce_locks`. A group must never have
//! two lock files, so:
//!
//! 1. A file in the fallback folder comes first. A process had to create it there, and later processes use it too, also
//!    when `LOCK_DIR` works again.
//! 2. Else a file in `LOCK_DIR` is used, even if it can only be opened for reading, which is enough to lock it. If it
//!    exists and cannot be opened at all, that is an error, because others may hold it.
//! 3. Only a group without a file in both folders gets a new one, in `LOCK_DIR` if possible. Every process makes this
//!    choice under a `flock` on the user's home folder, so two processes cannot choose differently.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use lockkeeper_platform::flock;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat};
use rustix::io::Errno;

use super::{GroupError, GroupId, failed};
use crate::registry::Registry;

/// The default folder of this format's scripts.
const DEFAULT: &str = "/tmp/ce_locks";

/// The lock folder and the fallback folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    first: PathBuf,
    /// The user's cache folder. The fallback folder is `ce_locks` in it.
    cache: Option<PathBuf>,
}

/// Why the fallback folder is used.
#[derive(Debug)]
pub enum FallbackReason {
    /// The file cannot be created in the first folder.
    CannotCreate(Box<GroupError>),
    /// The file is already in the fallback folder, and others may hold the lock there.
    InUse,
}

/// An open lock file, not locked yet.
#[derive(Debug)]
pub struct Opened {
    /// An open file description of its own.
    pub file: OwnedFd,
    /// Its path.
    pub path: PathBuf,
    /// Its identity.
    pub stat: Stat,
    /// The registry in the same folder.
    pub registry: Registry,
    /// Why it is in the fallback folder, if it is.
    pub fallback: Option<FallbackReason>,
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

    /// Returns the first folder, `LOCK_DIR`.
    pub fn first(&self) -> &Path {
        &self.first
    }

    /// Returns the folders that exist, the first one first.
    pub fn existing(&self) -> Vec<PathBuf> {
        let both = [Some(self.first.clone()), self.second()];
        both.into_iter().flatten().filter(|folder| folder.is_dir()).collect()
    }

    /// Creates the first folder and its registry if they are missing.
    pub fn create_first(&self) -> Result<(), GroupError> {
        make_folder(&self.first)
    }

    /// Opens the lock file of a group. Creates it, its folder and the registry if they are missing.
    pub fn open(&self, group: &GroupId) -> Result<Opened, GroupError> {
        if let Some(found) = self.find(group)? {
            return Ok(found);
        }
        let _choosing = self.lock_choice();
        if let Some(found) = self.find(group)? {
            return Ok(found);
        }
        let refusal = match create(&self.first, group) {
            Ok(opened) => return Ok(opened),
            Err(refusal) if lets_fall_back(&refusal) => refusal,
            Err(refusal) => return Err(refusal),
        };
        // If the disk is full, old lines of the registry are removed first.
        if is_full(&refusal)
            && Registry::new(&self.first).make_room().is_ok()
            && let Ok(opened) = create(&self.first, group)
        {
            return Ok(opened);
        }
        let Some(second) = self.second() else { return Err(refusal) };
        match create(&second, group) {
            Ok(opened) => {
                Ok(Opened { fallback: Some(FallbackReason::CannotCreate(Box::new(refusal))), ..opened })
            }
            Err(second) => Err(GroupError::NoFolder { first: Box::new(refusal), second: Box::new(second) }),
        }
    }

    /// Opens the lock file if it exists.
    pub fn find(&self, group: &GroupId) -> Result<Option<Opened>, GroupError> {
        if let Some(second) = self.second()
            && let Some(opened) = open_existing(&second, group)?
        {
            return Ok(Some(Opened { fallback: Some(FallbackReason::InUse), ..opened }));
        }
        match open_existing(&self.first, group) {
            // The locks in another user's folder belong to that user.
            Err(GroupError::ForeignOwner { path, .. }) if path == self.first => Ok(None),
            outcome => outcome,
        }
    }

    /// Returns the fallback folder.
    pub fn second(&self) -> Option<PathBuf> {
        self.cache.as_ref().map(|cache| cache.join("ce_locks"))
    }

    /// Locks the folder above the cache folder, normally the user's home, which exists already. It is held while a new
    /// file is created. Without a cache folder there is nothing to choose.
    fn lock_choice(&self) -> Option<File> {
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
    let Some(stat) = check_folder(folder)? else { return Ok(None) };
    let name = group.file_name();
    let refused = match open_in(folder, &name, OFlags::RDWR) {
        Err(GroupError::Io { source, .. }) if is_denied(&source) => open_in(folder, &name, OFlags::RDONLY),
        outcome => outcome,
    };
    match refused {
        Err(GroupError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(GroupError::Io { path, source, .. }) if is_denied(&source) => {
            let hidden = rustix::fs::lstat(&path).is_err();
            let own = stat.st_uid == rustix::process::geteuid().as_raw();
            // In another user's folder we cannot see whether it exists. The locks there belong to that user.
            if hidden && !own { Ok(None) } else { Err(GroupError::Inaccessible { path, source }) }
        }
        outcome => outcome.map(Some),
    }
}

/// Opens a file and checks what was opened, so that nobody can replace it in between.
pub(super) fn open_in(folder: &Path, name: &str, how: OFlags) -> Result<Opened, GroupError> {
    let path = folder.join(name);
    // With NONBLOCK, opening a FIFO does not wait. It has no effect on files.
    let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(Errno::LOOP) => return Err(GroupError::Link { path }),
        Err(Errno::ISDIR | Errno::NXIO) => {
            return Err(GroupError::WrongKind { path, wanted: "a regular file" });
        }
        Err(error) => return Err(failed("open", path)(error)),
    };
    let stat = fstat(&file).map_err(failed("look at", &path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(GroupError::WrongKind { path, wanted: "a regular file" });
    }
    let folder_owner = rustix::fs::stat(folder).map_err(failed("look at", folder))?.st_uid;
    let own = rustix::process::geteuid().as_raw();
    if stat.st_uid != own && stat.st_uid != folder_owner {
        return Err(GroupError::ForeignOwner { path, owner: stat.st_uid });
    }
    Ok(Opened { file, path, stat, registry: Registry::new(folder), fallback: None })
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
    match Registry::new(folder).create_if_missing() {
        // A lock works without a registry.
        Err(error) if !error.is_full() && !is_read_only(folder) => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn is_read_only(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err()
}

/// Checks the owner of a folder. Follows a link only if we or root own it.
fn check_folder(folder: &Path) -> Result<Option<Stat>, GroupError> {
    let own = rustix::process::geteuid();
    let trusted = |uid: u32| uid == own.as_raw() || uid == 0 || own.is_root();
    let link = match rustix::fs::statat(CWD, folder, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
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
    let stat = rustix::fs::stat(folder).map_err(failed("look at", folder))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(GroupError::WrongKind { path: folder.to_owned(), wanted: "a folder" });
    }
    if trusted(stat.st_uid) {
        Ok(Some(stat))
    } else {
        Err(GroupError::ForeignOwner { path: folder.to_owned(), owner: stat.st_uid })
    }
}

/// Says whether an error proves that the file is not in the first folder, and cannot be created there.
fn lets_fall_back(refusal: &GroupError) -> bool {
    match refusal {
        GroupError::Io { source, .. } => matches!(
            source.kind(),
            ErrorKind::StorageFull
                | ErrorKind::QuotaExceeded
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::PermissionDenied
        ),
        // Another user owns the whole folder. A single file of another user would be an attack.
        GroupError::ForeignOwner { path, .. } => path.is_dir(),
        GroupError::Registry(error) => error.is_full(),
        GroupError::Link { .. }
        | GroupError::WrongKind { .. }
        | GroupError::Inaccessible { .. }
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
