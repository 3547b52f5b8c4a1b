//! Task locks of the swarm format: files, commands, hostile files, many processes, kills, a full disk.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod commands;
mod dialects;
mod disk;
mod foreign;
mod hold;
mod hostile;
mod kills;
mod queue;
mod records;
mod storm;
mod tasks;
