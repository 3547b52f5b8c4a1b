//! Where records are kept: the contract that every engine fulfils.
//!
//! A store runs one decision atomically over the records that it touches, and wakes sleepers. It knows no
//! lock rules, so it needs only four promises:
//!
//! - **Serializable.** What a decision read is still so when its changes are committed. A pessimistic store
//!   lets one decision in at a time; an optimistic one remembers what was read and runs the decision again
//!   when that has changed. So a decision may run more than once, and only its last run counts. What was not
//!   there counts as read, too: a record that comes or goes within a range that was looked at is a change.
//! - **All or nothing.** The changes of one decision become visible together or not at all, whatever dies.
//! - **Numbers.** [`Records::draw`] gives a number that is larger than every one the store gave before, also
//!   when the decision that drew it failed, the process was killed or the machine lost power.
//! - **Bells.** Whoever registers a waker, then looks, then sleeps, is woken by every wake after the look.
//!   A wake may be spurious, or late when the one who should wake is frozen; sleepers look again by themselves.
//!
//! The cases in `conformance/` hold every engine to all of it.
//!
//! Time is the store's: [`Records::now`] is one clock for all its users and never goes back.

#[cfg(test)]
mod conformance;
mod memory;
pub mod runs;
pub mod sqlite;

use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use lockkeeper_core::id::{LeaseId, Token, WakerId};
use lockkeeper_core::overlay::{Change, Scan};
use lockkeeper_core::record::{Claim, Lease, Ticket};
use lockkeeper_core::resource::KeyRange;
use lockkeeper_core::time::Moment;
use thiserror::Error;

pub use memory::MemoryStore;
pub use runs::RunStore;
pub use sqlite::SqliteStore;

