//! `Error`: why a lock is not held, or a run was not submitted or found.

use std::io;
use std::time::Duration;

use lockkeeper_core::deadlock;
use lockkeeper_core::lease::NotCurrent;
use lockkeeper_core::time::format_span;
use lockkeeper_engine::StoreError;
use lockkeeper_engine::location::LocationError;
use lockkeeper_engine::open::OpenError;
use lockkeeper_engine::report::Report;
use lockkeeper_engine::runs::{RunError, SubmitError};

use super::blocker::{Blocker, Link, cycle_text, summary};

/// Why an operation failed.
///
/// ```
/// use lockkeeper::{Error, Keeper};
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let guard = keeper.path("src/**").owner("worker:1").acquire()?;
/// let error = keeper.path("src/main.rs").try_acquire().unwrap_err();
/// assert_eq!(error.to_string(), "src/main.rs is held by worker:1");
/// assert!(matches!(error, Error::Held { .. }));
/// assert!(matches!(keeper.lock("a//b").acquire(), Err(Error::Invalid(_))));
/// # drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, pattern, owner, duration, priority, command or setting is not valid. Nothing was changed.
    #[error(transparent)]
    Invalid(Box<dyn std::error::Error + Send + Sync>),
    /// Other owners hold it, or wait for it and are served earlier. The call did not wait.
    #[error("{}", summary(blockers))]
    #[non_exhaustive]
    Held {
        /// The holders first, then the waiters ahead.
        blockers: Vec<Blocker>,
    },
    /// The timeout of a wait is over. The place in line was given up.
    #[error("waited {}: {}", format_span(*waited), summary(blockers))]
    #[non_exhaustive]
    Timeout {
        /// How long the call waited.
        waited: Duration,
        /// What blocked it at the end.
        blockers: Vec<Blocker>,
    },
    /// The wait would never end: it would close a cycle of owners that wait for each other.
    #[error("waiting would never end: {}", cycle_text(cycle))]
    #[non_exhaustive]
    Deadlock {
        /// The whole cycle: the holder of each link is the waiter of the next, and the last holder is the first waiter.
        cycle: Vec<Link>,
    },
    /// The lock is not held any more.
    #[error("the lock was lost")]
    Lost(#[source] Loss),
    /// Another process removed the place in line.
    #[error("the place in line was removed by another process")]
    TicketRemoved,
    /// The queue did not accept the run: its id is in use, or a request that it comes after does not exist.
    #[error(transparent)]
    Refused(Box<dyn std::error::Error + Send + Sync>),
    /// There is no such run, or several match.
    #[error(transparent)]
    NoRun(Box<dyn std::error::Error + Send + Sync>),
    /// The store failed: it cannot be read or written, is damaged, or was made by another version.
    #[error(transparent)]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// The operating system refused something that is not the store: a thread, a pipe, information about this process.
    #[error("the operating system refused a request")]
    System(#[source] io::Error),
}

impl Error {
    pub(super) fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Invalid(error.into())
    }

    pub(super) fn store(error: StoreError) -> Self {
        Self::Store(error.into())
    }

    pub(super) fn open(error: OpenError) -> Self {
        match error {
            OpenError::Store(error) => Self::store(error),
            OpenError::Machine(error) => Self::System(error),
        }
    }

    /// The settings name no store that can be.
    pub(super) fn settings(report: &Report) -> Self {
        let hint = report.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        Self::invalid(format!("{report}{hint}"))
    }

    pub(super) fn location(error: LocationError) -> Self {
        match error {
            LocationError::Variable { .. } => Self::invalid(error),
            LocationError::Unreadable { .. }
            | LocationError::NotVisible { .. }
            | LocationError::NotGit(_) => Self::Store(Box::new(error)),
        }
    }

    pub(super) fn lost(error: &NotCurrent) -> Self {
        Self::Lost(Loss::new(error))
    }

    pub(super) fn deadlock(links: Vec<deadlock::Link>) -> Self {
        Self::Deadlock { cycle: links.into_iter().map(Link::new).collect() }
    }

    pub(super) fn run(error: RunError) -> Self {
        match error {
            RunError::Store(error) => Self::store(error),
            RunError::Machine(error) | RunError::Unreadable(error) => Self::System(error),
            RunError::NoRun(_) | RunError::Ambiguous { .. } | RunError::NoRequest(_) => {
                Self::NoRun(error.into())
            }
            RunError::Refused { .. }
            | RunError::InProgress { .. }
            | RunError::DependsNotDone { .. }
            | RunError::NotAsked { .. }
            | RunError::WorkerTaken(_)
            | RunError::BadAnswer => Self::Refused(error.into()),
        }
    }

    pub(super) fn submission(error: SubmitError) -> Self {
        match error {
            SubmitError::Run(error) => Self::run(error),
            SubmitError::Refused(refusal) => Self::Refused(refusal.into()),
        }
    }
}

/// Why a lock was lost.
///
/// ```
/// # use lockkeeper::{Keeper, Loss};
/// # let folder = tempfile::tempdir()?;
/// # let keeper = Keeper::open(folder.path())?;
/// # let guard = keeper.lock("db").acquire()?;
/// guard.on_lost(|loss| match loss {
///     Loss::Revoked => eprintln!("a person wants the lock: clean up, then drop the guard"),
///     loss => eprintln!("another owner may hold the lock already: stop at once ({loss})"),
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// A person breaks the lock. It stays held for a few seconds, so that the holder can clean up and drop its guard.
    #[error("the lock was revoked")]
    Revoked,
    /// Its TTL is over, or the server of its store has not answered for so long that its session will end soon.
    #[error("the lock has expired")]
    Expired,
    /// It was taken away. Another owner may hold it.
    #[error("the lock was taken away")]
    Removed,
}

impl Loss {
    pub(super) fn new(error: &NotCurrent) -> Self {
        match error {
            NotCurrent::Revoked(_) => Self::Revoked,
            NotCurrent::Expired(_) | NotCurrent::SessionLapsed(_) => Self::Expired,
            NotCurrent::Unknown(_)
            | NotCurrent::Token { .. }
            | NotCurrent::SessionTaken(_)
            | NotCurrent::NotTheOwner { .. }
            | NotCurrent::NotInLine(_)
            | NotCurrent::NotTheWaiter { .. } => Self::Removed,
        }
    }
}
