//! `lockkeeper init` and the doctor's proof for coding agents, with settings in a home folder of the test.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod doctor;
mod files;
mod packages;
mod project;
mod user;
