//! Task locks of the swarm: the files, the commands, hostile things at the path, storms, kills and a full disk.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod commands;
mod disk;
mod foreign;
mod hold;
mod hostile;
mod kills;
mod records;
mod storm;
mod support;
