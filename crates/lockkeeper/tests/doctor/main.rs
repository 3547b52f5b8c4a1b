//! End-to-end tests of `doctor`: every check fails once for real, and the full pass recovers.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod alerts;
mod doctor;
mod document;
mod formats;
mod hostile;
mod leases;
mod machine;
mod place;
mod runs;
mod store;
