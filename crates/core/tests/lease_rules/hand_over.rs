//! Rules of leases: an agent hands its claims over to another one.

use lockkeeper_core::lease::{AgentCall, HandOver, HandedOver};
use lockkeeper_core::record::Claim;

use super::*;

fn claim(owner: &str, path: &str) -> Claim {
    let one = ask(owner).path(path).agent(None).for_process(9).ttl(600).contract(Contract::Lease);
    Claim::clone(one.claim())
}

/// A call of an agent. Returns whether it has all of the files now.
fn calls(world: &mut World, owner: &str, paths: &[&str]) -> bool {
    let call = AgentCall {
        owner: format!("worker:{owner}").parse().unwrap(),
        claims: paths.iter().map(|path| claim(owner, path)).collect(),
        checks: Vec::new(),
        ttl: seconds(600),
        stays: seconds(100),
        unrenewed: Vec::new(),
        files: Vec::new(),
        proof: None,
    };
    world.decide(|overlay| lease::agent_call(overlay, &call)).0.denied.is_empty()
}

fn hands(world: &mut World, from: &str, paths: &[&str], to: &str) -> HandedOver {
    let request = request(from, paths, to);
    world.decide(|overlay| lease::hand_over(overlay, &request)).0
}

fn request(from: &str, paths: &[&str], to: &str) -> HandOver {
    HandOver {
        from: format!("worker:{from}").parse().unwrap(),
        claims: paths.iter().map(|path| claim(from, path).targets().cloned().collect()).collect(),
        to: format!("worker:{to}").parse().unwrap(),
        proof: claim(to, "x").proof,
        ttl: seconds(600),
    }
}

fn holders(world: &World, path: &str) -> Vec<String> {
    let holds = |lease: &&Lease| lease.claim.targets().any(|target| target.as_str() == path);
    world.records.leases().filter(holds).map(|lease| lease.claim.owner.to_string()).collect()
}

/// Invariant 2: the new lease has a larger token. Those who wait keep their places.
#[test]
fn a_claim_goes_to_the_other_agent_before_those_who_wait() {
    let mut world = World::new();
    assert!(calls(&mut world, "a", &["x", "y"]));
    assert!(!calls(&mut world, "b", &["x"]), "b stands in line");
    assert!(!calls(&mut world, "c", &["x"]), "and so does the taker");
    let before = world.last_number;
    let HandedOver::Done(new) = hands(&mut world, "a", &["x"], "c") else { panic!("not handed over") };
    assert!(new.len() == 1 && new[0].token.0 > before);
    assert_eq!(
        (holders(&world, "x"), holders(&world, "y")),
        (vec!["worker:c".into()], vec!["worker:a".into()])
    );
    let waiting: Vec<_> = world.records.tickets().map(|ticket| ticket.claim.owner.to_string()).collect();
    assert_eq!(waiting, ["worker:b"]);
    assert!(!calls(&mut world, "a", &["x"]), "the giver has it no more");
    world.decide(|overlay| lease::end_session(overlay, &"worker:c".parse().unwrap()));
    assert_eq!(holders(&world, "x"), ["worker:b"]);
}

/// Invariant 6.
#[test]
fn all_claims_are_handed_over_or_none() {
    let mut world = World::new();
    assert!(calls(&mut world, "a", &["x"]));
    assert!(calls(&mut world, "b", &["y"]));
    assert!(
        matches!(hands(&mut world, "a", &["x", "y"], "c"), HandedOver::NotHeld(targets) if targets[0].as_str() == "y")
    );
    assert_eq!(
        (holders(&world, "x"), holders(&world, "y")),
        (vec!["worker:a".into()], vec!["worker:b".into()])
    );
}

/// Invariant 1.
#[test]
fn a_file_that_a_sub_agent_works_on_is_not_handed_over() {
    let mut world = World::new();
    assert!(calls(&mut world, "a", &["x"]));
    assert!(calls(&mut world, "a:s", &["x"]));
    assert!(
        matches!(hands(&mut world, "a", &["x"], "b"), HandedOver::Blocked(lease) if lease.claim.owner.as_str() == "worker:a:s")
    );
    assert!(matches!(hands(&mut world, "a", &["x"], "a:s"), HandedOver::Done(new) if new.is_empty()));
    assert_eq!(holders(&world, "x"), ["worker:a:s"]);
}

#[test]
fn only_live_claims_of_agents_that_were_not_revoked_are_handed_over() {
    let mut world = World::new();
    world.hold(ask("a").path("by-hand"));
    let revoked = world.hold(ask("a").path("revoked").agent(None));
    world.decide(|overlay| lease::revoke(overlay, revoked.id));
    world.hold(ask("a").path("dead").agent(None).for_process(90));
    world.dead.insert(90);
    for path in ["by-hand", "revoked", "dead"] {
        let handed = hands(&mut world, "a", &[path], "c");
        assert!(matches!(handed, HandedOver::NotHeld(_)), "{path}: {handed:?}");
    }
}

#[test]
fn a_claim_that_is_named_twice_is_handed_over_once() {
    let mut world = World::new();
    assert!(calls(&mut world, "a", &["x", "y"]));
    assert!(matches!(hands(&mut world, "a", &["x", "y", "x"], "c"), HandedOver::Done(new) if new.len() == 2));
    assert_eq!((holders(&world, "x").len(), holders(&world, "y").len()), (1, 1));
}

#[test]
fn the_taker_vouches_for_what_it_gets_and_the_age_stays() {
    let mut world = World::new();
    let old = world.hold(ask("a").path("x").agent(None).ticket_name("mine"));
    world.pass(10);
    let request = HandOver { ttl: seconds(50), ..request("a", &["x"], "c") };
    let handed = world.decide(|overlay| lease::hand_over(overlay, &request)).0;
    let HandedOver::Done(new) = handed else { panic!("not handed over: {handed:?}") };
    assert_eq!((&new[0].claim.proof, new[0].claim.ttl), (&request.proof, Some(request.ttl)));
    assert_eq!((new[0].acquired_at, new[0].heartbeat_at), (old.acquired_at, world.now));
    assert_eq!(new[0].claim.ticket, None);
}

#[test]
fn the_taker_keeps_its_place_in_line_for_other_files() {
    let mut world = World::new();
    assert!(calls(&mut world, "a", &["x"]));
    assert!(calls(&mut world, "b", &["y"]));
    assert!(!calls(&mut world, "c", &["x", "y"]));
    assert!(matches!(hands(&mut world, "a", &["x"], "c"), HandedOver::Done(_)));
    let waits: Vec<String> =
        world.records.tickets().map(|ticket| ticket.claim.resources[0].target.to_string()).collect();
    assert_eq!(waits, ["y"]);
}
