//! Rules of leases: the hook calls of agents, and what happens when an agent stops.

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::AgentCall;
use lockkeeper_core::record::Agent;
use lockkeeper_core::waiting::Obstacle;

use super::families::{call, calls, holders};
use super::*;

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

/// A denied agent keeps its place in line, and learns at its next call that its turn has come.
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

/// Invariant 8. Two agents are denied each other's files: the second one gets the cycle, and no place in line.
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

/// The claims of a sub-agent go to its parent in one decision, so no waiter gets them in between.
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

/// Invariant 1. Both hold the file then, but only the sub-agent works on it.
#[test]
fn a_parent_waits_for_a_sub_agent_that_took_its_file() {
    let mut world = World::new();
    let _ = calls(&mut world, "c", &["x", "own"]);
    let _ = calls(&mut world, "c:d", &["x"]);
    let denial = calls(&mut world, "c", &["x"]).denied.remove(0);
    assert_eq!(denial.blockers[0].leases[0].record.claim.owner.as_str(), "worker:c:d");
    assert!(denial.ticket.is_some());
    assert!(calls(&mut world, "c", &["own"]).denied.is_empty(), "its other files are its own");
    assert!(
        calls(&mut world, "c:d", &["x"]).denied.is_empty(),
        "a parent in line does not stop the sub-agent"
    );
    world.decide(|overlay| lease::hand_up(overlay, &"worker:c:d".parse().unwrap()));
    assert_eq!(world.records.tickets().count(), 0, "nobody waits for what it has");
    assert!(calls(&mut world, "c", &["x"]).denied.is_empty());
    assert_eq!(holders(&world, "x"), ["worker:c"]);
}

/// The same for a parent that had not claimed the file itself.
#[test]
fn a_parent_in_line_for_a_file_that_goes_up_gets_it_once() {
    let mut world = World::new();
    let _ = calls(&mut world, "c:d", &["x"]);
    assert!(calls(&mut world, "c", &["x"]).denied[0].ticket.is_some());
    world.decide(|overlay| lease::hand_up(overlay, &"worker:c:d".parse().unwrap()));
    assert_eq!(calls(&mut world, "c", &[]).arrived.len(), 1, "it is told");
    assert_eq!((holders(&world, "x"), world.records.tickets().count()), (vec!["worker:c".to_owned()], 0));
}

/// A sub-agent that commits gives the file back to the parent in line, who has one lease of it as before.
#[test]
fn a_parent_has_one_lease_after_its_sub_agent_released_the_file() {
    let mut world = World::new();
    let _ = calls(&mut world, "c", &["x"]);
    let taken = calls(&mut world, "c:d", &["x"]).granted.remove(0);
    let _ = calls(&mut world, "c", &["x"]);
    world.release(&taken);
    let next = calls(&mut world, "c", &["other"]);
    assert_eq!(next.arrived.len(), 1, "it is told");
    assert_eq!((holders(&world, "x"), world.records.tickets().count()), (vec!["worker:c".to_owned()], 0));
    let _ = calls(&mut world, "c:d", &["x"]);
    let _ = calls(&mut world, "c", &["x"]);
    let again =
        world.records.leases().find(|lease| lease.claim.owner.as_str() == "worker:c:d").unwrap().clone();
    world.release(&again);
    assert!(calls(&mut world, "c", &["x"]).denied.is_empty(), "a call for the file itself");
    assert_eq!(holders(&world, "x"), ["worker:c"]);
}

/// A check is about the paths that the pattern matches. Nothing is below a file.
#[test]
fn a_sweep_passes_beside_files_that_it_does_not_match() {
    let mut world = World::new();
    let held: Vec<_> =
        calls(&mut world, "a", &["src/a.rs", "b.js"]).granted.iter().map(|lease| lease.id).collect();
    let checks = |world: &mut World, pattern: &str, files: &[LeaseId]| {
        let AgentCall { claims, .. } = call("b", &[pattern]);
        let sweep = AgentCall { checks: claims, files: files.to_vec(), ..call("b", &[]) };
        world.decide(|overlay| lease::agent_call(overlay, &sweep)).0.denied.len()
    };
    assert_eq!(checks(&mut world, "**/*.pyc", &[]), 1, "nobody has looked: src/a.rs may be a folder");
    assert_eq!(checks(&mut world, "**/*.pyc", &held[..1]), 1);
    assert_eq!(checks(&mut world, "**/*.pyc", &held), 0);
    for pattern in ["**/*.js", "**/*.rs", "**", "src", "src/**", "src/a.rs", "*.js"] {
        assert_eq!(checks(&mut world, pattern, &held), 1, "{pattern}");
    }
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

/// The end of a turn releases what is done, and shortens the TTL of the rest.
#[test]
fn a_resting_agent_keeps_uncommitted_work_for_a_while() {
    let mut world = World::new();
    let done = calls(&mut world, "a", &["clean", "dirty"]).granted.remove(0);
    let owner = "worker:a".parse().unwrap();
    world.pass(70);
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

/// A lease that was renewed since it was read belongs to a new turn.
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

/// A process that was killed frees nothing by itself.
#[test]
fn an_agent_learns_of_a_death_at_its_next_call_whatever_files_that_is_about() {
    let mut world = World::new();
    world.hold(ask("a").path("x").agent(None));
    let _ = calls(&mut world, "b", &["x"]);
    world.kill("a");
    assert_eq!(calls(&mut world, "b", &["other"]).arrived.len(), 1);
}

/// Most calls write nothing.
#[test]
fn a_call_renews_after_an_eighth_of_the_ttl() {
    let mut world = World::new();
    let held = calls(&mut world, "a", &["x"]).granted;
    world.pass(75);
    let _ = calls(&mut world, "a", &["x"]);
    assert_eq!(world.records.lease(held[0].id), Some(&held[0]));
    world.pass(1);
    let _ = calls(&mut world, "a", &["x"]);
    assert_eq!(world.records.lease(held[0].id).unwrap().heartbeat_at, world.now);
}

#[test]
fn the_first_call_of_a_new_turn_restores_the_ttl() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x"]);
    world.decide(|overlay| lease::rest(overlay, &"worker:a".parse().unwrap(), &[], seconds(60)));
    let _ = calls(&mut world, "a", &[]);
    world.pass(599);
    assert_eq!(calls(&mut world, "b", &["x"]).denied.len(), 1);
}

/// The owner above learns at a call of its own that its turn has come.
#[test]
fn a_call_of_a_sub_agent_does_not_pick_up_a_grant_of_its_parent() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x"]);
    let _ = calls(&mut world, "c", &["x"]);
    world.decide(|overlay| lease::end_session(overlay, &"worker:a".parse().unwrap()));
    assert!(calls(&mut world, "c:d", &["y"]).arrived.is_empty());
    assert_eq!(calls(&mut world, "c", &[]).arrived.len(), 1);
}

