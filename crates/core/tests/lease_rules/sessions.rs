//! Rules of leases: sessions of holders and waiters on other machines.

use super::*;
use lockkeeper_core::time::Moment;

fn keep(world: &mut World, lease: &Lease, written: &[Moment]) -> Result<Lease, NotCurrent> {
    world.decide(|overlay| lease::keep_session(overlay, lease, written, true)).0
}

/// Invariants 3 and 5.
#[test]
fn a_silent_holder_elsewhere_is_succeeded_when_its_session_ends_and_not_before() {
    let mut world = World::new();
    world.hold(ask("a").name("db").elsewhere());
    world.pass(30);
    world.refused(ask("b").name("db"));
    world.pass(1);
    world.hold(ask("b").name("db"));
}

#[test]
fn a_session_that_is_renewed_holds_for_good() {
    let mut world = World::new();
    let mut held = world.hold(ask("a").name("db").elsewhere());
    for _ in 0..10 {
        world.pass(20);
        held = keep(&mut world, &held, &[held.heartbeat_at]).unwrap();
        world.refused(ask("b").name("db"));
    }
}

/// Two machines that are clones renew the same session. One of them finds the heartbeat of the other.
#[test]
fn a_clone_loses_the_session() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    world.pass(10);
    let renewed = keep(&mut world, &held, &[held.heartbeat_at]).unwrap();
    let clone = keep(&mut world, &held, &[held.heartbeat_at]);
    assert_eq!(clone, Err(NotCurrent::SessionTaken(held.id)));
    assert!(keep(&mut world, &renewed, &[renewed.heartbeat_at]).is_ok());
}

/// A renewal whose answer was lost may have been written, or not.
#[test]
fn a_renewal_in_doubt_does_not_lose_the_session() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    world.pass(10);
    let in_doubt = keep(&mut world, &held, &[held.heartbeat_at]).unwrap().heartbeat_at;
    let later = keep(&mut world, &held, &[held.heartbeat_at, in_doubt]).unwrap();
    let never_written = in_doubt.after(std::time::Duration::from_secs(1));
    assert!(keep(&mut world, &held, &[later.heartbeat_at, never_written]).is_ok());
}

#[test]
fn a_holder_whose_lease_was_revoked_is_told_so_and_renews_nothing() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    world.decide(|overlay| lease::revoke(overlay, held.id));
    let kept = keep(&mut world, &held, &[held.heartbeat_at]);
    assert_eq!(kept, Err(NotCurrent::Revoked(held.id)));
}

#[test]
fn a_holder_that_comes_back_late_has_lost_its_lease() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    world.pass(31);
    let next = world.hold(ask("b").name("db"));
    assert_eq!(keep(&mut world, &held, &[held.heartbeat_at]), Err(NotCurrent::Unknown(held.id)));
    assert!(!world.decide(|overlay| lease::fence(overlay, &db(), held.token)).0.passes);
    assert!(world.decide(|overlay| lease::fence(overlay, &db(), next.token)).0.passes);
}

/// Its holder alone keeps the session: the renewal of a TTL by others does not take it away.
#[test]
fn a_new_ttl_leaves_the_session_alone() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    world.pass(10);
    let renewed = world.decide(|overlay| lease::renew(overlay, held.id, None, Some(seconds(60)))).0.unwrap();
    assert_eq!((renewed.heartbeat_at, renewed.claim.ttl), (held.heartbeat_at, Some(seconds(60))));
    assert!(keep(&mut world, &held, &[held.heartbeat_at]).is_ok());
}

/// A guardian renews the lease of a shell. A command of the shell makes it exclusive, with a new token, and shared again.
#[test]
fn an_upgrade_and_a_downgrade_leave_the_session_alone() {
    let mut world = World::new();
    let reader = world.hold(ask("b").shared("db"));
    let held = world.hold(ask("a").shared("db").elsewhere());
    let written = [held.heartbeat_at];
    world.pass(10);
    let wait = Some(WaitTerms { waker: None, stays: seconds(60) });
    let waiting = world.decide(|overlay| lease::upgrade(overlay, held.id, None, wait)).0.unwrap();
    assert!(matches!(waiting, Outcome::Waiting(_)), "{waiting:?}");
    world.release(&reader);
    let upgraded = keep(&mut world, &held, &written).unwrap();
    assert!(upgraded.token > held.token);
    let weaker = world.decide(|overlay| lease::downgrade(overlay, held.id, None)).0.unwrap();
    let Outcome::Granted(again) =
        world.decide(|overlay| lease::upgrade(overlay, held.id, None, None)).0.unwrap()
    else {
        panic!("nobody else holds it");
    };
    let heartbeats = [weaker.heartbeat_at, again.lease.heartbeat_at];
    assert_eq!(heartbeats, [upgraded.heartbeat_at; 2]);
    let renewed = keep(&mut world, &upgraded, &[upgraded.heartbeat_at]).unwrap();
    assert_eq!(renewed.token, again.lease.token);
}

/// Invariant 7.
#[test]
fn a_waiter_elsewhere_keeps_its_place_while_it_looks_and_loses_it_when_it_is_silent() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let silent = world.queue(&ask("b").name("db").elsewhere());
    let there = world.queue(&ask("c").name("db").elsewhere());
    for _ in 0..4 {
        world.pass(10);
        assert!(matches!(world.check_ticket(&there), Outcome::Waiting(_)));
    }
    world.release(&held);
    assert!(world.holds(&there) && !world.waits(&silent) && !world.holds(&silent));
}
