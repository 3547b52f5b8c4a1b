//! Rules of leases: agents, their sub-agents and their work trees.

use lockkeeper_core::lease::AgentCall;
use lockkeeper_core::record::Claim;

use super::*;

/// A hook call of an agent, whose process is that of the first letter.
fn call(owner: &str, paths: &[&str]) -> AgentCall {
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
    }
}

fn calls(world: &mut World, owner: &str, paths: &[&str]) -> lease::AgentAnswer {
    world.decide(|overlay| lease::agent_call(overlay, &call(owner, paths))).0
}

fn holders(world: &World, path: &str) -> Vec<String> {
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

/// Invariant 7. Somebody who waits for the parent does not stop the parent's sub-agent.
#[test]
fn a_stranger_in_line_for_what_the_parent_holds_does_not_block_the_sub_agent() {
    let mut world = World::new();
    world.hold(ask("c").path("src/a.rs").agent(None));
    world.queue(&ask("x").path("src/a.rs").agent(None));
    world.hold(ask("c:d").path("src/a.rs").agent(None));
}

/// Invariant 6.
#[test]
fn a_call_gets_all_files_or_none() {
    let mut world = World::new();
    assert_eq!(calls(&mut world, "a", &["y"]).granted.len(), 1);
    let denied = calls(&mut world, "b", &["x", "y", "z"]).denied;
    assert_eq!(denied.len(), 1);
    assert_eq!((holders(&world, "x"), holders(&world, "z")), (vec![], vec![]));
    assert_eq!(calls(&mut world, "c", &["x", "z", "x"]).granted.len(), 2);
}

/// A denied call keeps its place, and its next call is told that its turn has come.
#[test]
fn a_denied_agent_stands_in_line() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x"]);
    let first = calls(&mut world, "b", &["x"]).denied[0].ticket.clone().unwrap();
    let _ = calls(&mut world, "c", &["x"]);
    world.pass(60);
    let again = calls(&mut world, "b", &["x"]).denied[0].ticket.clone().unwrap();
    assert_eq!((first.id, first.rank), (again.id, again.rank));
    world.pass(60);
    world.decide(|overlay| lease::end_session(overlay, &"worker:a".parse().unwrap()));
    assert_eq!(holders(&world, "x"), ["worker:b"], "the call of c has lapsed, that of b was renewed");
    let next = calls(&mut world, "b", &["other"]);
    assert_eq!(next.arrived.len(), 1);
    world.pass(500);
    assert!(calls(&mut world, "b", &[]).arrived.is_empty());
    assert_eq!(holders(&world, "x"), ["worker:b"], "each call renews all");
}

/// Invariant 8. Two agents that were denied each other's files: the second one is told, and gets no place.
#[test]
fn two_denied_agents_do_not_wait_for_each_other() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x"]);
    let _ = calls(&mut world, "b", &["y"]);
    assert!(calls(&mut world, "a", &["y"]).denied[0].ticket.is_some());
    let denial = calls(&mut world, "b", &["x"]).denied.remove(0);
    assert!(denial.ticket.is_none() && denial.cycle.len() == 2);
}

/// Invariant 4. The process of an agent is the proof.
#[test]
fn the_death_of_the_process_frees_at_once() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x"]);
    world.dead.insert(9);
    let mut other = call("b", &["x"]);
    other.claims[0].proof = ask("b").for_process(8).claim().proof.clone();
    let (answer, _, _) = world.decide(|overlay| lease::agent_call(overlay, &other));
    assert_eq!(answer.granted.len(), 1);
}

/// What a sub-agent holds goes up in one decision, so a waiter never slips in between.
#[test]
fn claims_of_a_stopped_sub_agent_go_up() {
    let mut world = World::new();
    let _ = calls(&mut world, "c", &["both"]);
    let _ = calls(&mut world, "c:d", &["both", "own"]);
    let _ = calls(&mut world, "c:d:e", &["deep"]);
    let _ = calls(&mut world, "x", &["own"]);
    world.decide(|overlay| lease::hand_up(overlay, &"worker:c:d".parse().unwrap()));
    for path in ["both", "own", "deep"] {
        assert_eq!(holders(&world, path), ["worker:c"], "{path}");
    }
    assert!(calls(&mut world, "c:e", &["own"]).denied.is_empty(), "the next sub-agent may go on with it");
}

/// While a sub-agent works, its parent waits for it and makes no calls.
#[test]
fn calls_of_a_sub_agent_renew_what_the_parent_holds() {
    let mut world = World::new();
    let _ = calls(&mut world, "c", &["x"]);
    for _ in 0..4 {
        world.pass(400);
        let _ = calls(&mut world, "c:d", &["y"]);
    }
    assert_eq!(calls(&mut world, "b", &["x"]).denied.len(), 1);
}

/// The end of a turn lets go of what is done, and shortens the rest.
#[test]
fn a_resting_agent_keeps_uncommitted_work_for_a_while() {
    let mut world = World::new();
    let done = calls(&mut world, "a", &["clean", "dirty"]).granted.remove(0);
    let owner = "worker:a".parse().unwrap();
    world.decide(|overlay| lease::rest(overlay, &owner, &[done], seconds(60)));
    assert_eq!((holders(&world, "clean"), holders(&world, "dirty").len()), (vec![], 1));
    assert_eq!(calls(&mut world, "b", &["dirty"]).denied.len(), 1);
    world.pass(61);
    assert!(calls(&mut world, "b", &["dirty"]).denied.is_empty());
    assert_eq!(holders(&world, "dirty"), ["worker:b"]);
    assert!(
        world.records.leases().all(|lease| lease.pickup_by.is_none()),
        "it was picked up by the same call"
    );
}

/// A lease that was renewed since it was looked at belongs to a new turn.
#[test]
fn a_turn_that_begins_while_the_last_one_ends_loses_nothing() {
    let mut world = World::new();
    let done = calls(&mut world, "a", &["x"]).granted;
    world.pass(400);
    let _ = calls(&mut world, "a", &["x"]);
    world.decide(|overlay| lease::rest(overlay, &"worker:a".parse().unwrap(), &done, seconds(60)));
    assert_eq!(holders(&world, "x"), ["worker:a"]);
}

/// A check denies what another holds, and claims nothing.
#[test]
fn a_sweep_over_a_folder_is_denied_and_claims_nothing() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["src/x"]);
    let mut sweep = call("b", &["src/**"]);
    sweep.checks = std::mem::take(&mut sweep.claims);
    let (answer, _, _) = world.decide(|overlay| lease::agent_call(overlay, &sweep));
    assert!(answer.denied[0].ticket.is_none() && world.records.tickets().count() == 0);
    world.decide(|overlay| lease::end_session(overlay, &"worker:a".parse().unwrap()));
    let (answer, _, _) = world.decide(|overlay| lease::agent_call(overlay, &sweep));
    assert!(answer.denied.is_empty() && world.records.leases().count() == 0);
}
