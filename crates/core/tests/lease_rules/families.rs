//! Rules of leases: agents, their sub-agents and their work trees.

use lockkeeper_core::lease::AgentCall;
use lockkeeper_core::record::Claim;

use super::*;

/// A hook call of an agent, whose process is that of the first letter.
pub(super) fn call(owner: &str, paths: &[&str]) -> AgentCall {
    let claim = |path: &&str| {
        let one = ask(owner).path(path).agent(None).for_process(9).ttl(600).contract(Contract::Lease);
        Claim::clone(one.claim())
    };
    AgentCall {
        owner: format!("worker:{owner}").parse().unwrap(),
        claims: paths.iter().map(claim).collect(),
        checks: Vec::new(),
        ttl: seconds(600),
        stays: seconds(100),
        unrenewed: Vec::new(),
        files: Vec::new(),
        proof: None,
    }
}

pub(super) fn calls(world: &mut World, owner: &str, paths: &[&str]) -> lease::AgentAnswer {
    world.decide(|overlay| lease::agent_call(overlay, &call(owner, paths))).0
}

pub(super) fn holders(world: &World, path: &str) -> Vec<String> {
    let holds = |lease: &&Lease| lease.claim.targets().any(|target| target.as_str() == path);
    world.records.leases().filter(holds).map(|lease| lease.claim.owner.to_string()).collect()
}

/// Invariant 1.
#[test]
fn a_sub_agent_may_take_what_an_owner_above_it_holds() {
    let mut world = World::new();
    world.hold(ask("c").path("src/**").agent(None));
    world.hold(ask("c:d").path("src/a.rs").agent(None));
    world.hold(ask("c:d:x").path("src/a.rs").agent(None));
    world.refused(ask("x").path("src/b.rs").agent(None));
}

/// Invariant 1.
#[test]
fn a_parent_waits_for_its_sub_agent_and_siblings_exclude_each_other() {
    let mut world = World::new();
    world.hold(ask("c:d").path("src/a.rs").agent(None));
    world.refused(ask("c").path("src/a.rs").agent(None));
    world.refused(ask("c:e").path("src/a.rs").agent(None));
    world.refused(ask("c:dd").path("src/a.rs").agent(None));
}

/// Invariant 1. An owner with two colons is a sub-agent only if both claims are those of agents.
#[test]
fn other_owners_have_no_families() {
    let mut world = World::new();
    world.hold(ask("c").path("src/a.rs"));
    world.refused(ask("c:d").path("src/a.rs"));
    world.refused(ask("c:d").path("src/a.rs").agent(None));
    world.hold(ask("b").path("src/b.rs").agent(None));
    world.refused(ask("b:d").path("src/b.rs"));
}

/// Invariant 1.
#[test]
fn agents_in_two_work_trees_do_not_exclude_each_other() {
    let mut world = World::new();
    world.hold(ask("a").path("src/a.rs").agent(Some("1")));
    world.hold(ask("b").path("src/a.rs").agent(Some("2")));
    world.refused(ask("c").path("src/a.rs").agent(Some("2")));
    world.refused(ask("c").path("src/a.rs").agent(None));
    world.refused(ask("c").path("src/a.rs"));
}

/// Invariant 7. A waiter in another work tree stands for nobody in this one.
#[test]
fn nobody_overtakes_in_a_work_tree_past_a_waiter_of_another_one() {
    let mut world = World::new();
    world.hold(ask("h").path("y").path("z"));
    let first = world.queue(&ask("a").path("x").path("y").agent(Some("1")));
    world.queue(&ask("b").path("x").path("z").agent(Some("2")));
    let blockers = world.refused(ask("c").path("x").agent(Some("1")));
    assert_eq!(blockers[0].tickets.iter().map(|found| found.record.id).collect::<Vec<_>>(), [first.id]);
}

/// A lease in one work tree is not enough in another one.
#[test]
fn an_agent_in_two_work_trees_has_two_leases() {
    let mut world = World::new();
    let first = world.hold(ask("a").path("src/a.rs").agent(Some("1")).join());
    let second = world.hold(ask("a").path("src/a.rs").agent(Some("2")).join());
    assert_ne!(first.id, second.id);
    assert_eq!(world.hold(ask("a").path("src/a.rs").agent(Some("2")).join()).id, second.id);
}

/// Invariant 1. On a counted name every owner counts, also in a family.
#[test]
fn slots_are_counted_within_a_family() {
    let mut world = World::new();
    world.hold(ask("c").slots("gpu", 2).agent(None));
    world.hold(ask("c:d").slots("gpu", 2).agent(None));
    world.refused(ask("c:e").slots("gpu", 2).agent(None));
}

/// Invariant 7. Slots are counted in all work trees, a whole name is not.
#[test]
fn an_upgrade_from_a_slot_lets_in_a_waiter_of_another_work_tree() {
    for waits in [false, true] {
        let mut world = World::new();
        let slot = world.hold(ask("a").slots("gpu", 2).agent(Some("1")));
        let other = waits.then(|| world.hold(ask("x").slots("gpu", 2)));
        let elsewhere = world.queue(&ask("b").name("gpu").agent(Some("2")));
        assert_eq!(matches!(world.upgrade(&slot), Outcome::Waiting(_)), waits);
        if let Some(other) = other {
            world.release(&other);
        }
        assert!(world.holds(&elsewhere));
    }
}

/// Invariants 4 and 7. The dead waiter is found only while the sub-agent asks.
#[test]
fn a_sub_agent_may_take_what_its_parent_gets_by_the_death_of_a_waiter() {
    let mut world = World::new();
    world.hold(ask("a").path("y"));
    world.queue(&ask("x").path("src/a.rs").path("y"));
    assert!(calls(&mut world, "c", &["src/a.rs"]).denied[0].ticket.is_some());
    world.kill("x");
    world.hold(ask("c:d").path("src/a.rs").agent(None));
    assert_eq!(holders(&world, "src/a.rs"), ["worker:c", "worker:c:d"]);
}

/// Invariant 7. Somebody who waits for the parent does not stop the parent's sub-agent.
#[test]
fn a_stranger_in_line_for_what_the_parent_holds_does_not_block_the_sub_agent() {
    let mut world = World::new();
    world.hold(ask("c").path("src/a.rs").agent(None));
    world.queue(&ask("x").path("src/a.rs").agent(None));
    world.hold(ask("c:d").path("src/a.rs").agent(None));
}

/// Invariant 7. The grant of a whole name does not end the line for sub-agents of its holder.
#[test]
fn a_sub_agent_behind_its_parent_in_line_is_granted_with_it() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let parent = world.queue(&ask("c").name("db").agent(None));
    let child = world.queue(&ask("c:d").name("db").agent(None));
    world.release(&held);
    assert!(world.holds(&parent) && world.holds(&child));
}
