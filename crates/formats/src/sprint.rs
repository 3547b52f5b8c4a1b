//! The sprint lock: one `.sprint-running` in a project's root, which lets only one sprint run at a time.
//!
//! The file is the lock. It names a process, a session, a time and an epic; it is a **zombie** when the process is
//! gone, or when it is older than a day, or when it holds no record. A zombie is taken over after a question, or by
//! force; the lock of a sprint that runs, only by force *and* a question. How a file is created, replaced and removed
//! is not this format's own way (write a temporary file, rename it), which lets several in at once, but
//! [`guard`](super::guard)'s; the result is the format's.
//!
//! [`decide()`] is the whole decision, [`Judged`] the whole judgement; [`run`] carries them out.
//!
//! ```
//! use lockkeeper_formats::sprint::{Caller, Input, Lang, Machine, Status, run};
//!
//! # let root = tempfile::tempdir()?;
//! let input = Input {
//!     mode: "acquire".to_owned(),
//!     project_root: Some(root.path().to_owned()),
//!     session_id: Some("sprint-1".to_owned()),
//!     epic_spec: Some("epic5".to_owned()),
//!     ..Input::default()
//! };
//! let mut caller =
//!     Caller { lang: Lang::En, confirm: &mut |_| false, tell: &mut |_| {}, pid: std::process::id() };
//! let answer = run(&input.check()?, &Machine::real(), &mut caller);
//! assert_eq!(answer.status, Status::Acquired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decide;
mod faults;
mod fields;
mod flow;
mod ignored;
mod input;
mod judge;
mod problem;
mod quote;
mod record;
mod status;
mod texts;
mod wording;

use std::time::Duration;

pub use decide::{Found, Question, Step, decide};
pub use flow::{Caller, Machine, run};
pub use ignored::is_ignored;
pub use input::{Call, Input, LOCK_FILE_NAME};
pub use judge::{Judged, ZOMBIE_THRESHOLD_HOURS};
pub use problem::{Problem, Severity};
pub use record::{LOCK_VERSION, NoRecord, Record, StartedAt};
pub use status::{Answer, LockInfo, Mode, Status};
pub use texts::{Lang, Text};

/// How long a person may think; no answer is a no.
pub const USER_CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
