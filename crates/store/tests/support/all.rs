//! What both conformance suites share. Each suite includes this file as its module `support`.

pub mod breaks;
#[macro_use]
pub mod cases;
pub mod harness;
pub mod on_server;
pub mod other_process;
pub mod serving;
pub mod through_proxy;

use std::time::Duration;

/// Longer than anything that works takes, on the slowest machine.
pub const LIMIT: Duration = Duration::from_secs(30);
