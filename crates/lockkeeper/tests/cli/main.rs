//! The command as people and scripts meet it: a few end-to-end tests for each.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod acquire;
mod bad_input;
mod config;
mod conflicts;
mod exec;
mod generated;
mod lifecycle;
mod locks;
mod output;
mod past;
mod places;
mod predict;
mod predict_measured;
mod run;
mod run_logs;
mod stages;
mod submit;
mod why;
