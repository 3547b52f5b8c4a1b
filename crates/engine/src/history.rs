//! History of a git repository: which paths each commit touched, read from `git log`.
//!
//! The output of git is parsed while git writes it, so a long history needs little memory. Renames are followed: the
//! commits of a file count for its newest name.

mod error;
mod git;
mod log;
mod names;
mod repository;

pub use error::HistoryError;
pub use repository::{CommitSummary, Limits, RepositoryHistory, read, summaries};
