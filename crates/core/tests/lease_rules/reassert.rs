//! Rules of leases: a store that has lost data, and holders and waiters that write their records again.

use super::*;
use lockkeeper_core::in_memory::InMemoryRecords;
use lockkeeper_core::record::Ticket;

fn keep(world: &mut World, lease: &Lease) -> Result<Lease, NotCurrent> {
    world.decide(|overlay| lease::keep_session(overlay, lease, &[lease.heartbeat_at], true)).0
}

fn check(world: &mut World, ticket: &Ticket) -> Outcome {
    world.decide(|overlay| lease::wait_again(overlay, ticket, None)).0
}

/// A store that shows what it had at the moment of the backup, from now on.
fn restore(world: &mut World, backup: InMemoryRecords) {
    world.records = backup;
    world.remembers_since = Some(world.now);
}

/// Invariants 1 and 2.
#[test]
fn a_forgotten_lease_is_said_again_with_its_token_before_anybody_else_gets_it() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    restore(&mut world, InMemoryRecords::default());
    world.refused(ask("b").name("db").elsewhere());
    world.pass(10);
    let again = keep(&mut world, &held).unwrap();
    assert_eq!((again.id, again.token), (held.id, held.token));
    world.pass(21);
    world.refused(ask("b").name("db").elsewhere());
    assert!(keep(&mut world, &again).is_ok());
}

#[test]
fn nothing_is_granted_for_one_session_and_then_it_goes_on() {
    let mut world = World::new();
    restore(&mut world, InMemoryRecords::default());
    let blockers = world.refused(ask("a").name("db").elsewhere());
    assert!(blockers[0].silent_until.is_some() && blockers[0].leases.is_empty());
    let waits = world.queue(&ask("b").name("db").elsewhere());
    world.pass(20);
    assert!(matches!(check(&mut world, &waits), Outcome::Waiting(_)));
    world.pass(11);
    let lease = granted(check(&mut world, &waits));
    assert_eq!(lease.id, waits.id);
}

/// A holder that nobody heard of within the session has stopped by itself.
#[test]
fn what_nobody_said_again_is_lost() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    restore(&mut world, InMemoryRecords::default());
    world.pass(31);
    let next = world.hold(ask("b").name("db").elsewhere());
    assert!(next.token > held.token);
    assert_eq!(keep(&mut world, &held), Err(NotCurrent::Unknown(held.id)));
}

/// The backup shows a holder that has released since, and not the one that came after it.
#[test]
fn a_lease_of_the_past_does_not_stand_in_the_way_of_the_live_holder() {
    let mut world = World::new();
    let past = world.hold(ask("a").name("db").elsewhere());
    let backup = world.records.clone();
    world.release(&past);
    let held = world.hold(ask("b").name("db").elsewhere());
    world.pass(1_000);
    restore(&mut world, backup);
    assert!(keep(&mut world, &held).is_ok());
    // Its own end was forgotten: if it were still there, it would be the second inside.
    assert_eq!(keep(&mut world, &past), Err(NotCurrent::Unknown(past.id)));
    world.refused(ask("c").name("db").elsewhere());
}

/// The backup shows an older heartbeat of a holder that lives.
#[test]
fn a_session_of_the_past_is_renewed_and_not_taken_for_that_of_a_clone() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    let backup = world.records.clone();
    world.pass(20);
    let held = keep(&mut world, &held).unwrap();
    world.pass(20);
    restore(&mut world, backup);
    world.refused(ask("b").name("db").elsewhere());
    assert!(keep(&mut world, &held).is_ok());
}

/// The store was restarted and has lost nothing of this lease, so it is only renewed.
#[test]
fn a_lease_that_the_store_still_has_is_not_written_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    let backup = world.records.clone();
    restore(&mut world, backup);
    // A lease that is written again needs a number above its token.
    world.last_number = 0;
    assert_eq!(keep(&mut world, &held).unwrap().token, held.token);
}

