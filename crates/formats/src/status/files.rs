//! Log files: their names, and safe ways to open them.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lockkeeper_platform::access;
use rustix::fs::OFlags;

use super::error::StatusError;

/// The name of the log. Older logs have a number after it.
const NAME: &str = "status.log";
/// How many times to try again when the log is rotated while its files are opened.
const TRIES: usize = 32;

/// The identity of a file: device and inode. Valid while the file is open, because inodes are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// Returns the path of the log for 0, and of older logs for higher numbers.
pub(super) fn path_of(folder: &Path, age: u32) -> PathBuf {
    if age == 0 { folder.join(NAME) } else { folder.join(format!("{NAME}.{age}")) }
}

/// Refuses a folder that is a symbolic link in a folder where everybody may write.
pub(super) fn check_folder(folder: &Path) -> Result<(), StatusError> {
    let Ok(metadata) = fs::symlink_metadata(folder) else { return Ok(()) };
    if !metadata.is_symlink() {
        return Ok(());
    }
    // The kernel can refuse such links too, but only if the administrator has enabled that.
    let parent = folder.parent().map(fs::metadata);
    let public = matches!(parent, Some(Ok(metadata)) if metadata.permissions().mode() & 0o002 != 0);
    if public { Err(StatusError::PlantedFolder { path: folder.to_owned() }) } else { Ok(()) }
}

/// Creates the folder with mode 0700.
pub(super) fn create_folder(folder: &Path) -> Result<(), StatusError> {
    check_folder(folder)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(StatusError::io("make the folder", folder))
}

/// Opens the log for appending, and creates it if it is missing.
pub(super) fn open_to_append(path: &Path) -> Result<File, StatusError> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).mode(0o600);
    let is_missing = |error: &StatusError| matches!(error, StatusError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
    match open(&mut options, path) {
        Err(error) if is_missing(&error) => {}
        opened => return opened,
    }
    match open(options.clone().create_new(true), path) {
        Ok(new) => {
            let folder = path.parent().unwrap_or(Path::new("."));
            access::inherit(&new, folder).map_err(StatusError::io("give its owner", path))?;
            Ok(new)
        }
        Err(StatusError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            open(&mut options, path)
        }
        Err(error) => Err(error),
    }
}

/// Opens one log file for reading; `None` when it is missing.
pub(super) fn open_to_read(path: &Path) -> Result<Option<File>, StatusError> {
    match open(OpenOptions::new().read(true), path) {
        Ok(file) => Ok(Some(file)),
        Err(StatusError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens all log files of one moment, oldest first.
pub(super) fn open_all(folder: &Path) -> Result<Vec<(Identity, File)>, StatusError> {
    let current = path_of(folder, 0);
    let mut files = Vec::new();
    for _ in 0..TRIES {
        files = open_once(folder)?;
        let newest = files.last().map(|(identity, _)| *identity);
        let now = fs::symlink_metadata(&current).ok().map(|metadata| Identity::of(&metadata));
        // A rotation in between may have renamed a file that was not opened yet.
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
            // Something else with the name of an older log is ignored.
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

/// Returns the numbers of the files that exist, the log itself first.
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
    // With NONBLOCK, opening a FIFO does not wait. It has no effect on files.
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match options.custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Err(other("a folder")),
        Err(error) if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) => {
            drop(error);
            return Err(other("a symbolic link"));
        }
        Err(error) => return Err(StatusError::io("open", path)(error)),
    };
    let metadata = file.metadata().map_err(StatusError::io("look at", path))?;
    if metadata.is_file() {
        Ok(file)
    } else if metadata.is_dir() {
        Err(other("a folder"))
    } else {
        Err(other("a pipe, socket or device"))
    }
}
