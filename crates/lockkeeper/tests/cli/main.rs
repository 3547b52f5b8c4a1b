//! End-to-end tests of the command line: a few for each command.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod acquire;
mod bad_input;
mod config;
mod conflicts;
mod demo;
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
