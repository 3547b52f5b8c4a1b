//! Rules of leases: waits that would never end.

use lockkeeper_core::deadlock::{Link, cycles};
use lockkeeper_core::lease::{HandOver, HandedOver};

use super::*;

/// Invariant 8. Requirement 160.
#[test]
fn a_cycle_of_two_is_refused_and_named() {
    let mut world = World::new();
    world.hold(ask("a").name("x"));
    world.hold(ask("b").name("y"));
    world.queue(&ask("a").name("y"));
    let links = world.deadlock(&ask("b").name("x"));
    let told: Vec<String> = links.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["worker:b waits for x of worker:a", "worker:a waits for y of worker:b"]);
}

/// Invariant 8. Requirement 160.
#[test]
fn a_cycle_of_three_is_refused_and_named() {
    let mut world = World::new();
    for (owner, held) in [("a", "x"), ("b", "y"), ("c", "z")] {
        world.hold(ask(owner).name(held));
    }
    world.queue(&ask("a").name("y"));
    world.queue(&ask("b").name("z"));
    assert_eq!(world.deadlock(&ask("c").name("x")).len(), 3);
}

/// Invariant 8.
#[test]
fn a_chain_is_not_a_cycle() {
    let mut world = World::new();
    for (owner, held) in [("a", "x"), ("b", "y"), ("c", "z")] {
        world.hold(ask(owner).name(held));
    }
    world.queue(&ask("a").name("y"));
    world.queue(&ask("b").name("z"));
    world.queue(&ask("d").name("x"));
}

/// Invariant 8. Requirement 160.
#[test]
fn holders_of_slots_make_a_cycle_only_when_all_of_them_are_stuck() {
    let mut world = World::new();
    world.hold(ask("a").slots("gpu", 2));
    let free = world.hold(ask("b").slots("gpu", 2));
    world.hold(ask("c").name("x"));
    world.queue(&ask("a").name("x"));
    let waiting = world.queue(&ask("c").slots("gpu", 2));
    world.decide(|overlay| lease::give_up(overlay, waiting.id));
    world.queue(&ask("b").name("x"));
    assert!(world.records.lease(free.id).is_some());
    world.deadlock(&ask("c").slots("gpu", 2));
}

/// Invariant 8.
#[test]
fn a_reader_ahead_that_is_stuck_is_no_reason_to_refuse_a_reader() {
    let mut world = World::new();
    world.hold(ask("a").name("q"));
    world.hold(ask("b").name("z"));
    let writer = world.hold(ask("c").name("db"));
    world.queue(&ask("b").name("q"));
    let stuck = world.queue(&ask("d").shared("db").name("z"));
    let reader = world.queue(&ask("a").shared("db"));
    world.release(&writer);
    assert!(world.holds(&reader) && world.waits(&stuck));
}

/// Invariant 8. Requirement 160.
#[test]
fn an_urgent_wait_that_closes_a_cycle_behind_it_is_refused() {
    let mut world = World::new();
    world.hold(ask("d").name("r"));
    world.hold(ask("b").name("y"));
    world.hold(ask("c").name("s"));
    world.queue(&ask("c").name("y"));
    world.queue(&ask("b").name("r"));
    // In line before b for r, it would wait for c, who waits for b.
    assert_eq!(world.deadlock(&ask("a").name("r").name("s").priority(1)).len(), 3);
}

/// Invariant 8. Requirement 160.
#[test]
fn a_command_that_would_wait_for_the_lease_it_runs_under_is_refused() {
    let mut world = World::new();
    let outer = world.hold(ask("a").name("x"));
    let links = world.deadlock(&ask("b").name("x").under(&outer));
    assert_eq!(links[0].holder.as_str(), "worker:a");
    world.hold(ask("c").name("y"));
    world.queue(&ask("b").name("y").under(&outer));
    world.deadlock(&ask("c").name("x"));
}

