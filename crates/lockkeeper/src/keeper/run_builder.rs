//! `RunBuilder`: the request to run a command.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use lockkeeper_engine::runs::environment;
use lockkeeper_engine::runs::new_request::{BadRequest, Defaults, NewRequest, SpanText};

use super::{Error, Keeper, Run};

/// A request to run a command. Nothing happens before [`enqueue`](Self::enqueue).
///
/// The command gets a few variables of this process (`PATH`, `HOME`, `LANG` and similar ones) and those of
/// [`env`](Self::env), and no others; on a store of several machines, those that describe a place come from the worker. It starts when
/// a worker is free and all its locks are. The settings `timeout`, `queue_timeout` and `queue_limit` of the command do not apply.
///
/// ```
/// use std::time::Duration;
/// use lockkeeper::{Keeper, RunStatus};
///
/// # let folder = tempfile::tempdir()?;
/// let keeper = Keeper::open(folder.path())?;
/// let build = keeper.submit(["make"]).id("build").path("target/**").enqueue()?;
/// let tests = keeper
///     .submit(["make", "test"])
///     .lock("db")
///     .after("build")
///     .retries(2)
///     .timeout(Duration::from_secs(600))
///     .env("RUST_LOG", "info")
///     .enqueue()?;
/// assert_eq!(tests.status()?, RunStatus::Queued);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a run builder does nothing until `enqueue` is called"]
pub struct RunBuilder {
    keeper: Keeper,
    request: NewRequest,
    /// The first setting that was not valid.
    invalid: Option<Error>,
}

impl RunBuilder {
    pub(super) fn new(keeper: Keeper, command: Vec<String>) -> Self {
        Self { keeper, request: NewRequest { command, ..NewRequest::default() }, invalid: None }
    }

    /// Chooses the id of the request. An id that is in use is refused. By default a new id is made.
    pub fn id(mut self, id: &str) -> Self {
        self.request.id = Some(id.to_owned());
        self
    }

    /// Sets the title, for people. By default it is the command.
    pub fn title(mut self, title: &str) -> Self {
        self.request.title = Some(title.to_owned());
        self
    }

    /// Holds this name while the command runs.
    pub fn lock(mut self, name: &str) -> Self {
        self.request.locks.push(name.to_owned());
        self
    }

    /// Holds this pattern over paths while the command runs. Paths are relative to the root of the repository.
    pub fn path(mut self, pattern: &str) -> Self {
        self.request.paths.push(pattern.to_owned());
        self
    }

    /// Shares all names and paths with other holders that share them.
    pub fn shared(mut self) -> Self {
        self.request.shared = true;
        self
    }

    /// Starts only when this request is done. See [`Run::request_id`].
    pub fn after(mut self, request_id: &str) -> Self {
        self.request.after.push(request_id.to_owned());
        self
    }

    /// Allows this many more attempts after a failure.
    pub fn retries(mut self, retries: u32) -> Self {
        self.request.retries = retries;
        self
    }

    /// Sets the wait before the second attempt. Each further wait is twice as long. By default it is one second.
    pub fn backoff(mut self, wait: Duration) -> Self {
        self.request.backoff = Some(SpanText::Seconds(wait.as_secs_f64()));
        self
    }

    /// Stops an attempt that takes longer. Zero is no limit.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.request.timeout = Some(SpanText::Seconds(limit.as_secs_f64()));
        self
    }

    /// Gives the run up if it does not start within this time. Zero is no limit.
    pub fn queue_timeout(mut self, limit: Duration) -> Self {
        self.request.queue_timeout = Some(SpanText::Seconds(limit.as_secs_f64()));
        self
    }

    /// Sets the priority in the queue, from −100 to 100. A larger number is served earlier.
    pub fn priority(mut self, level: i32) -> Self {
        self.request.priority = level;
        self
    }

    /// Sets a variable for the command.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.request.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets the directory in which the command runs. By default it is the current directory of this process.
    pub fn current_dir(mut self, path: impl AsRef<Path>) -> Self {
        match path.as_ref().to_str() {
            Some(path) => self.request.cwd = Some(path.to_owned()),
            None => {
                let error = BadRequest::Folder(path.as_ref().to_owned());
                self.invalid.get_or_insert_with(|| Error::invalid(error));
            }
        }
        self
    }

    /// Sets a key against duplicates: a second request with the same key returns the run of the first.
    pub fn key(mut self, key: &str) -> Self {
        self.request.key = Some(key.to_owned());
        self
    }

    /// Puts the request into the queue. When this returns, the request survives a power cut.
    pub fn enqueue(self) -> Result<Run, Error> {
        if let Some(error) = self.invalid {
            return Err(error);
        }
        let dir = std::env::current_dir().map_err(Error::System)?;
        let runs = self.keeper.runs()?;
        let env = if runs.is_shared() {
            environment::for_any_machine(std::env::vars_os())
        } else {
            environment::of_submitter(std::env::vars_os())
        };
        let defaults = Defaults { dir, env, ..Defaults::default() };
        let request = self
            .request
            .check(&runs.new_request_id().map_err(Error::run)?, &defaults)
            .map_err(Error::invalid)?;
        let submitted = runs.submit(&request, None).map_err(Error::submission)?;
        Ok(Run::new(self.keeper, submitted.run, submitted.request))
    }
}

/// Shows the command only: variables may be secret.
impl fmt::Debug for RunBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunBuilder").field("command", &self.request.command).finish_non_exhaustive()
    }
}
