//! Workers as processes of their own: what they execute, and what becomes of it when they are killed, frozen or starved.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod ends;
mod executor_storm;
mod executors;
mod faults;
mod frozen;
mod guardians;
mod kills;
mod line;
mod namespaces;
mod old_state;
mod output;
mod power_loss;
mod rescues;
mod short_runs;
mod site;
mod stopped;
mod storm;
mod trees;
