//! Conflict log, and the list of the paths of a repository.
//!
//! The log is `logs/conflicts.log` beside the STAGES.yml, in JSON Lines. Each process appends whole lines with one `write`.
//! A reader skips lines that it cannot parse, and counts them. It
//! also reads objects that are spread over several lines, as shell scripts print them.

mod error;
mod line;
mod listing;
mod log;
mod summary;

pub use error::ConflictsError;
pub use line::{Line, lines};
pub use listing::Listing;
pub use log::{ConflictLog, MAX_LINE};
pub use summary::{PairSummary, Summary};
