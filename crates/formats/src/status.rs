//! The status protocol: one JSON object a line in a log that many programs append to and anybody may follow.
//!
//! The log is `status.log` in the swarm's folder. It has no owner: programs that know nothing of this crate append
//! with `open(path, "a")`. So the promises are made to hold without their help:
//!
//! - **A line is one `write`** to a file opened for appending, with its newline. The kernel places it; lines of two
//!   writers never mix.
//! - **A torn line costs itself only.** Whoever was killed or ran out of disk in the middle leaves a piece without a
//!   newline. The next writer ends it first; if it comes about between the look and the write, the writer sees
//!   afterwards that its line was glued to a piece, and writes it once more.
//! - **Rotation loses nothing.** The log is renamed to `status.log.1`, never copied or truncated. Who opened it before
//!   and writes after, writes into the renamed file, which every reader here reads as well. Only a line that went
//!   into a file which had been deleted is written again.
//! - **Readers never stop at garbage.** What is not a status line is skipped and counted; what has no newline yet is
//!   waited for.
//!
//! ```
//! use lockkeeper_platform::wall_clock::WallTime;
//! use lockkeeper_formats::status::{State, StatusLine, StatusLog};
//!
//! # let folder = tempfile::tempdir()?;
//! let log = StatusLog::open(folder.path())?;
//! let mut follow = log.follow_from_start()?;
//! let line = StatusLine::new(State::Start, "task-123", WallTime::now())?.with_message("开始执行");
//! log.append(&line.with_worker("worker-1")?)?;
//!
//! let seen = follow.next(None)?.expect("without a limit there is always a next line");
//! assert_eq!((seen.state(), seen.worker()), (State::Start, Some("worker-1")));
//! let summary = log.summary(WallTime::now())?;
//! assert_eq!(summary.tasks[0].task, "task-123");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod files;
mod follow;
mod json;
mod line;
mod log;
mod rotate;
mod split;
mod summary;

pub use error::StatusError;
pub use follow::Follow;
pub use line::{LineError, MAX_LINE, State, StatusLine};
pub use log::StatusLog;
pub use rotate::Rotation;
pub use summary::{Summary, TaskStatus, WorkerStatus};