#[test]
fn each_denied_call_sets_again_how_long_its_place_is_kept() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x"]);
    let _ = calls(&mut world, "b", &["x"]);
    let longer = AgentCall { stays: seconds(500), ..call("b", &["x"]) };
    let ticket = world.decide(|overlay| lease::agent_call(overlay, &longer)).0.denied[0].ticket.clone();
    world.pass(499);
    world.decide(lease::clean_up);
    assert!(world.waits(&ticket.unwrap()));
}

#[test]
fn an_agent_has_a_place_in_line_for_each_denied_file() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x", "y"]);
    let first = calls(&mut world, "b", &["x"]).denied[0].ticket.clone().unwrap();
    let second = calls(&mut world, "b", &["y"]).denied[0].ticket.clone().unwrap();
    assert_ne!(first.id, second.id);
    assert!(second.claim.targets().eq([&Target::Path("y".parse().unwrap())]));
}

#[test]
fn an_agent_learns_who_works_on_the_same_file_in_another_work_tree() {
    let mut world = World::new();
    let mut elsewhere = |owner: &str, work_tree: &str| {
        let mut call = call(owner, &["src/x.rs"]);
        call.claims[0].agent = Some(Agent { work_tree: Some(work_tree.into()) });
        let answer = world.decide(|overlay| lease::agent_call(overlay, &call)).0;
        assert_eq!(answer.granted.len(), 1);
        let told = |found: &Obstacle<Lease>| (found.record.claim.owner.to_string(), found.witness.clone());
        answer.elsewhere.iter().map(told).collect::<Vec<_>>()
    };
    assert_eq!(elsewhere("c", "1"), []);
    assert_eq!(elsewhere("c", "2"), [], "it knows what it does itself");
    assert_eq!(elsewhere("c:d", "3"), [], "and what its parent does");
    assert_eq!(elsewhere("c", "4"), [], "and what its sub-agent does");
    let of_others = ["worker:c", "worker:c", "worker:c:d", "worker:c"];
    assert_eq!(elsewhere("e", "5"), of_others.map(|owner| (owner.to_owned(), "src/x.rs".to_owned())));
}

/// The sub-agent never worked on the first file, and its claim on the second was revoked.
#[test]
fn claims_that_were_not_picked_up_or_were_revoked_do_not_go_up() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["new"]);
    let _ = calls(&mut world, "c:d", &["new"]);
    world.decide(|overlay| lease::end_session(overlay, &"worker:a".parse().unwrap()));
    let revoked = world.hold(ask("c:d").path("revoked").agent(None));
    world.decide(|overlay| lease::revoke(overlay, revoked.id));
    assert_eq!(world.records.leases().count(), 2);
    let handed = world.decide(|overlay| lease::hand_up(overlay, &"worker:c:d".parse().unwrap())).0;
    assert_eq!((handed, world.records.leases().count()), (vec![], 0));
}

#[test]
fn a_claim_that_goes_up_keeps_its_age_and_has_no_ticket_name() {
    let mut world = World::new();
    let held = world.hold(ask("c:d").path("x").agent(None).ticket_name("mine"));
    world.pass(10);
    let handed = world.decide(|overlay| lease::hand_up(overlay, &"worker:c:d".parse().unwrap())).0;
    assert_eq!((handed[0].acquired_at, handed[0].heartbeat_at), (held.acquired_at, world.now));
    let found = world.decide(|overlay| lease::find_tickets(overlay, &"mine".parse().unwrap(), &named("c"))).0;
    assert_eq!(found, []);
}

/// A session that was resumed runs in two processes.
#[test]
fn files_are_tied_to_the_process_that_called_last() {
    let mut world = World::new();
    let _ = calls(&mut world, "a", &["x"]);
    let _ = calls(&mut world, "a:sub", &["y"]);
    let proof = ask("a").for_process(10).claim().proof.clone();
    let resumed = AgentCall { proof: Some(proof), ..call("a", &[]) };
    let _ = world.decide(|overlay| lease::agent_call(overlay, &resumed));
    world.dead.insert(9);
    let mut other = call("b", &["x", "y"]);
    other.claims.iter_mut().for_each(|claim| claim.proof = ask("b").for_process(8).claim().proof.clone());
    let (answer, _, _) = world.decide(|overlay| lease::agent_call(overlay, &other));
    assert_eq!(answer.denied.len(), 1, "the sub-agent is gone with its process: {answer:?}");
    assert_eq!(holders(&world, "x"), ["worker:a"]);
}
