//! The steps that random histories are made of.

use std::num::NonZeroU32;

use lockkeeper_core::resource::{Mode, Resource, Target};
use proptest::prelude::*;

use crate::world::name;

/// The last two are sub-agents of `c`, in histories with families.
pub const OWNERS: [&str; 5] = ["a", "b", "c", "c:d", "c:e"];
/// Owners from here on are agents, in histories with families.
pub const FIRST_AGENT: usize = 2;
pub const NAMES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const PATTERNS: [&str; 5] = ["src/**", "src/a.rs", "src/b.rs", "**/*.rs", "docs/**"];
/// What somebody does next; numbers stand for the owners that are there then.
#[derive(Clone, Debug)]
pub enum Step {
    Acquire {
        owner: usize,
        voucher: u8,
        wants: Vec<(usize, u8)>,
        priority: i32,
        wait: bool,
        join: bool,
        ttl: u8,
        tree: u8,
    },
    /// A hook call of an agent that is about to change these files.
    Call {
        owner: usize,
        files: Vec<usize>,
        tree: u8,
    },
    /// A sub-agent stops.
    HandUp(usize),
    /// A session ends.
    EndSession(usize),
    Release(usize),
    Renew(usize, u8),
    Upgrade {
        lease: usize,
        wait: bool,
    },
    Downgrade(usize),
    GiveUp(usize),
    Attend(usize),
    WalkAway(usize),
    Kill(usize),
    Advance(u64),
    CleanUp,
    Revoke(usize),
    Evict(usize),
}

/// Any step.
pub fn step() -> impl Strategy<Value = Step> {
    let wants = prop::collection::vec((0..NAMES.len() + PATTERNS.len(), 0..6u8), 1..4);
    let acquire = (0..OWNERS.len(), 0..10u8, wants, -1..2i32, 0..5u8, any::<bool>(), (0..8u8, 0..6u8));
    prop_oneof![
        10 => acquire.prop_map(|(owner, voucher, wants, priority, wait, join, (ttl, tree))| Step::Acquire {
            owner, voucher, wants, priority, wait: wait > 0, join, ttl, tree
        }),
        4 => (FIRST_AGENT..OWNERS.len(), prop::collection::vec(0..PATTERNS.len(), 0..4), 0..6u8)
            .prop_map(|(owner, files, tree)| Step::Call { owner, files, tree }),
        1 => (FIRST_AGENT..OWNERS.len()).prop_map(Step::HandUp),
        1 => (FIRST_AGENT..OWNERS.len()).prop_map(Step::EndSession),
        5 => any::<usize>().prop_map(Step::Release),
        1 => (any::<usize>(), 0..4u8).prop_map(|(lease, ttl)| Step::Renew(lease, ttl)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(lease, wait)| Step::Upgrade { lease, wait }),
        1 => any::<usize>().prop_map(Step::Downgrade),
        2 => any::<usize>().prop_map(Step::GiveUp),
        1 => any::<usize>().prop_map(Step::Attend),
        1 => any::<usize>().prop_map(Step::WalkAway),
        2 => any::<usize>().prop_map(Step::Kill),
        2 => (1..25u64).prop_map(Step::Advance),
        1 => Just(Step::CleanUp),
        1 => any::<usize>().prop_map(Step::Revoke),
        1 => any::<usize>().prop_map(Step::Evict),
    ]
}

/// What a hook call wants.
pub fn file(pattern: usize) -> Resource {
    Resource { target: Target::Path(PATTERNS[pattern].parse().unwrap()), mode: Mode::Exclusive }
}

/// What an acquire wants, each target once.
pub fn resources(wants: &[(usize, u8)]) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for (target, mode) in wants {
        let slots = |slots| Mode::Slots(NonZeroU32::new(slots).unwrap());
        let resource = match (NAMES.get(*target), mode) {
            (Some(text), 0..3) => name(text, Mode::Exclusive),
            (Some(text), 3) => name(text, slots(2)),
            (Some(text), 4) if *target == 0 => name(text, slots(3)),
            (Some(text), _) => name(text, Mode::Shared),
            (None, mode) => Resource {
                target: Target::Path(PATTERNS[target - NAMES.len()].parse().unwrap()),
                mode: if *mode < 3 { Mode::Exclusive } else { Mode::Shared },
            },
        };
        if resources.iter().all(|known| known.target != resource.target) {
            resources.push(resource);
        }
    }
    resources
}
