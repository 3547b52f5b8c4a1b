//! What a git repository's past commits touched, read from git itself.
//!
//! `git log` is read as it comes, so that a long history needs memory for what is kept of it and no more. Renames are
//! followed: a file's commits count for the name that it has now.

mod error;
mod git;
mod log;
mod names;
mod past;

pub use error::HistoryError;
pub use past::{Limits, Past, Told, read, tell};
