//! Why a store failed, and what the user can do about it.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use lockkeeper_core::printable::printable;
use lockkeeper_platform::lock_holders::LockProcess;
use lockkeeper_platform::write_lock::WriteLockError;
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
    /// Another process has held the write lock for too long: it is probably stopped.
    #[error("{}", kept(address, holder.as_ref(), *waited))]
    Kept {
        /// The lock file.
        address: String,
        /// The process, if the system shows it.
        holder: Option<LockProcess>,
        /// How long this process has waited.
        waited: Duration,
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
    /// The database is of another boot, and a process of another machine may be using it.
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
    /// The store was moved to another one, which is used instead.
    #[error("{address} was moved to {to}")]
    Moved {
        /// Which store.
        address: String,
        /// The other store.
        to: String,
    },
    /// Records are to be copied into a store that has some.
    #[error("{address} is not empty")]
    NotEmpty {
        /// Which store.
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
    /// The connection broke during a commit: it is unknown whether the changes were committed.
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

/// Says which process keeps a lock file locked, and for how long or why.
fn kept(address: &str, holder: Option<&LockProcess>, waited: Duration) -> String {
    let seconds = waited.as_secs();
    match holder {
        Some(LockProcess { process, command, is_stopped, .. }) => {
            let who = format!("process {} ({})", process.pid, printable(command));
            if *is_stopped {
                format!("{who} is stopped while it writes: it keeps {address} locked")
            } else {
                format!("{who} has kept {address} locked for {seconds} s")
            }
        }
        None => format!("a process that is not visible from here has kept {address} locked for {seconds} s"),
    }
}

/// What to do about a file or folder that this user may not use: names the nearest one that belongs to another user. It proposes
/// a change of the owner only for a state folder: any other folder may be one of the system, such as `/etc`.
fn access_hint(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;

    let own = lockkeeper_platform::process::user();
    let owned = path.ancestors().find_map(|path| path.metadata().ok().map(|facts| (path, facts.uid())));
    let Some((path, owner)) = owned.filter(|(_, owner)| *owner != own) else {
        return "check the folder's owner and mode, or choose another with --dir".to_owned();
    };
    let shown = path.display();
    match (owner, is_of_a_store(path)) {
        (owner, _) if own == 0 => format!(
            "it belongs to user {owner}, and this root may not act for that user, as in a container: run it as that user, or \
             choose another folder with --dir"
        ),
        (0, true) => format!(
            "it was made by user 0 (root, or the root of a container): let root run `chown -R {own} {shown}`, or choose another \
             folder with --dir"
        ),
        (owner, true) => format!(
            "it belongs to user {owner}, and only its owner may use it: choose another folder with --dir, or let root run \
             `chown -R {own} {shown}`; to share it in a group, its owner makes the folder around it `g+ws`, or sets git's \
             core.sharedRepository, before it is made"
        ),
        (owner, false) => {
            format!("{shown} belongs to user {owner}: choose a folder that you may write in with --dir")
        }
    }
}

/// Whether a path is a state folder, or a file in one: by the names that are chosen by default, or by the lock file in it.
fn is_of_a_store(path: &Path) -> bool {
    path.ancestors().take(3).any(|folder| {
        let is_named = folder.file_name().is_some_and(|name| name == ".lockkeeper" || name == "lockkeeper");
        is_named || folder.join("gate").exists()
    })
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;

    [Errno::MFILE, Errno::NFILE].map(|limit| Some(limit.raw_os_error())).contains(&error.raw_os_error())
}

impl StoreError {
    /// A failure of the file system.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { action, address: path.display().to_string(), source }
    }

    /// The write lock could not be taken.
    pub(crate) fn lock(path: &Path, error: WriteLockError) -> Self {
        match error {
            WriteLockError::Io(source) => Self::io("lock", path, source),
            WriteLockError::Kept { holder, waited } => Self::kept(path, holder, waited),
        }
    }

    /// The write lock is kept by a process that is stopped, or takes too long.
    pub(crate) fn kept(path: &Path, holder: Option<LockProcess>, waited: Duration) -> Self {
        Self::Kept { address: path.display().to_string(), holder, waited }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { source, address, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                access_hint(Path::new(address))
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                "nothing was changed; what only reads works here (`locks`, `why`, `runs`, `run logs`), everything else needs a folder that can be \
                 written: let the sandbox write there, or do it outside, for example by the MCP tool of an agent"
                    .to_owned()
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some disk space and try again; nothing was changed".to_owned()
            }
            Self::Io { source, .. } if is_out_of_descriptors(source) => {
                "nothing was changed; this process may open too few files: raise the limit with `ulimit -n`".to_owned()
            }
            Self::Io { .. } => {
                "nothing was changed; choose another folder with --dir, or try again".to_owned()
            }
            Self::Database { .. } => "nothing was changed; `lockkeeper locks` shows what is held".to_owned(),
            Self::Busy { address } => format!("find the program with: fuser {address}"),
            Self::Kept { holder: Some(LockProcess { process, is_stopped: true, .. }), .. } => format!(
                "nothing was changed; let it go on with `kill -CONT {0}`, or end it with `kill -KILL {0}`",
                process.pid
            ),
            Self::Kept { holder: Some(LockProcess { process, .. }), .. } => format!(
                "nothing was changed; try again, or end it with `kill {0}`, or `kill -KILL {0}` if that does not help",
                process.pid
            ),
            Self::Kept { address, holder: None, .. } => format!(
                "nothing was changed; find it where it runs, for example in a container that is paused, with `fuser {address}`: \
                 let it go on, or end it"
            ),
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
            Self::Moved { to, .. } => format!(
                "nothing was changed; use {to}, or go back with `lockkeeper store migrate`; if the move was interrupted, the same \
                 `lockkeeper store migrate` as before finishes it"
            ),
            Self::NotEmpty { .. } => "nothing was changed; name a folder or a project that is not used yet".to_owned(),
            Self::Removed { .. } => "start again; what was held there is not protected any more".to_owned(),
            Self::Unreachable { .. } => {
                "nothing was changed; check that the store runs, then try again".to_owned()
            }
            Self::InDoubt { .. } => "look with `lockkeeper locks` before you try again".to_owned(),
            Self::Mismatch(_) => "this is a fault of lockkeeper: please report it".to_owned(),
        }
    }

    /// Whether the operating system has refused a write of this process.
    pub fn is_write_refused(&self) -> bool {
        let refusals = [io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::PermissionDenied];
        matches!(self, Self::Io { source, .. } if refusals.contains(&source.kind()))
    }

    /// Whether this error proves that nothing was changed: the store could not be used.
    pub fn changed_nothing(&self) -> bool {
        match self {
            Self::Io { .. }
            | Self::Database { .. }
            | Self::Busy { .. }
            | Self::Kept { .. }
            | Self::Damaged { .. }
            | Self::Foreign { .. }
            | Self::TooNew { .. }
            | Self::TooOld { .. }
            | Self::NetworkFileSystem { .. }
            | Self::InUseElsewhere { .. }
            | Self::Removed { .. }
            | Self::Moved { .. }
            | Self::NotEmpty { .. }
            | Self::Unreachable { .. } => true,
            Self::InDoubt { .. } | Self::Mismatch(_) => false,
        }
    }
}
