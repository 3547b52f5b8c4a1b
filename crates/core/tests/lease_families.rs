//! Every state of small worlds of agents: a parent, its sub-agents, and a stranger.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/exploration.rs"]
mod exploration;
#[path = "support/exploration_checks.rs"]
mod exploration_checks;
#[path = "support/exploration_form.rs"]
mod exploration_form;
#[path = "support/sleepers.rs"]
mod sleepers;
#[path = "support/world.rs"]
mod world;

use lockkeeper_core::resource::Mode;

use crate::exploration::{Rules, assert_states, exclusive, path};

/// Invariants 1, 7 and 8 for an agent and two sub-agents of it, of whom each may stop. All 1,196 states.
#[test]
fn a_parent_and_two_sub_agents_take_one_of_two_names() {
    let wishes = vec![vec![exclusive("m")], vec![exclusive("n")]];
    let family = Some(["c", "c:d", "c:e"]);
    let rules = Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: false, family };
    assert_states(&rules, 1_196);
}

/// Invariants 1, 4, 7 and 8 for an agent, a sub-agent of it, and a stranger, who share and who die. All 12,847 states.
#[test]
fn a_parent_a_sub_agent_and_a_stranger_read_and_write() {
    let wishes = vec![vec![path("src/a.rs", Mode::Exclusive)], vec![path("src/**", Mode::Shared)]];
    let family = Some(["c", "c:d", "x"]);
    let rules = Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: true, family };
    assert_states(&rules, 12_847);
}
