//! The native leases against the worst that can happen: storms of processes, kills at every step, failing disks.
//!
//! Needs strace(1), faketime(1), setpriv(1), unshare(1) and Linux. `LOCKKEEPER_SEED` repeats a storm,
//! `LOCKKEEPER_STORM_SECONDS` makes storms longer.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod check;
mod clocks;
mod crash;
mod disks;
mod files;
mod history;
mod injected;
mod line;
mod lost;
mod namespaces;
mod site;
mod stopped;
mod storm;
mod storms;
mod users;
mod users_runs;
mod worker;
