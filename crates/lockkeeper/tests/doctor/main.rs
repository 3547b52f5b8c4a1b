//! The doctor: every check made to fail for real, and what the full pass puts away.
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
