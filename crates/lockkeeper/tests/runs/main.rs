//! Requests and runs, through the engine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod boots;
mod bulk;
mod crash;
mod damaged;
mod dependencies;
mod log;
mod older;
mod processes;
mod queue;
mod states;
mod work;
mod world;
