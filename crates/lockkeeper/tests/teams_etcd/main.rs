//! Several machines on etcd: what holds on PostgreSQL holds here, and what happens when members are lost.
//!
//! A machine is a runtime folder of its own: a kernel lock in another folder proves nothing here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../teams/cut_off.rs"]
mod cut_off;
#[path = "../teams/holders.rs"]
mod holders;
mod members;
#[path = "../teams/outlive.rs"]
mod outlive;
mod restored;
mod server;
mod settings;
#[path = "../teams/team.rs"]
mod team;
