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
    };
    world.decide(|overlay| lease::agent_call(overlay, &call)).0.denied.is_empty()
}

fn hands(world: &mut World, from: &str, paths: &[&str], to: &str) -> HandedOver {
    let request = HandOver {
        from: format!("worker:{from}").parse().unwrap(),
        claims: paths.iter().map(|path| claim(from, path).targets().cloned().collect()).collect(),
        to: format!("worker:{to}").parse().unwrap(),
        proof: claim(to, "x").proof,
        ttl: seconds(600),
    };
    world.decide(|overlay| lease::hand_over(overlay, &request)).0
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
fn what_a_sub_agent_works_on_goes_to_nobody_else() {
    let mut world = World::new();
    assert!(calls(&mut world, "a", &["x"]));
    assert!(calls(&mut world, "a:s", &["x"]));
    assert!(
        matches!(hands(&mut world, "a", &["x"], "b"), HandedOver::Blocked(lease) if lease.claim.owner.as_str() == "worker:a:s")
    );
    assert!(matches!(hands(&mut world, "a", &["x"], "a:s"), HandedOver::Done(new) if new.is_empty()));
    assert_eq!(holders(&world, "x"), ["worker:a:s"]);
}
