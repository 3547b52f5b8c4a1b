//! Several machines on one Redis server: what holds on PostgreSQL holds here, and what servers do that forget.
//!
//! A machine is a runtime folder of its own: a kernel lock in another folder proves nothing here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../teams/cut_off.rs"]
mod cut_off;
#[path = "../teams/holders.rs"]
mod holders;
#[path = "../teams/outlive.rs"]
mod outlive;
mod server;
mod servers;
mod settings;
#[path = "../teams/team.rs"]
mod team;
