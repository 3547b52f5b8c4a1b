//! Status log: one JSON object on each line. Many programs append to it, and any program may follow it.
//!
//! The log is `status.log` in the folder of the swarm. It has no owner: programs that know nothing of this crate append
//! with `open(path, "a")`. So the guarantees hold without their help:
//!
//! - **A line is one `write`**, newline included, to a file that is open for appending. The kernel chooses the offset, so
//!   lines of two writers never mix.
//! - **An incomplete line damages no other line.** A writer that is killed, or runs out of disk, leaves a line without a
//!   newline. The next writer adds the newline first. If the incomplete line appears between its check and its write,
//!   the writer notices afterwards that its line was joined to it, and writes its line again.
//! - **Rotation loses nothing.** The log is renamed to `status.log.1`, never copied or truncated. A program that opened it
//!   before the rename writes into the renamed file, and every reader here reads that too. Only a line in a file that was
//!   deleted is written again.
//! - **Readers never stop at garbage.** They skip and count lines that are not status lines, and wait for the rest of a
//!   line without a newline.
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
mod line;
mod line_splitter;
mod log;
mod python_json;
mod rotate;
mod summary;

pub use error::StatusError;
pub use follow::Follow;
pub use line::{Dialect, LineError, MAX_LINE, State, StatusLine};
pub use log::StatusLog;
pub(crate) use python_json::quoted as python_text;
pub use rotate::Rotation;
pub use summary::{Summary, TaskStatus, WorkerStatus};
