//! Rules of leases: who holds what together.

use super::*;

/// Invariant 1. Requirement 154.
#[test]
fn an_exclusive_name_has_one_holder() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let blockers = world.refused(ask("b").name("db"));
    assert_eq!((blockers[0].leases[0].record.id, blockers[0].leases[0].witness.as_str()), (held.id, "db"));
    world.hold(ask("b").name("other"));
}

/// Invariant 1. Requirement 154.
#[test]
fn readers_share_and_exclude_writers() {
    let mut world = World::new();
    world.hold(ask("a").shared("db"));
    world.hold(ask("b").shared("db"));
    assert_eq!(world.refused(ask("c").name("db"))[0].excess, 2);
}

/// Invariant 1.
#[test]
fn slots_let_in_as_many_as_the_smallest_number_says() {
    let mut world = World::new();
    world.hold(ask("a").slots("gpu", 3));
    world.hold(ask("b").slots("gpu", 3));
    assert_eq!(world.refused(ask("c").slots("gpu", 2))[0].excess, 1);
    let two = world.hold(ask("c").slots("gpu", 3));
    world.refused(ask("d").slots("gpu", 4));
    world.release(&two);
    world.hold(ask("d").slots("gpu", 4));
    world.refused(ask("c").shared("gpu"));
}

/// Invariant 1.
#[test]
fn an_owner_takes_up_one_slot_with_all_its_leases() {
    let mut world = World::new();
    world.hold(ask("a").slots("gpu", 2));
    world.hold(ask("a").slots("gpu", 2));
    world.hold(ask("b").slots("gpu", 2));
    world.hold(ask("a").slots("gpu", 2));
    world.refused(ask("c").slots("gpu", 2));
}

/// Invariant 6. Requirement 162.
#[test]
fn several_resources_are_granted_all_or_none() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("y"));
    world.refused(ask("b").name("x").name("y").path("docs/**"));
    world.hold(ask("c").name("x").path("docs/**"));
    let ticket = world.queue(&ask("b").name("z").name("y"));
    assert_eq!(world.records.leases().count(), 2);
    world.release(&held);
    let lease = world.records.lease(ticket.id).unwrap();
    assert_eq!(lease.claim.resources.len(), 2);
}

/// Invariant 1.
#[test]
fn overlapping_paths_exclude_each_other_and_the_refusal_names_one() {
    let mut world = World::new();
    world.hold(ask("a").path("src/**"));
    assert_eq!(world.refused(ask("b").path("src/a.rs"))[0].leases[0].witness, "src/a.rs");
    let witness = world.refused(ask("b").path("**/*.rs"))[0].leases[0].witness.clone();
    assert!(witness.starts_with("src/") && witness.ends_with(".rs"), "{witness}");
    world.hold(ask("b").path("docs/**"));
    world.hold(ask("c").name("src"));
}

/// Invariant 1. Requirement 154.
#[test]
fn shared_paths_overlap_freely() {
    let mut world = World::new();
    world.hold(ask("a").shared_path("src/**"));
    world.hold(ask("b").shared_path("**/*.rs"));
    world.refused(ask("c").path("src/a.rs"));
}

/// Invariant 6.
#[test]
fn a_refusal_leaves_nothing_behind() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    let before = world.records.clone();
    world.refused(ask("b").name("db").name("x"));
    assert_eq!(world.records, before);
}

#[test]
fn an_owner_never_blocks_itself() {
    let mut world = World::new();
    let first = world.hold(ask("a").name("db"));
    let joined = world.hold(ask("a").shared("db").join());
    assert_eq!(joined.id, first.id);
    let second = world.hold(ask("a").name("db"));
    assert_ne!(second.id, first.id);
    world.release(&first);
    world.refused(ask("b").name("db"));
}

#[test]
fn joining_a_lease_renews_it() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").by_time(10));
    world.pass(9);
    assert_eq!(world.hold(ask("a").name("db").join()).id, held.id);
    world.pass(9);
    world.refused(ask("b").name("db"));
}

#[test]
fn a_weaker_lease_is_not_joined() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db"));
    let writer = world.hold(ask("a").name("db").join());
    assert_ne!(reader.id, writer.id);
    let wide = world.hold(ask("b").path("src/**"));
    assert_eq!(world.hold(ask("b").path("src/a.rs").join()).id, wide.id);
    assert_ne!(world.hold(ask("b").path("docs/**").join()).id, wide.id);
}

/// Invariant 2.
#[test]
fn every_grant_has_a_larger_token() {
    let mut world = World::new();
    let first = world.hold(ask("a").name("db"));
    let second = world.queue(&ask("b").name("db"));
    let other = world.hold(ask("c").name("x"));
    world.release(&first);
    let second = world.records.lease(second.id).unwrap().token;
    assert!(first.token < other.token && other.token < second);
}
