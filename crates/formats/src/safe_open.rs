//! Safe open: reads an untrusted lock file with bounded time and memory, and follows no link.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use lockkeeper_platform::folder;
use lockkeeper_platform::wall_clock::WallTime;
use rustix::fs::{AtFlags, FileType, RawMode, statat};
use rustix::io::Errno;
use thiserror::Error;

/// The most bytes of a record.
pub const MAX_BYTES: u64 = 64 * 1024;
/// How long the creator of a record may need to write it. An empty or incomplete record that is newer is held.
pub const SETTLING: Duration = Duration::from_secs(2);
/// The longest file name of common file systems, in bytes.
const MAX_NAME: usize = 255;

/// The name of a lock file. It cannot name anything outside its folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileName(String);

impl FileName {
    /// Builds a file name from an id and the format's prefix and suffix. Two ids never have the same file name.
    pub fn around(prefix: &str, id: &str, suffix: &str) -> Result<Self, NameError> {
        let bad = |character| NameError::Character { id: id.to_owned(), character };
        if id.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(character) = id.chars().find(|c| *c == '/' || c.is_control()) {
            return Err(bad(character));
        }
        if id.contains("..") || (prefix.is_empty() && suffix.is_empty() && id == ".") {
            return Err(NameError::Dots(id.to_owned()));
        }
        let name = format!("{prefix}{id}{suffix}");
        if name.len() > MAX_NAME { Err(NameError::TooLong { length: name.len() }) } else { Ok(Self(name)) }
    }

    /// Checks a complete file name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Self::around("", name, "")
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why an id cannot become a file name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// The id is empty.
    #[error("the id is empty")]
    Empty,
    /// The id has a character that a file name must not have.
    #[error("the id `{}` contains {character:?}", id.escape_debug())]
    Character {
        /// The whole id.
        id: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// The id could lead out of the folder.
    #[error("the id `{0}` contains `..`, or is a dot alone")]
    Dots(String),
    /// The id means a folder, or looks like an option of a command.
    #[error("the id `{0}` is a dot alone, or begins with `-`")]
    Reserved(String),
    /// The file name would be too long.
    #[error("the id makes a file name of {length} bytes, more than {MAX_NAME}")]
    TooLong {
        /// The length of the file name.
        length: usize,
    },
}

impl NameError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "give it at least one character",
            Self::Character { .. } | Self::Dots(_) => {
                "ids become file names: no `/`, no `..`, no control characters"
            }
            Self::Reserved(_) => "begin it with a letter or a digit",
            Self::TooLong { .. } => "use a shorter one",
        }
    }
}

/// Why a file is not accepted as a record. The lock never counts as free then.
#[derive(Debug, Error)]
pub enum UnsafeFile {
    /// It is a symbolic link, folder, FIFO, socket or device.
    #[error("it is a {0}, not a regular file")]
    Kind(&'static str),
    /// It has a second name (hard link), through which another program can write to it.
    #[error("it has {0} names (hard links)")]
    Linked(u64),
    /// It belongs to another user.
    #[error("it belongs to user {0}, not to us")]
    Owner(u32),
    /// It is larger than [`MAX_BYTES`].
    #[error("it has {0} bytes, more than any record")]
    TooLarge(u64),
    /// The system refuses to read it.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
}

impl UnsafeFile {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Kind(_) | Self::Linked(_) | Self::TooLarge(_) => {
                "no lock program made this: look at it, and move it away if nobody needs it"
            }
            Self::Owner(_) => "run as that user, or give each user a folder of their own",
            Self::Unreadable(_) => "check the permissions of the file and its folder",
        }
    }
}

/// The identity of a file: device and inode. Only valid while a process has the file open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }

    /// Returns the identity of the file that has this name now, of whatever kind it is.
    pub(super) fn at(folder: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 })
    }
}

/// Whose files are accepted as records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owners {
    /// Only our own.
    Us,
    /// Anybody's. The reader looks at [`Snapshot::is_ours`] before it trusts or changes the file.
    Anybody,
}

/// The content of a record at one moment. The file stays open, so that no other file can get its inode.
#[derive(Debug)]
pub struct Snapshot {
    file: File,
    id: FileId,
    owner: u32,
    bytes: Vec<u8>,
    modified_at: WallTime,
}

impl Snapshot {
    /// Returns the content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the user that it belongs to.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Says whether it belongs to the user of this process.
    pub fn is_ours(&self) -> bool {
        self.owner == rustix::process::geteuid().as_raw()
    }

    /// Returns when it was last written.
    pub fn modified_at(&self) -> WallTime {
        self.modified_at
    }

    /// Says whether its creator may still write it. A modification time in the future counts as now.
    pub fn is_settling(&self, now: WallTime) -> bool {
        now.since(self.modified_at) < SETTLING
    }

    /// Says whether it has no content: no bytes, only blanks, or only zeros as after a power cut.
    pub fn is_blank(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace())
    }

    /// Returns the identity of the file.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Says whether the other snapshot shows the same file with the same content.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.bytes == other.bytes
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Reads a file in a folder; `None` when there is no such file.
pub fn read(folder: BorrowedFd<'_>, name: &str, owners: Owners) -> Result<Option<Snapshot>, UnsafeFile> {
    let unreadable = |error: Errno| UnsafeFile::Unreadable(error.into());
    // Opening a device can have an effect, so its type is checked before.
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => check_kind(FileType::from_raw_mode(stat.st_mode))?,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let file = match folder::open_existing(folder, name) {
        Ok(descriptor) => File::from(descriptor),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(UnsafeFile::Unreadable(error)),
    };
    read_file(file, owners).map(Some)
}

fn read_file(mut file: File, owners: Owners) -> Result<Snapshot, UnsafeFile> {
    let metadata = file.metadata().map_err(UnsafeFile::Unreadable)?;
    check_kind(FileType::from_raw_mode(metadata.mode() as RawMode))?;
    if owners == Owners::Us && metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(UnsafeFile::Owner(metadata.uid()));
    }
    if metadata.nlink() > 1 {
        return Err(UnsafeFile::Linked(metadata.nlink()));
    }
    if metadata.len() > MAX_BYTES {
        return Err(UnsafeFile::TooLarge(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    // The file may grow while it is read.
    let length =
        (&mut file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(UnsafeFile::Unreadable)? as u64;
    if length > MAX_BYTES {
        return Err(UnsafeFile::TooLarge(length));
    }
    let micros = metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1_000);
    let id = FileId { device: metadata.dev(), inode: metadata.ino() };
    Ok(Snapshot { file, id, owner: metadata.uid(), bytes, modified_at: WallTime::from_micros(micros) })
}

fn check_kind(kind: FileType) -> Result<(), UnsafeFile> {
    Err(UnsafeFile::Kind(match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "folder",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "thing of unknown kind",
    }))
}
