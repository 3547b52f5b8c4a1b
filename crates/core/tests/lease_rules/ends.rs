//! Rules of leases: how they end.

use super::*;

/// Invariant 4.
#[test]
fn a_dead_holder_is_succeeded_at_once() {
    let mut world = World::new();
    world.hold(ask("a").name("db").ttl(1_000));
    world.kill("a");
    world.hold(ask("b").name("db"));
}

/// Invariants 4 and 7.
#[test]
fn the_first_waiter_succeeds_a_dead_holder_and_not_the_newcomer() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    let first = world.queue(&ask("b").name("db"));
    world.kill("a");
    world.refused(ask("c").name("db").priority(100));
    assert!(world.holds(&first));
}

/// Invariant 4.
#[test]
fn a_dead_waiter_is_skipped() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let dead = world.queue(&ask("b").name("db"));
    let next = world.queue(&ask("c").name("db"));
    world.kill("b");
    world.release(&held);
    assert!(world.holds(&next) && !world.waits(&dead));
}

/// Invariant 4.
#[test]
fn a_dead_lease_does_not_lift_its_owner_over_those_who_wait_for_it() {
    let mut world = World::new();
    world.hold(ask("a").name("q").of_process(10));
    let both = world.queue(&ask("b").name("q").name("r"));
    world.dead.insert(10);
    world.refused(ask("a").name("r"));
    assert!(world.holds(&both));
}

/// Invariant 3.
#[test]
fn a_strict_holder_that_lives_outlasts_its_ttl() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").ttl(10));
    world.pass(11);
    world.refused(ask("b").name("db"));
    assert!(world.decide(|overlay| lease::renew(overlay, held.id, Some(held.token), None)).0.is_ok());
}

#[test]
fn an_expired_holder_under_the_lease_contract_is_succeeded_and_woken() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").ttl(10).contract(Contract::Lease));
    let ticket = world.queue(&ask("b").name("db"));
    world.pass(10);
    assert!(matches!(world.check_ticket(&ticket), Outcome::Waiting(_)));
    world.pass(1);
    let (outcome, effects, reaped) = world.decide(|overlay| lease::check_ticket(overlay, ticket.id, None));
    assert_eq!(granted(outcome).id, ticket.id);
    assert!(effects.contains(&woken("a")));
    assert_eq!((reaped[0].id, reaped[0].held), (held.id, true));
}

#[test]
fn an_overdue_holder_under_the_kill_contract_stays_until_it_is_dead() {
    let mut world = World::new();
    world.hold(ask("a").name("db").ttl(10).contract(Contract::Kill));
    world.pass(11);
    world.refused(ask("b").name("db"));
    world.kill("a");
    world.hold(ask("b").name("db"));
}

/// Invariant 5.
#[test]
fn a_lease_without_a_process_is_held_until_its_time_is_up() {
    let mut world = World::new();
    world.hold(ask("a").name("db").by_time(10));
    world.pass(10);
    world.refused(ask("b").name("db"));
    world.pass(1);
    world.hold(ask("b").name("db"));
}

/// Invariant 2.
#[test]
fn renewal_after_expiry_is_refused_and_the_next_one_holds() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").by_time(10));
    let next = world.queue(&ask("b").name("db"));
    world.pass(11);
    let renewed = world.decide(|overlay| lease::renew(overlay, held.id, Some(held.token), None)).0;
    assert_eq!(renewed, Err(NotCurrent::Expired(held.id)));
    assert!(world.holds(&next));
    let again = world.decide(|overlay| lease::renew(overlay, held.id, Some(held.token), None)).0;
    assert_eq!(again, Err(NotCurrent::Unknown(held.id)));
}

#[test]
fn renewal_counts_from_now() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").by_time(10));
    world.pass(9);
    world.decide(|overlay| lease::renew(overlay, held.id, Some(held.token), None)).0.unwrap();
    world.pass(9);
    world.refused(ask("b").name("db"));
}

/// Invariant 2.
#[test]
fn renewal_and_release_need_the_current_token() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let (id, given, current) = (held.id, Token(held.token.0 + 7), held.token);
    let refusal = NotCurrent::Token { id, given, current };
    assert_eq!(world.decide(|overlay| lease::renew(overlay, id, Some(given), None)).0, Err(refusal.clone()));
    assert_eq!(world.decide(|overlay| lease::release(overlay, id, Some(given))).0, Err(refusal));
    assert!(world.decide(|overlay| lease::release(overlay, id, Some(current))).0.is_ok());
    let gone = world.decide(|overlay| lease::release(overlay, id, Some(current))).0;
    assert_eq!(gone, Err(NotCurrent::Unknown(id)));
}

