//! The log's files: where they are, and opening them without falling for what else may lie there.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::StatusError;

/// The log's name in its folder; older ones have a number behind.
const NAME: &str = "status.log";
/// How often to look again when the log is rotated while its files are being opened.
const LOOKS: usize = 32;

/// Which file it is, whatever its name. Valid while the file is open: numbers of deleted files are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(facts: &Metadata) -> Self {
        Self { device: facts.dev(), inode: facts.ino() }
    }
}

/// The log itself for 0, older ones for more.
pub(super) fn path_of(folder: &Path, age: u32) -> PathBuf {
    if age == 0 { folder.join(NAME) } else { folder.join(format!("{NAME}.{age}")) }
}

/// Checks that the folder is one that a log may be written to, if it is there.
pub(super) fn check_folder(folder: &Path) -> Result<(), StatusError> {
    let Ok(facts) = fs::symlink_metadata(folder) else { return Ok(()) };
    if !facts.is_symlink() {
        return Ok(());
    }
    // The kernel refuses such links for another user's sake only where it was told to.
    let parent = folder.parent().map(fs::metadata);
    let public = matches!(parent, Some(Ok(facts)) if facts.permissions().mode() & 0o002 != 0);
    if public { Err(StatusError::PlantedFolder { path: folder.to_owned() }) } else { Ok(()) }
}

/// Makes the folder, for its owner only.
pub(super) fn create_folder(folder: &Path) -> Result<(), StatusError> {
    check_folder(folder)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(StatusError::io("make the folder", folder))
}

/// Opens the log for appending, and makes it if there is none.
pub(super) fn open_to_append(path: &Path) -> Result<File, StatusError> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    open(&mut options, path)
}

/// Opens one of the log's files for reading, if it is there.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>, StatusError> {
    match open(OpenOptions::new().read(true), path) {
        Ok(file) => Ok(Some(file)),
        Err(StatusError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens all of the log's files of one moment, oldest first.
pub(super) fn open_all(folder: &Path) -> Result<Vec<(Identity, File)>, StatusError> {
    let current = path_of(folder, 0);
    let mut files = Vec::new();
    for _ in 0..LOOKS {
        files = open_once(folder)?;
        let newest = files.last().map(|(identity, _)| *identity);
        let now = fs::symlink_metadata(&current).ok().map(|facts| Identity::of(&facts));
        // A rotation in between may have moved a file past the eye.
        if now.is_none() || now == newest {
            break;
        }
    }
    Ok(files)
}

fn open_once(folder: &Path) -> Result<Vec<(Identity, File)>, StatusError> {
    let mut files: Vec<(Identity, File)> = Vec::new();
    for age in ages(folder)? {
        let path = path_of(folder, age);
        let file = match open_to_read(&path) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            // Something else under an old name is not the log's business.
            Err(StatusError::NotALog { .. }) if age > 0 => continue,
            Err(error) => return Err(error),
        };
        let identity = Identity::of(&file.metadata().map_err(StatusError::io("look at", &path))?);
        if files.iter().all(|(known, _)| *known != identity) {
            files.push((identity, file));
        }
    }
    files.reverse();
    Ok(files)
}

/// The ages of the files that there are, the log itself first.
pub(super) fn ages(folder: &Path) -> Result<Vec<u32>, StatusError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StatusError::io("read the folder", folder)(error)),
    };
    let mut ages = vec![0];
    for entry in entries {
        let name = entry.map_err(StatusError::io("read the folder", folder))?.file_name();
        let age = name.to_str().and_then(|name| name.strip_prefix(NAME)?.strip_prefix('.')?.parse().ok());
        ages.extend(age.filter(|age: &u32| *age > 0 && path_of(folder, *age).file_name() == Some(&name)));
    }
    ages.sort_unstable();
    Ok(ages)
}

fn open(options: &mut OpenOptions, path: &Path) -> Result<File, StatusError> {
    let other = |what| StatusError::NotALog { path: path.to_owned(), what };
    // NONBLOCK only keeps the opening of a FIFO from waiting; it means nothing for files.
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match options.custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(other("a folder")),
        Err(error) if fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink()) => {
            drop(error);
            return Err(other("a symbolic link"));
        }
        Err(error) => return Err(StatusError::io("open", path)(error)),
    };
    let facts = file.metadata().map_err(StatusError::io("look at", path))?;
    if facts.is_file() {
        Ok(file)
    } else if facts.is_dir() {
        Err(other("a folder"))
    } else {
        Err(other("a pipe, socket or device"))
    }
}
