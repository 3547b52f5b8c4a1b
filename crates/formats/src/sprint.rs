//! Sprint lock: one file `.sprint-running` in the root of a project, so that only one sprint runs at a time.
//!
//! The file is the lock. It names a process, a session, a time and an epic. It is a **zombie** when the process has
//! ended, when it is older than a day, or when it has no valid record. A zombie is taken over after a confirmation, or
//! with `--force`. The lock of a running sprint is taken only with `--force` *and* a confirmation. The format's own way
//! (write a temporary file, rename it) lets several processes in at once. So the file is created, replaced and removed
//! with the protocol of [`guard`](super::guard); the result looks the same.
//!
//! [`decide()`] is the whole decision and [`Judged`] the whole judgement. [`run`] carries them out.
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
//!     Caller { lang: Lang::En, answer_lang: Lang::En, confirm: &mut |_| false, tell: &mut |_| {}, pid: std::process::id() };
//! let answer = run(&input.check()?, &Machine::real(), &mut caller);
//! assert_eq!(answer.status, Status::Acquired);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decide;
mod error_map;
mod fields;
mod flow;
mod gitignore;
mod held;
mod input;
mod judgement;
mod messages;
mod problem;
mod quote;
mod record;
mod status;
mod translations;

use std::time::Duration;

pub use decide::{Found, Question, Step, decide};
pub use flow::{Caller, Machine, Notice, run};
pub use gitignore::is_ignored;
pub use held::release_held;
pub use input::{Call, Input, LOCK_FILE_NAME};
pub use judgement::{Judged, ZOMBIE_THRESHOLD_HOURS};
pub use problem::{Problem, Severity};
pub use record::{LOCK_VERSION, Record, RecordError, StartedAt};
pub use status::{Answer, LockInfo, Mode, Status};
pub use translations::{Lang, Text};

/// How long to wait for a confirmation. No answer means no.
pub const USER_CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
