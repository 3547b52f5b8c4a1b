//! Several machines on one PostgreSQL server: leases, sessions, guardians, cut links.
//!
//! A machine is a runtime folder of its own: a kernel lock in another folder proves nothing here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod clock;
mod cut_off;
mod forgotten;
mod forgotten_runs;
mod holders;
mod library;
mod migrate;
mod outlive;
mod output;
mod runs;
mod server;
mod servers;
mod settings;
mod store;
mod team;