/// Invariant 8.
#[test]
fn paths_make_cycles_and_name_a_path() {
    let mut world = World::new();
    world.hold(ask("a").path("src/**"));
    world.hold(ask("b").path("docs/**"));
    world.queue(&ask("a").path("docs/x.md"));
    let links = world.deadlock(&ask("b").path("src/a.rs"));
    assert_eq!(links[0].wanted, "src/a.rs");
    assert_eq!(links[1].wanted, "docs/x.md");
}

/// Invariants 4 and 8.
#[test]
fn a_dead_waiter_closes_no_cycle() {
    let mut world = World::new();
    world.hold(ask("a").name("x").of_process(10));
    world.hold(ask("b").name("y"));
    world.queue(&ask("a").name("y"));
    world.kill("a");
    world.queue(&ask("b").name("x"));
}

/// Invariant 8. Requirement 160. Going round the line once for each of its waiters would take most of a minute.
#[test]
fn a_cycle_behind_a_long_line_is_found_and_the_line_is_no_cycle() {
    let mut world = World::new();
    world.hold(ask("a").name("x"));
    world.hold(ask("b").name("y"));
    for number in 0..80 {
        world.queue(&ask(&format!("w{number}")).name("x"));
    }
    assert_eq!(world.decide(cycles).0, Vec::<Vec<Link>>::new());
    world.queue(&ask("b").name("x"));
    assert_eq!(world.deadlock(&ask("a").name("y")).len(), 2);
}

/// Invariant 8. An owner is stuck only if all its waits are.
#[test]
fn an_owner_that_can_go_on_with_one_of_two_waits_closes_no_cycle() {
    let mut world = World::new();
    world.hold(ask("a").shared("r"));
    world.hold(ask("b").shared("r"));
    world.hold(ask("c").name("z"));
    world.queue(&ask("c").name("r"));
    world.hold(ask("d").name("x"));
    world.hold(ask("e").name("y"));
    world.queue(&ask("d").name("z"));
    world.queue(&ask("d").name("y").of_process(40));
    world.queue(&ask("e").name("x"));
}

/// Invariant 8. A hand-over is not checked for cycles, so it can close one. The doctor finds it.
#[test]
fn every_cycle_of_the_store_is_found_once() {
    let mut world = World::new();
    for [first, second, giver] in [["a", "b", "c"], ["d", "e", "f"]] {
        let agent = |owner: &str, file: &str| ask(owner).path(&format!("{first}/{file}")).agent(None);
        world.hold(agent(first, "x"));
        let given = world.hold(agent(giver, "y"));
        world.queue(&agent(second, "x"));
        world.queue(&agent(first, "y"));
        let taker = agent(second, "y").claim().clone();
        let request = HandOver {
            from: given.claim.owner.clone(),
            claims: vec![given.claim.targets().cloned().collect()],
            to: taker.owner,
            proof: taker.proof,
            ttl: seconds(600),
        };
        let handed = world.decide(|overlay| lease::hand_over(overlay, &request)).0;
        assert!(matches!(handed, HandedOver::Done(_)), "{handed:?}");
    }
    let waiters = |cycle: &Vec<Link>| cycle.iter().map(|link| link.waiter.to_string()).collect::<Vec<_>>();
    let found: Vec<Vec<String>> = world.decide(cycles).0.iter().map(waiters).collect();
    assert_eq!(found, [["worker:a", "worker:b"], ["worker:d", "worker:e"]]);
}

/// Invariant 8. The waiter just ahead can go on elsewhere, but the one before it is stuck.
#[test]
fn a_cycle_that_closes_over_an_earlier_place_in_line_is_refused() {
    let mut world = World::new();
    world.hold(ask("h").name("r").name("q"));
    world.hold(ask("c").name("t"));
    world.hold(ask("d").name("s"));
    world.queue(&ask("a").name("r").name("s"));
    world.queue(&ask("b").name("r"));
    world.queue(&ask("b").name("q").of_process(20));
    world.queue(&ask("d").name("t"));
    let links = world.deadlock(&ask("c").name("r"));
    let told: Vec<String> = links.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "worker:c waits for r of worker:a",
            "worker:a waits for s of worker:d",
            "worker:d waits for t of worker:c"
        ]
    );
}
