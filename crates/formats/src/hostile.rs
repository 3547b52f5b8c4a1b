//! Looks at whatever lies at a lock file's path: bounded in time and memory, following nothing, believing nothing.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, RawMode, statat};
use rustix::io::Errno;
use thiserror::Error;

use lockkeeper_platform::folder;
use lockkeeper_platform::wall_clock::WallTime;

/// A record is not larger than this.
pub const MAX_BYTES: u64 = 64 * 1024;
/// An empty or torn record that is younger than this may still be written by its creator.
pub const SETTLING: Duration = Duration::from_secs(2);
/// The longest file name that file systems take, in bytes.
const MAX_NAME: usize = 255;

/// The name of a lock file inside of its folder. It can name nothing outside of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileName(String);

impl FileName {
    /// Makes a file name of an id, with what the format puts around it. Two ids never share one.
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

    /// A name that stands for itself.
    pub fn new(name: &str) -> Result<Self, NameError> {
        Self::around("", name, "")
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why an id cannot become a file name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// There is nothing in it.
    #[error("the id is empty")]
    Empty,
    /// A character that has no place in a file name.
    #[error("the id `{}` contains {character:?}", id.escape_debug())]
    Character {
        /// The whole id.
        id: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// It could lead out of the folder.
    #[error("the id `{0}` contains `..`, or is a dot alone")]
    Dots(String),
    /// No file system takes such a name.
    #[error("the id makes a file name of {length} bytes, more than {MAX_NAME}")]
    TooLong {
        /// How long the file name would be.
        length: usize,
    },
}

impl NameError {
    /// The way out, for the person who wrote it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "give it at least one character",
            Self::Character { .. } | Self::Dots(_) => {
                "ids become file names: no `/`, no `..`, no control characters"
            }
            Self::TooLong { .. } => "use a shorter one",
        }
    }
}

/// Why what lies at the path is not taken for a record. It never counts as free.
#[derive(Debug, Error)]
pub enum HostileError {
    /// A symbolic link, folder, FIFO, socket or device.
    #[error("it is a {0}, not a regular file")]
    Kind(&'static str),
    /// It has another name too, so that somebody else can write to it.
    #[error("it has {0} names (hard links)")]
    Linked(u64),
    /// It belongs to another user.
    #[error("it belongs to user {0}, not to us")]
    Owner(u32),
    /// It is larger than [`MAX_BYTES`].
    #[error("it has {0} bytes, more than any record")]
    TooLarge(u64),
    /// The system does not let us read it.
    #[error("it cannot be read")]
    Unreadable(#[source] io::Error),
}

impl HostileError {
    /// The way out.
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

/// Which file it is, whatever it is called. Only meaningful while somebody has it open.
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

    /// Which file has a name now, whatever kind it is of.
    pub(super) fn at(folder: BorrowedFd<'_>, name: &str) -> io::Result<Self> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Self { device: stat.st_dev as u64, inode: stat.st_ino as u64 })
    }
}

/// A record as it was at one moment. The file stays open, so that no other can get its number.
#[derive(Debug)]
pub struct Sighting {
    file: File,
    id: FileId,
    bytes: Vec<u8>,
    modified_at: WallTime,
}

impl Sighting {
    /// What stands in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// When it was last written.
    pub fn modified_at(&self) -> WallTime {
        self.modified_at
    }

    /// Whether somebody may be writing it just now. A file from the future is young.
    pub fn is_settling(&self, now: WallTime) -> bool {
        now.since(self.modified_at) < SETTLING
    }

    /// Whether it has no content at all: not one byte, or only zeros as after a power cut.
    pub fn is_blank(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace())
    }

    /// Which file it is.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Whether the other one is this same file with this same content.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.bytes == other.bytes
    }

    /// The file itself, to be looked at further.
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Looks at a name in a folder. Nothing there is no error.
pub fn look(folder: BorrowedFd<'_>, name: &str) -> Result<Option<Sighting>, HostileError> {
    let unreadable = |error: Errno| HostileError::Unreadable(error.into());
    // Opening a device can already do something, so it is looked at from outside first.
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => check_kind(FileType::from_raw_mode(stat.st_mode))?,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    }
    let file = match folder::open_existing(folder, name) {
        Ok(descriptor) => File::from(descriptor),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HostileError::Unreadable(error)),
    };
    read(file).map(Some)
}

fn read(mut file: File) -> Result<Sighting, HostileError> {
    let metadata = file.metadata().map_err(HostileError::Unreadable)?;
    check_kind(FileType::from_raw_mode(metadata.mode() as RawMode))?;
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(HostileError::Owner(metadata.uid()));
    }
    if metadata.nlink() > 1 {
        return Err(HostileError::Linked(metadata.nlink()));
    }
    if metadata.len() > MAX_BYTES {
        return Err(HostileError::TooLarge(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(metadata.len() as usize + 1);
    // It may grow while it is read.
    let length =
        (&mut file).take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(HostileError::Unreadable)? as u64;
    if length > MAX_BYTES {
        return Err(HostileError::TooLarge(length));
    }
    let micros = metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1_000);
    let id = FileId { device: metadata.dev(), inode: metadata.ino() };
    Ok(Sighting { file, id, bytes, modified_at: WallTime::from_micros(micros) })
}

fn check_kind(kind: FileType) -> Result<(), HostileError> {
    Err(HostileError::Kind(match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "folder",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Unknown => "thing of unknown kind",
    }))
}
