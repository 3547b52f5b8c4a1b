//! The doctor: every check made to fail for real, and what the full pass puts away.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod alerts;
mod clinic;
mod document;
#[expect(dead_code, reason = "the tests of other commands use the rest")]
#[path = "../cli/env.rs"]
mod env;
mod formats;
mod hostile;
mod leases;
mod machine;
mod place;
mod runs;
mod store;
