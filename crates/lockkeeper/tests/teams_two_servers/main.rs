//! Several machines with leases on a Redis server and requests and runs on a PostgreSQL server: what holds on PostgreSQL alone holds here.
//!
//! A machine is a runtime folder of its own: a kernel lock in another folder proves nothing here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod leases;
#[path = "../teams/runs.rs"]
mod runs;
mod settings;
mod team;