/// The store has lost nothing of this lease, whose latest change its holder does not know.
#[test]
fn a_lease_that_was_upgraded_since_keeps_its_new_token() {
    let mut world = World::new();
    let held = world.hold(ask("a").shared("db").elsewhere());
    let upgraded = granted(world.upgrade(&held));
    assert!(upgraded.token > held.token);
    let backup = world.records.clone();
    restore(&mut world, backup);
    assert_eq!(keep(&mut world, &held).unwrap().token, upgraded.token);
}

/// The holder of the other lease may live, and not have renewed its session yet.
#[test]
fn a_lease_that_may_be_held_beside_the_one_that_is_written_again_stays() {
    let mut world = World::new();
    let first = world.hold(ask("a").shared("db").elsewhere());
    let backup = world.records.clone();
    let second = world.hold(ask("b").shared("db").elsewhere());
    world.pass(1);
    restore(&mut world, backup);
    assert_eq!(keep(&mut world, &second).unwrap().token, second.token);
    assert!(world.decide(|overlay| overlay.lease(first.id)).0.is_some());
}

/// Another process with the same lease, on a cloned machine, has renewed its session since.
#[test]
fn a_session_that_a_clone_has_renewed_is_not_written_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    let backup = world.records.clone();
    restore(&mut world, backup);
    world.pass(1);
    keep(&mut world, &held).unwrap();
    world.pass(1);
    assert_eq!(keep(&mut world, &held), Err(NotCurrent::SessionTaken(held.id)));
}

/// The backup shows the ticket of a waiter that was granted since.
#[test]
fn a_holder_that_is_a_waiter_in_the_backup_says_again_that_it_holds() {
    let mut world = World::new();
    let first = world.hold(ask("a").name("db").elsewhere());
    let waits = world.queue(&ask("b").name("db").elsewhere());
    let backup = world.records.clone();
    world.release(&first);
    let held = granted(world.check_ticket(&waits));
    world.pass(1);
    restore(&mut world, backup);
    let again = keep(&mut world, &held).unwrap();
    assert_eq!(again.token, held.token);
    assert!(world.holds(&waits) && !world.waits(&waits));
}

/// Invariant 7.
#[test]
fn forgotten_waiters_get_their_old_places_whoever_comes_back_first() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    let first = world.queue(&ask("b").name("db").elsewhere());
    world.pass(1);
    let second = world.queue(&ask("c").name("db").elsewhere());
    restore(&mut world, InMemoryRecords::default());
    for waiter in [&second, &first] {
        assert!(matches!(check(&mut world, waiter), Outcome::Waiting(_)));
    }
    let mut held = keep(&mut world, &held).unwrap();
    for _ in 0..4 {
        world.pass(10);
        held = keep(&mut world, &held).unwrap();
        for waiter in [&second, &first] {
            assert!(matches!(check(&mut world, waiter), Outcome::Waiting(_)));
        }
    }
    world.release(&held);
    assert!(world.holds(&first) && world.waits(&second));
}

/// A holder that was frozen past its session does not know whether somebody else held the lease meanwhile.
#[test]
fn a_holder_that_is_not_certain_says_nothing_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    restore(&mut world, InMemoryRecords::default());
    let written = [held.heartbeat_at];
    let kept = world.decide(|overlay| lease::keep_session(overlay, &held, &written, false)).0;
    assert_eq!(kept, Err(NotCurrent::Unknown(held.id)));
}

/// Tokens grow.
#[test]
fn a_holder_whose_token_is_ahead_of_the_store_is_not_let_back() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    restore(&mut world, InMemoryRecords::default());
    world.last_number = 0;
    assert_eq!(keep(&mut world, &held), Err(NotCurrent::Unknown(held.id)));
}

#[test]
fn the_end_of_a_forgotten_lease_is_no_loss_while_nothing_is_granted() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").elsewhere());
    let is_forgotten = |world: &mut World| {
        let session = held.claim.session();
        world.decide(|overlay| lease::release_forgotten(overlay, held.id, session)).0
    };
    assert!(!is_forgotten(&mut world));
    restore(&mut world, InMemoryRecords::default());
    assert!(is_forgotten(&mut world));
    world.pass(31);
    assert!(!is_forgotten(&mut world));
}