/// An engine that keeps leases and tickets.
pub trait Store: Send + Sync {
    /// Runs a decision and commits what it changed, or nothing when it fails.
    fn transact(&self, decide: Decision<'_>) -> Result<(), StoreError>;

    /// Looks at the records of one moment without changing them, and without keeping anybody waiting.
    fn snapshot(&self, look: Decision<'_>) -> Result<(), StoreError>;

    /// Registers a new waker.
    fn waker(&self) -> Result<Box<dyn Waker>, StoreError>;

    /// Registers the waker with this id.
    fn waker_with_id(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError>;

    /// Wakes whoever sleeps on a waker; nobody being there is no failure.
    fn wake(&self, waker: WakerId);

    /// Wakes whoever sleeps on a waker, and tells which lease it was granted, so that it need not look. Bells that
    /// carry no words are just woken.
    fn wake_with_grant(&self, waker: WakerId, granted: Granted) {
        let _ = granted;
        self.wake(waker);
    }

    /// Wakes whoever sleeps on a waker, because [`Store::wake_with_grant`] is about to follow unless the decision fails: to wake
    /// takes as long as to commit. Nothing where that is of no use.
    fn alert(&self, waker: WakerId) {
        let _ = waker;
    }

    /// Puts away what a dead sleeper left.
    fn remove_waker(&self, waker: WakerId);

    /// Puts away what dead sleepers left whom no record names; nothing where wakers end with their sleepers.
    fn sweep(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Looks for damage without changing anything; `thorough` looks at every record and how it is filed.
    fn examine(&self, thorough: bool) -> Result<Examination, StoreError> {
        let _ = thorough;
        Ok(Examination::default())
    }
}

/// What a store says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// Engine and version in words; empty where it has nothing to say.
    pub engine: String,
    /// The version of the tables, where there are any.
    pub schema: Option<i64>,
    /// What is wrong, one sentence each.
    pub flaws: Vec<String>,
}

/// A decision over records: it may be run again until its changes could be committed.
pub type Decision<'d> = &'d mut dyn FnMut(&mut dyn Records) -> Result<(), StoreError>;

/// What a decision sees and changes.
pub trait Records {
    /// The moment on the store's clock, the same throughout one run of a decision.
    fn now(&self) -> Moment;

    /// The next number, never given before and never again.
    fn draw(&mut self) -> Result<u64, StoreError>;

    /// One lease.
    fn lease(&mut self, id: LeaseId) -> Result<Option<Lease>, StoreError>;

    /// Shows every lease filed within range, each once.
    fn leases(&mut self, range: &KeyRange, visit: &mut dyn FnMut(Lease)) -> Result<(), StoreError>;

    /// One ticket.
    fn ticket(&mut self, id: LeaseId) -> Result<Option<Ticket>, StoreError>;

    /// Shows the tickets filed within range, each once, along `scan`, until told to stop.
    fn tickets(
        &mut self,
        range: &KeyRange,
        scan: Scan,
        visit: &mut dyn FnMut(Ticket) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// All leases and all tickets.
    fn everything(&mut self) -> Result<(Vec<Lease>, Vec<Ticket>), StoreError>;

    /// Makes one change, to be committed with the others; a change that does not fit fails the decision.
    fn apply(&mut self, change: Change) -> Result<(), StoreError>;
}

/// Something to sleep on.
pub trait Waker: Send {
    /// What others wake it by.
    fn id(&self) -> WakerId;

    /// Readable once it was woken.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// Makes it quiet again.
    fn quiet(&self);

    /// Makes it quiet again, and returns the lease that the last wake told of, if one did.
    fn hear(&self) -> Option<Granted> {
        self.quiet();
        None
    }
}

/// A lease that a ticket was granted, as a wake tells of it; what else there is to it, the waiter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The id that the ticket had, and the lease has.
    pub id: LeaseId,
    /// The lease's token.
    pub token: Token,
    /// When it was granted.
    pub at: Moment,
}

impl Granted {
    /// What is to be told of a lease.
    pub fn of(lease: &Lease) -> Self {
        Self { id: lease.id, token: lease.token, at: lease.acquired_at }
    }

    /// The lease itself, of which nothing has changed since.
    pub fn lease(self, claim: Arc<Claim>) -> Lease {
        let Self { id, token, at } = self;
        Lease { id, token, claim, acquired_at: at, heartbeat_at: at, pickup_by: None, revoked: false }
    }
}

/// Why a store did not do what it was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The database refused.
    #[error("the database {} failed", path.display())]
    Database {
        /// Which one.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
    /// Somebody else keeps the database busy.
    #[error("the database {} is locked by another program", path.display())]
    Busy {
        /// Which one.
        path: PathBuf,
    },
    /// The file is damaged, or no database at all.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file belongs to another program.
    #[error("{} belongs to another program", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
    },
    /// The file was made by a later version.
    #[error("{} has version {found}, this program knows {known}", path.display())]
    TooNew {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this program can use.
        known: i64,
    },
    /// The file was made by an earlier version, and somebody in it may still live.
    #[error("{} has version {found}, this program uses {known}", path.display())]
    TooOld {
        /// Which file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this program uses.
        known: i64,
    },
    /// The folder is on a file system whose locks cannot be relied on.
    #[error("{} is on {kind}, whose locks are not reliable", path.display())]
    NetworkFileSystem {
        /// Which folder.
        path: PathBuf,
        /// Which file system.
        kind: &'static str,
    },
    /// The folder was removed or replaced while in use.
    #[error("{} was removed or replaced while in use", path.display())]
    Removed {
        /// Which folder.
        path: PathBuf,
    },
    /// A record is not what the decision took it for.
    #[error("a record of the store is not what it should be: {0}")]
    Mismatch(String),
}

impl StoreError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "check the folder's owner and mode, or choose another with --dir".to_owned()
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some disk space and try again; nothing was changed".to_owned()
            }
            Self::Io { .. } => {
                "nothing was changed; choose another folder with --dir, or try again".to_owned()
            }
            Self::Database { .. } => "nothing was changed; `lockkeeper locks` shows what is held".to_owned(),
            Self::Busy { path } => format!("find the program with: fuser {}", path.display()),
            Self::Damaged { path, .. } => format!(
                "stop everything that uses it, then move {} away; tokens go on where they were",
                path.display()
            ),
            Self::Foreign { .. } => "choose another folder with --dir".to_owned(),
            Self::TooNew { .. } => {
                "install the newer lockkeeper, or choose another folder with --dir".to_owned()
            }
            Self::TooOld { path, .. } => format!(
                "let the older lockkeeper end what is held or waited for there; if it is not installed any more, stop \
                 everything that uses {0}, then move {0} away; tokens go on where they were",
                path.display()
            ),
            Self::NetworkFileSystem { .. } => "choose a local folder with --dir or LOCKKEEPER_DIR".to_owned(),
            Self::Removed { .. } => "start again; what was held there is not protected any more".to_owned(),
            Self::Mismatch(_) => "this is a fault of lockkeeper: please report it".to_owned(),
        }
    }

    /// Whether the store cannot be reached at all, rather than having refused something.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Removed { .. } => true,
            Self::Io { .. }
            | Self::Database { .. }
            | Self::Damaged { .. }
            | Self::Foreign { .. }
            | Self::TooNew { .. }
            | Self::TooOld { .. }
            | Self::NetworkFileSystem { .. }
            | Self::Mismatch(_) => false,
        }
    }
}
