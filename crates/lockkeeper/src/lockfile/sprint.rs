//! The sprint lock: one `.sprint-running` in a project's root, which lets only one sprint run at a time.

mod decide;
mod judge;
mod problem;
mod record;
mod status;
mod texts;
mod yaml;

pub use decide::{Found, Question, Step, decide};
pub use judge::{Judged, ZOMBIE_THRESHOLD_HOURS};
pub use problem::{Problem, Severity};
pub use record::{LOCK_VERSION, NoRecord, Record, StartedAt};
pub use status::{Answer, LockInfo, Mode, Status};
pub use texts::{Lang, Text};
