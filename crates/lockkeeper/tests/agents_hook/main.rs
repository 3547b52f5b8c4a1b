//! `lockkeeper hook` and the commands for agents, with inputs as the harnesses send them, piped into the real program.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod agents;
mod claims;
mod commands;
mod ends;
mod failing;
mod families;
mod files;
mod recorded;
mod storm;
mod work_trees;
