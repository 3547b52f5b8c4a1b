//! `Run`: the handle of a submitted run, its status and its outcome.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{RequestId, RunId};
use lockkeeper_core::run;
use lockkeeper_engine::runs::RunError;

use super::{Error, Keeper};

/// A run: one execution of a request, by a worker in any process.
///
/// Dropping it changes nothing: the run goes on. [`Keeper::find_run`] finds it again.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::{Keeper, RunStatus};
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let run = keeper.submit(["make", "test"]).enqueue()?;
/// assert_eq!(run.status()?, RunStatus::Queued);
/// assert_eq!(run.wait_timeout(Duration::from_millis(1))?, None); // no worker runs here
/// run.cancel()?;
/// assert_eq!(run.wait()?.status, RunStatus::Canceled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Run {
    keeper: Keeper,
    id: RunId,
    request: RequestId,
}

impl Run {
    pub(super) fn new(keeper: Keeper, id: RunId, request: RequestId) -> Self {
        Self { keeper, id, request }
    }

    /// The id of the run, such as `RUN-20260131-120000-k3x9f2m7qd`.
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    /// The id of the request. A later request can come [after](super::RunBuilder::after) it.
    pub fn request_id(&self) -> &str {
        self.request.as_str()
    }

    /// Reads the present status.
    pub fn status(&self) -> Result<RunStatus, Error> {
        let run = self.keeper.runs()?.run(&self.id).map_err(Error::run)?;
        Ok(RunStatus::new(run.status()))
    }

    /// Waits until the run has ended.
    pub fn wait(&self) -> Result<RunOutcome, Error> {
        self.wait_until(None, None)?.ok_or_else(interrupted)
    }

    /// Waits until the run has ended, at most this long. Returns none if it has not ended; it goes on.
    pub fn wait_timeout(&self, limit: Duration) -> Result<Option<RunOutcome>, Error> {
        // A limit beyond the range of the clock is none.
        self.wait_until(Instant::now().checked_add(limit), None)
    }

    /// Waits until the run has ended, on a blocking thread of tokio. Dropping the future ends the wait, and not the run.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub async fn wait_async(&self) -> Result<RunOutcome, Error> {
        let run = self.clone();
        let wait = move |cancelled: BorrowedFd<'_>| run.wait_until(None, Some(cancelled));
        super::wait_task::run(wait).await?.ok_or_else(interrupted)
    }

    /// Cancels the run. Its worker then stops the command. A run that has ended stays as it is.
    ///
    /// Returns the status after that: [`RunStatus::Cancelling`] until the command is stopped.
    pub fn cancel(&self) -> Result<RunStatus, Error> {
        match self.keeper.runs()?.cancel(&self.id, None) {
            Ok(canceled) => Ok(RunStatus::new(canceled.run.status())),
            Err(RunError::Refused { current, .. }) if current.is_terminal() => Ok(RunStatus::new(current)),
            Err(error) => Err(Error::run(error)),
        }
    }

    fn wait_until(
        &self,
        until: Option<Instant>,
        interrupt: Option<BorrowedFd<'_>>,
    ) -> Result<Option<RunOutcome>, Error> {
        let run = self.keeper.runs()?.wait(&self.id, until, interrupt).map_err(Error::run)?;
        Ok(run.status().is_terminal().then(|| RunOutcome::new(&run)))
    }
}

fn interrupted() -> Error {
    Error::System(io::ErrorKind::Interrupted.into())
}

/// Where a run is.
///
/// ```
/// use lockkeeper::RunStatus;
///
/// assert!(RunStatus::Failed.is_terminal());
/// assert_eq!(RunStatus::TimedOut.to_string(), "timedOut");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunStatus {
    /// It waits for a worker.
    Queued,
    /// A worker executes it, or it waits for its next attempt.
    Running,
    /// It was canceled, and its command has not ended yet.
    Cancelling,
    /// Its command succeeded.
    Succeeded,
    /// Its command failed, could not be started, or was lost with its worker.
    Failed,
    /// It was canceled.
    Canceled,
    /// It waited or ran for too long.
    TimedOut,
    /// The queue refused it.
    Rejected,
}

impl RunStatus {
    fn new(status: run::Status) -> Self {
        match status {
            run::Status::Queued => Self::Queued,
            run::Status::Running => Self::Running,
            run::Status::Cancelling => Self::Cancelling,
            run::Status::Succeeded => Self::Succeeded,
            run::Status::Failed => Self::Failed,
            run::Status::Canceled => Self::Canceled,
            run::Status::TimedOut => Self::TimedOut,
            run::Status::Rejected => Self::Rejected,
        }
    }

    /// Whether the run has ended. The status then never changes again.
    pub fn is_terminal(self) -> bool {
        self.as_core().is_terminal()
    }

    fn as_core(self) -> run::Status {
        match self {
            Self::Queued => run::Status::Queued,
            Self::Running => run::Status::Running,
            Self::Cancelling => run::Status::Cancelling,
            Self::Succeeded => run::Status::Succeeded,
            Self::Failed => run::Status::Failed,
            Self::Canceled => run::Status::Canceled,
            Self::TimedOut => run::Status::TimedOut,
            Self::Rejected => run::Status::Rejected,
        }
    }
}

/// The word that the command, the HTTP API and the files use.
impl fmt::Display for RunStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_core().fmt(f)
    }
}

/// How a run ended.
///
/// ```
/// # use lockkeeper::{Keeper, RunStatus};
/// # let folder = tempfile::tempdir()?;
/// # let keeper = Keeper::open(folder.path())?;
/// # let run = keeper.submit(["make", "test"]).enqueue()?;
/// # run.cancel()?;
/// let outcome = run.wait()?;
/// if outcome.status != RunStatus::Succeeded {
///     eprintln!("{}: {:?}, exit code {:?}", outcome.status, outcome.reason, outcome.exit_code);
/// }
/// # assert_eq!(outcome.reason.as_deref(), Some("USER_CANCELED"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The last status.
    pub status: RunStatus,
    /// The exit code of the last attempt as shells give it (128 + n after signal n). None if no command ended.
    pub exit_code: Option<u8>,
    /// A stable code that says why the run did not succeed, such as `EXIT_CODE` or `EXECUTION_TIMEOUT`.
    pub reason: Option<String>,
    /// The same in words, for people.
    pub message: Option<String>,
    /// How many attempts there were.
    pub attempts: u32,
}

impl RunOutcome {
    fn new(run: &run::Run) -> Self {
        Self {
            status: RunStatus::new(run.status()),
            exit_code: run.ending().map(run::Ending::exit_code),
            reason: run.reason().map(|reason| reason.to_string()),
            message: run.message().map(ToOwned::to_owned),
            attempts: run.attempt(),
        }
    }
}
