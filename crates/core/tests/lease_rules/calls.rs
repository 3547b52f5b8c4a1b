//! Rules of leases: names that an agent holds for the length of a call, and files that are attributed after one.

use lockkeeper_core::lease::AgentCall;
use lockkeeper_core::record::Claim;

use super::*;

fn claim(owner: &str, name: &str) -> Claim {
    Claim::clone(ask(owner).name(name).agent(None).for_process(9).ttl(600).contract(Contract::Lease).claim())
}

fn file(owner: &str, path: &str) -> Claim {
    Claim::clone(ask(owner).path(path).agent(None).for_process(9).ttl(600).contract(Contract::Lease).claim())
}

fn call(owner: &str, claims: Vec<Claim>) -> AgentCall {
    AgentCall {
        owner: format!("worker:{owner}").parse().unwrap(),
        claims,
        checks: Vec::new(),
        ttl: seconds(600),
        stays: seconds(100),
        unrenewed: Vec::new(),
        files: Vec::new(),
        proof: None,
    }
}

fn calls(world: &mut World, call: &AgentCall) -> lease::AgentAnswer {
    world.decide(|overlay| lease::agent_call(overlay, call)).0
}

fn holders(world: &World, target: &str) -> Vec<String> {
    let holds = |lease: &&Lease| lease.claim.targets().any(|held| held.as_str() == target);
    world.records.leases().filter(holds).map(|lease| lease.claim.owner.to_string()).collect()
}

/// A name whose turn has come is reserved for a while. Calls about something else do not take it.
#[test]
fn only_the_call_that_needs_a_name_picks_it_up() {
    let mut world = World::new();
    let _ = calls(&mut world, &call("a", vec![claim("a", "db")]));
    assert_eq!(calls(&mut world, &call("b", vec![claim("b", "db")])).denied.len(), 1);
    world.decide(|overlay| lease::end_session(overlay, &"worker:a".parse().unwrap()));
    for _ in 0..2 {
        assert_eq!(calls(&mut world, &call("b", Vec::new())).arrived.len(), 1);
    }
    assert_eq!(calls(&mut world, &call("c", vec![claim("c", "db")])).denied.len(), 1, "it is reserved");
    world.pass(101);
    assert!(calls(&mut world, &call("d", vec![claim("d", "other")])).denied.is_empty());
    assert!(calls(&mut world, &call("b", Vec::new())).arrived.is_empty());
    assert!(calls(&mut world, &call("c", vec![claim("c", "db")])).denied.is_empty(), "time was up");
}

#[test]
fn a_name_that_was_picked_up_lasts() {
    let mut world = World::new();
    let _ = calls(&mut world, &call("a", vec![claim("a", "db")]));
    let _ = calls(&mut world, &call("b", vec![claim("b", "db")]));
    world.decide(|overlay| lease::end_session(overlay, &"worker:a".parse().unwrap()));
    let picked = calls(&mut world, &call("b", vec![claim("b", "db")]));
    assert!(picked.denied.is_empty() && picked.arrived.is_empty());
    assert_eq!(picked.picked_up.len(), 1);
    world.pass(101);
    assert_eq!(calls(&mut world, &call("c", vec![claim("c", "db")])).denied.len(), 1);
}

#[test]
fn a_lease_that_is_not_to_be_renewed_ends_by_its_time() {
    let mut world = World::new();
    let brief = Claim { ttl: Some(seconds(120)), ..claim("a", "git/index") };
    let held = calls(&mut world, &call("a", vec![brief, file("a", "x")])).granted;
    world.pass(100);
    let renewing = AgentCall { unrenewed: vec![held[0].id], ..call("a", Vec::new()) };
    let _ = calls(&mut world, &renewing);
    world.pass(100);
    assert!(calls(&mut world, &call("b", vec![claim("b", "git/index")])).denied.is_empty());
    assert_eq!(holders(&world, "x"), ["worker:a"]);
}

#[test]
fn changed_files_that_are_free_are_claimed_and_the_others_are_named() {
    let mut world = World::new();
    let _ = calls(&mut world, &call("b", vec![file("b", "held"), file("b", "checked")]));
    let _ = calls(&mut world, &call("a", vec![file("a", "own")]));
    let claims = [file("a", "free"), file("a", "held"), file("a", "own")];
    let checks = [file("a", "nobody's"), file("a", "checked")];
    let found = world.decide(|overlay| lease::attribute(overlay, &claims, &checks)).0;
    assert_eq!(found.granted.len(), 1);
    assert_eq!(holders(&world, "free"), ["worker:a"]);
    let foreign: Vec<String> =
        found.foreign.iter().map(|(claim, _)| claim.targets().next().unwrap().to_string()).collect();
    assert_eq!(foreign, ["held", "checked"]);
    assert!(holders(&world, "nobody's").is_empty());
    assert_eq!(holders(&world, "held"), ["worker:b"]);
    assert!(world.records.tickets().next().is_none(), "nobody waits for a file that is changed already");
}
