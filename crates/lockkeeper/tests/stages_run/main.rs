//! Phases of a STAGES.yml executed for real, with tiny commands in place of agents.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod downgrades;
mod ends;
mod logs;
mod order;
mod site;
