//! End-to-end tests of the command line: a few for each command.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod acquire;
mod bad_input;
mod completions;
mod config;
mod conflicts;
mod deb;
mod demo;
mod exec;
mod generated;
mod habits;
mod holders;
mod languages;
mod lifecycle;
mod locks;
mod output;
mod overview;
mod past;
mod places;
mod predict;
mod predict_measured;
mod queue;
mod readable;
mod run;
mod run_logs;
mod signals;
mod stages;
mod submit;
mod why;
