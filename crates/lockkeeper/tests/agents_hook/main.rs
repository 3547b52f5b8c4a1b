//! `lockkeeper hook` and the commands for agents, with inputs as the harnesses send them, piped into the real program.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod agents;
mod attribution;
mod claims;
mod commands;
mod ends;
mod example;
mod failing;
mod families;
mod files;
mod git_names;
mod names;
mod recorded;
mod storm;
mod work_trees;
