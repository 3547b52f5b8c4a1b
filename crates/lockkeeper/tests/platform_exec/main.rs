//! Commands under a wrapper, with real processes.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod commands;
mod terminal;
mod trees;
mod wrapped;
