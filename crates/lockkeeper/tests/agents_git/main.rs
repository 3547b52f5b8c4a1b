//! `lockkeeper commit` and the git guard, with the real git as the judge.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod commit_paths;
mod commit_refused;
mod commit_together;
mod guard;
mod guard_setup;
mod repository;
