//! Conflicts outside of the rules: the log that they are written to, and the paths that a repository has.
//!
//! The log is `logs/conflicts.log` beside the file of stages, JSON Lines. Everybody appends whole lines to it with
//! one `write`; a reader passes over what is no line of it, and says how much that was.

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
