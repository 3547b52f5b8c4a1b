//! Why a store failed, and what the user can do about it.

use std::error::Error;
use std::io;
use std::path::Path;

use thiserror::Error;

/// Why a store failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("cannot {action} {address}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The database returned an error.
    #[error("the database {address} failed")]
    Database {
        /// Which one.
        address: String,
        /// What it said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Another program keeps the database locked.
    #[error("the database {address} is locked by another program")]
    Busy {
        /// Which one.
        address: String,
    },
    /// The file is damaged, or no database at all.
    #[error("{address} is damaged: {what}")]
    Damaged {
        /// Which file.
        address: String,
        /// What is wrong with it.
        what: String,
    },
    /// The file belongs to another program.
    #[error("{address} belongs to another program")]
    Foreign {
        /// Which file.
        address: String,
    },
    /// The file was made by a later version.
    #[error("{address} has version {found}, this program knows {known}")]
    TooNew {
        /// Which file.
        address: String,
        /// Its version.
        found: i64,
        /// The newest version that this program can use.
        known: i64,
    },
    /// The file was made by an earlier version, and it is not empty.
    #[error("{address} has version {found}, this program uses {known}")]
    TooOld {
        /// Which file.
        address: String,
        /// Its version.
        found: i64,
        /// The version that this program uses.
        known: i64,
    },
    /// The folder is on a file system whose locks are not reliable.
    #[error("{address} is on {kind}, whose locks are not reliable")]
    NetworkFileSystem {
        /// Which folder.
        address: String,
        /// Which file system.
        kind: &'static str,
    },
    /// The database is of another boot, and somebody may be using it.
    #[error("{address} is in use by another machine: {why}")]
    InUseElsewhere {
        /// Which file.
        address: String,
        /// The sign of use.
        why: &'static str,
    },
    /// The folder was removed or replaced while in use.
    #[error("{address} was removed or replaced while in use")]
    Removed {
        /// Which folder.
        address: String,
    },
    /// The store cannot be reached. Nothing was changed.
    #[error("cannot reach the store {address}")]
    Unreachable {
        /// Which store.
        address: String,
        /// What failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The connection broke during a commit: the store does not tell whether it was committed.
    #[error("it is not known whether {address} committed the change")]
    InDoubt {
        /// Which store.
        address: String,
        /// What failed.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A change does not fit the records.
    #[error("a record of the store is not what it should be: {0}")]
    Mismatch(String),
}

/// What to do about a file or folder that this user may not use: names the nearest one that belongs to somebody else.
fn access_hint(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;

    let own = lockkeeper_platform::process::user();
    let owned = path.ancestors().find_map(|path| path.metadata().ok().map(|facts| (path, facts.uid())));
    match owned {
        Some((path, owner)) if owner != own => format!(
            "it was made by user {owner} ({}): let that user run `chown -R {own} {}`, or choose another folder with --dir",
            if owner == 0 { "root, or the root of a container" } else { "not you" },
            path.display()
        ),
        Some(_) | None => "check the folder's owner and mode, or choose another with --dir".to_owned(),
    }
}

impl StoreError {
    /// A failure of the file system.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, address: path.display().to_string(), source }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { source, address, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                access_hint(Path::new(address))
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                "nothing was changed; `locks`, `why` and `fence` work here, everything else needs a folder that can be \
                 written: let the sandbox write there, or do it outside, for example by the MCP tool of an agent"
                    .to_owned()
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some disk space and try again; nothing was changed".to_owned()
            }
            Self::Io { .. } => {
                "nothing was changed; choose another folder with --dir, or try again".to_owned()
            }
            Self::Database { .. } => "nothing was changed; `lockkeeper locks` shows what is held".to_owned(),
            Self::Busy { address } => format!("find the program with: fuser {address}"),
            Self::Damaged { address, .. } => {
                format!(
                    "stop everything that uses it, then move {address} away; tokens go on where they were"
                )
            }
            Self::Foreign { .. } => "choose another folder with --dir".to_owned(),
            Self::TooNew { .. } => {
                "install the newer lockkeeper, or choose another folder with --dir".to_owned()
            }
            Self::TooOld { address, .. } => format!(
                "let the older lockkeeper end what is held or waited for there; if it is not installed any more, stop \
                 everything that uses {address}, then move {address} away; tokens go on where they were"
            ),
            Self::NetworkFileSystem { .. } => "choose a local folder with --dir or LOCKKEEPER_DIR".to_owned(),
            Self::InUseElsewhere { address, .. } => format!(
                "one store is for one machine: choose a folder that only this machine uses with --dir or LOCKKEEPER_DIR; if no other \
                 machine uses it, move {address} away; tokens go on where they were"
            ),
            Self::Removed { .. } => "start again; what was held there is not protected any more".to_owned(),
            Self::Unreachable { .. } => {
                "nothing was changed; check that the store runs, then try again".to_owned()
            }
            Self::InDoubt { .. } => "look with `lockkeeper locks` before you try again".to_owned(),
            Self::Mismatch(_) => "this is a fault of lockkeeper: please report it".to_owned(),
        }
    }

    /// Whether the system does not let this process write there.
    pub fn is_write_refused(&self) -> bool {
        let refusals = [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];
        matches!(self, Self::Io { source, .. } if refusals.contains(&source.kind()))
    }

    /// Whether the store could not be reached at all.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Removed { .. } | Self::Unreachable { .. } => true,
            Self::Io { .. }
            | Self::Database { .. }
            | Self::Damaged { .. }
            | Self::Foreign { .. }
            | Self::TooNew { .. }
            | Self::TooOld { .. }
            | Self::NetworkFileSystem { .. }
            | Self::InUseElsewhere { .. }
            | Self::InDoubt { .. }
            | Self::Mismatch(_) => false,
        }
    }
}