/// Invariant 2.
#[test]
fn a_fence_lets_only_the_current_token_pass() {
    let mut world = World::new();
    let old = world.hold(ask("a").name("db").by_time(10));
    let passes = |world: &mut World, target: &Target, token| {
        let before = world.records.clone();
        let fence = world.decide(|overlay| lease::fence(overlay, target, token)).0;
        assert_eq!(before, world.records);
        fence.passes
    };
    assert!(passes(&mut world, &db(), old.token));
    assert!(!passes(&mut world, &name("x", Mode::Shared).target, old.token));
    world.pass(11);
    assert!(!passes(&mut world, &db(), old.token));
    let new = world.hold(ask("b").name("db"));
    assert!(passes(&mut world, &db(), new.token) && !passes(&mut world, &db(), old.token));
    let wide = world.hold(ask("c").path("src/**"));
    let inside = Target::Path("src/a.rs".parse().unwrap());
    let beyond = Target::Path("**/*.rs".parse().unwrap());
    assert!(passes(&mut world, &inside, wide.token) && !passes(&mut world, &beyond, wide.token));
}

/// Invariant 3.
#[test]
fn a_revoked_resident_is_woken_and_holds_until_it_releases() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let next = world.queue(&ask("b").name("db"));
    let (revoked, effects, _) = world.decide(|overlay| lease::revoke(overlay, held.id));
    assert!(revoked.is_some_and(|(_, stays)| stays) && effects == [woken("a")]);
    assert!(world.waits(&next));
    let renewed = world.decide(|overlay| lease::renew(overlay, held.id, None, None)).0;
    assert_eq!(renewed, Err(NotCurrent::Revoked(held.id)));
    assert!(!world.decide(|overlay| lease::fence(overlay, &db(), held.token)).0.passes);
    assert_ne!(world.hold(ask("a").name("db").join()).id, held.id);
    world.release(&held);
}

#[test]
fn a_revoked_holder_without_a_process_loses_the_lease_at_once() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").by_time(1_000));
    let next = world.queue(&ask("b").name("db"));
    let revoked = world.decide(|overlay| lease::revoke(overlay, held.id)).0;
    assert!(revoked.is_some_and(|(_, stays)| !stays));
    assert!(world.holds(&next));
}

#[test]
fn an_evicted_holder_is_woken_and_the_next_one_holds() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let next = world.queue(&ask("b").name("db"));
    let (was_there, effects, _) = world.decide(|overlay| lease::evict(overlay, held.id));
    assert!(was_there && effects.contains(&woken("a")) && effects.contains(&woken("b")));
    assert!(world.holds(&next));
    assert!(!world.decide(|overlay| lease::evict(overlay, held.id)).0);
}

/// Invariant 10.
#[test]
fn a_holder_that_confirms_that_it_stops_is_not_evicted() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let next = world.queue(&ask("b").name("db"));
    assert!(
        !world.decide(|overlay| lease::acknowledge(overlay, held.id, held.token)).0,
        "nobody took it away"
    );
    let (revoked, stays) = world.decide(|overlay| lease::revoke(overlay, held.id)).0.unwrap();
    assert!(stays);
    let other = Token(held.token.0 + 1);
    assert!(!world.decide(|overlay| lease::acknowledge(overlay, held.id, other)).0);
    assert!(world.decide(|overlay| lease::acknowledge(overlay, held.id, held.token)).0);
    assert!(!world.decide(|overlay| lease::evict_unless_acknowledged(overlay, &revoked)).0);
    assert!(!world.holds(&next));
    world.decide(|overlay| lease::release(overlay, held.id, Some(held.token))).0.unwrap();
    assert!(world.holds(&next));
}

#[test]
fn a_holder_that_does_not_confirm_that_it_stops_is_evicted() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let next = world.queue(&ask("b").name("db"));
    let (revoked, _) = world.decide(|overlay| lease::revoke(overlay, held.id)).0.unwrap();
    assert!(world.decide(|overlay| lease::evict_unless_acknowledged(overlay, &revoked)).0);
    assert!(world.holds(&next));
}

/// Invariant 4.
#[test]
fn a_clean_up_reaps_all_dead_records_and_grants_to_the_living() {
    let mut world = World::new();
    world.hold(ask("a").name("x"));
    world.queue(&ask("b").name("x"));
    let next = world.queue(&ask("c").name("x"));
    let other = world.hold(ask("d").name("y"));
    world.kill("a");
    world.kill("b");
    let ((), _, reaped) = world.decide(lease::clean_up);
    let mut reaped: Vec<(&str, bool)> = reaped.iter().map(|one| (one.owner.as_str(), one.held)).collect();
    reaped.sort_unstable();
    assert_eq!(reaped, [("worker:a", true), ("worker:b", false)]);
    assert!(world.holds(&next) && world.records.lease(other.id).is_some());
}
