//! Rules of leases: whose end a waiter watches for.

use super::*;

#[test]
fn in_a_plain_line_everyone_watches_the_one_before() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let (first, sees, _) = world.queue_and_watch(&ask("b").name("db"));
    assert_eq!(sees, [held.id]);
    let (_, sees, effects) = world.queue_and_watch(&ask("c").name("db"));
    assert_eq!((sees, effects), (vec![first.id], vec![]));
}

/// One of two readers may end long before the other.
#[test]
fn a_writer_watches_all_readers_before_it() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let readers = [world.queue(&ask("b").shared("db")), world.queue(&ask("c").shared("db"))];
    let (_, sees, _) = world.queue_and_watch(&ask("d").name("db"));
    assert_eq!(sees, [readers[1].id, readers[0].id, held.id]);
}

#[test]
fn a_ticket_that_nobody_sleeps_on_watches_for_nobody() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let away = world.queue(&ask("b").name("db").for_process(20));
    let behind = world.queue(&ask("c").name("db"));
    assert_eq!(world.decide(|overlay| lease::detach(overlay, away.id)).1, [woken("c")]);
    let Outcome::Waiting(waiting) = world.check_ticket(&behind) else { panic!("it waits") };
    assert_eq!(waiting.blockers[0].leases[0].record.id, held.id);
}

#[test]
fn a_waiter_put_before_others_makes_them_look_again() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    world.queue(&ask("b").name("db"));
    let (_, _, effects) = world.queue_and_watch(&ask("c").name("db").priority(1));
    assert_eq!(effects, [woken("b")]);
}

#[test]
fn a_grant_by_priority_has_those_look_again_who_wait_for_more() {
    let mut world = World::new();
    world.hold(ask("a").name("s"));
    world.queue(&ask("b").name("r").name("s"));
    let (lease, effects) = world.hold_and_tell(ask("c").name("r").priority(1));
    assert_eq!(effects, [woken("b")]);
    assert_eq!(world.release(&lease), []);
}

#[test]
fn a_lease_that_will_end_sooner_has_those_look_again_who_watch_it() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").by_time(1_000));
    world.queue(&ask("b").name("db"));
    let (_, effects, _) = world.decide(|overlay| lease::renew(overlay, held.id, None, Some(seconds(10))));
    assert_eq!(effects, [woken("b")]);
    let (_, effects, _) = world.decide(|overlay| lease::renew(overlay, held.id, None, Some(seconds(20))));
    assert_eq!(effects, []);
}

#[test]
fn an_owner_who_lets_go_has_its_own_waiters_look_again() {
    let mut world = World::new();
    let lent = world.hold(ask("a").name("q").of_process(10));
    world.hold(ask("b").name("r"));
    world.queue(&ask("c").name("q").name("r"));
    // c waits for a, so that a watches only the holder.
    world.queue(&ask("a").name("r"));
    assert_eq!(world.release(&lent), [woken("a")]);
}
