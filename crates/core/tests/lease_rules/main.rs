//! The rules of leases, one claim a test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agent_calls;
mod calls;
mod cycles;
mod ends;
mod families;
mod hand_over;
mod line;
mod modes;
mod permission;
mod reassert;
mod resume;
mod sessions;
#[path = "../support/story.rs"]
mod story;
mod together;
mod watching;
#[path = "../support/world.rs"]
mod world;

use lockkeeper_core::id::Token;
use lockkeeper_core::lease::{self, Caller, NotCurrent, Outcome, WaitTerms};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::{Mode, Target};

use crate::story::{ask, woken};
use crate::world::{World, name, seconds, waker};

fn granted(outcome: Outcome) -> Lease {
    match outcome {
        Outcome::Granted(grant) => grant.lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// A caller that names this owner.
fn named(owner: &str) -> Caller {
    Caller { owner: Some(format!("worker:{owner}").parse().unwrap()), ..Caller::default() }
}

fn db() -> Target {
    name("db", Mode::Exclusive).target
}
