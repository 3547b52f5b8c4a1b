//! Several machines on one that serves its folder: what holds on PostgreSQL holds here, and how local processes take part.
//!
//! A machine is a runtime folder of its own: a kernel lock in another folder proves nothing here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../teams/cut_off.rs"]
mod cut_off;
mod folder;
#[path = "../teams/holders.rs"]
mod holders;
#[path = "../teams/output.rs"]
mod output;
mod queue;
#[path = "../teams/runs.rs"]
mod runs;
mod server;
mod settings;
#[path = "../teams/team.rs"]
mod team;
