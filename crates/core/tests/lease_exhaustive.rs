//! Every state of small worlds of three or four owners.

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

use std::num::NonZeroU32;

use lockkeeper_core::resource::{Mode, Resource};

use crate::exploration::{Rules, assert_states, exclusive, path};
use crate::world::name;

fn shared(text: &str) -> Resource {
    name(text, Mode::Shared)
}

fn slots(text: &str, count: u32) -> Resource {
    name(text, Mode::Slots(NonZeroU32::new(count).unwrap()))
}

/// What may be asked for when there are two names: one of them, or both.
fn one_name_or_both() -> Vec<Vec<Resource>> {
    vec![vec![exclusive("m")], vec![exclusive("n")], vec![exclusive("m"), exclusive("n")]]
}

/// Invariants 1, 4, 6, 7 and 8. Requirements 160 and 162. All 2,639 states.
#[test]
fn three_owners_take_one_name_or_two() {
    let wishes = one_name_or_both();
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: true, family: None },
        2_639,
    );
}

/// Invariants 1, 4, 7 and 8. Requirements 154 and 156. All 767 states.
#[test]
fn three_readers_and_writers_upgrade_and_downgrade() {
    let wishes = vec![vec![exclusive("m")], vec![shared("m")]];
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: true, fails: true, family: None },
        767,
    );
}

/// Invariants 1, 4 and 7. Requirement 154. All 7,645 states.
#[test]
fn four_readers_and_writers_share_a_name() {
    let wishes = vec![vec![exclusive("m")], vec![shared("m")]];
    assert_states(
        &Rules { owners: 4, wishes, priorities: None, changes_mode: false, fails: true, family: None },
        7_645,
    );
}

/// Invariants 1, 6, 7 and 8. Requirements 154, 156 and 162. All 3,264 states.
#[test]
fn three_owners_share_one_of_two_names_and_change_their_minds() {
    let wishes = vec![vec![shared("m")], vec![exclusive("n")], vec![shared("m"), exclusive("n")]];
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: true, fails: false, family: None },
        3_264,
    );
}

/// Invariants 1, 4, 7 and 8. Requirements 160 and 162. All 3,120 states.
#[test]
fn three_owners_share_two_slots_and_a_name() {
    let wishes = vec![vec![slots("m", 2)], vec![exclusive("n")], vec![slots("m", 2), exclusive("n")]];
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: true, family: None },
        3_120,
    );
}

/// Invariants 1, 7 and 8. Requirements 155 and 160. All 3,256 states.
#[test]
fn an_urgent_owner_goes_before_two_others() {
    let wishes = one_name_or_both();
    let priorities = Some(vec![0, 0, 1]);
    assert_states(
        &Rules { owners: 3, wishes, priorities, changes_mode: false, fails: false, family: None },
        3_256,
    );
}

/// Invariants 1, 7 and 8. All 5,605 states.
#[test]
fn three_owners_claim_overlapping_paths() {
    let claims = [("src/**", Mode::Exclusive), ("src/a.rs", Mode::Exclusive), ("**/*.rs", Mode::Shared)];
    let wishes = claims.map(|(pattern, mode)| vec![path(pattern, mode)]).to_vec();
    assert_states(
        &Rules { owners: 3, wishes, priorities: None, changes_mode: false, fails: false, family: None },
        5_605,
    );
}
