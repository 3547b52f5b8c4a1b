//! End-to-end tests of `stages run`: real executions, with small shell commands as agents.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod commits;
mod downgrades;
mod ends;
mod group_locks;
mod logs;
mod order;
mod stages;
