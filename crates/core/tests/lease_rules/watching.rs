//! Rules of leases: whose end a waiter watches for.

use lockkeeper_core::record::Ticket;

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

/// Readers do not stand for each other.
#[test]
fn a_writer_put_before_readers_makes_all_of_them_look_again() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    world.queue(&ask("b").shared("db"));
    world.queue(&ask("c").shared("db"));
    let (_, _, effects) = world.queue_and_watch(&ask("d").name("db").priority(1));
    assert_eq!(effects, [woken("b"), woken("c")]);
}

/// The waiter that waits for the owner does not block the owner's own ticket, so it does not stand for it.
#[test]
fn a_waiter_put_before_others_makes_the_owner_look_again_that_one_of_them_waits_for() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    world.hold(ask("h").name("q").of_process(80));
    world.queue(&ask("b").name("db").name("q"));
    world.queue(&ask("h").name("db"));
    let (_, _, effects) = world.queue_and_watch(&ask("c").name("db").priority(1));
    assert_eq!(effects, [woken("b"), woken("h")]);
}

#[test]
fn a_waiter_that_gives_up_makes_the_next_one_look_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let first = world.queue(&ask("b").name("db"));
    let second = world.queue(&ask("c").name("db"));
    world.queue(&ask("d").name("db"));
    assert_eq!(world.decide(|overlay| lease::give_up(overlay, first.id)).1, [woken("c")]);
    let Outcome::Waiting(waiting) = world.check_ticket(&second) else { panic!("it waits") };
    assert_eq!(waiting.blockers[0].leases[0].record.id, held.id);
}

#[test]
fn a_waiter_is_not_woken_by_its_own_look() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    world.queue(&ask("b").name("db"));
    let ticket = world.queue(&ask("c").name("db"));
    world.kill("b");
    let (outcome, effects, reaped) = world.decide(|overlay| lease::check_ticket(overlay, ticket.id, None));
    assert!(matches!(outcome, Outcome::Waiting(_)) && reaped.len() == 1);
    assert!(!effects.contains(&woken("c")), "{effects:?}");
}

#[test]
fn a_grant_that_ends_by_time_makes_the_next_one_look_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    world.queue(&ask("b").name("db").ttl(10).contract(Contract::Lease));
    world.queue(&ask("c").name("db"));
    assert_eq!(world.release(&held), [woken("b"), woken("c")]);
}

/// The next one watched the first waiter alone, which stood for the other lease of its owner as well.
#[test]
fn a_grant_to_an_owner_that_holds_already_makes_the_next_one_look_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").shared("db"));
    world.hold(ask("b").shared("db").of_process(20));
    world.queue(&ask("b").name("db"));
    world.queue(&ask("c").name("db"));
    assert_eq!(world.release(&held), [woken("b"), woken("c")]);
}

#[test]
fn a_grant_past_an_earlier_waiter_makes_it_look_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    world.hold(ask("b").name("q").of_process(20));
    world.queue(&ask("c").name("db").name("q"));
    // c waits for b, so it does not block b.
    world.queue(&ask("b").name("db"));
    assert_eq!(world.release(&held), [woken("b"), woken("c")]);
}

/// A waiter for a slot watches all before it, but not behind a waiter that takes the whole name.
#[test]
fn a_grant_of_the_whole_name_makes_the_waiters_for_its_slots_look_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    world.queue(&ask("b").name("db"));
    world.queue(&ask("c").slots("db", 2));
    world.queue(&ask("d").slots("db", 2));
    assert_eq!(world.release(&held), [woken("b"), woken("d")]);
    // The same with a waiter between them that h is not behind, because it waits for h.
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    world.hold(ask("h").name("q").of_process(80));
    world.queue(&ask("b").name("db"));
    world.queue(&ask("c").name("db").name("q"));
    world.queue(&ask("d").slots("db", 2));
    world.queue(&ask("h").slots("db", 2));
    assert_eq!(world.release(&held), [woken("b"), woken("h")]);
}

#[test]
fn an_upgrade_makes_the_waiters_for_more_resources_look_again() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db"));
    world.hold(ask("b").name("s"));
    world.queue(&ask("c").shared("db").name("s"));
    let (outcome, effects, _) = world.decide(|overlay| lease::upgrade(overlay, reader.id, None, None));
    assert!(matches!(outcome, Ok(Outcome::Granted(_))));
    assert_eq!(effects, [woken("c")]);
    assert_eq!(world.decide(|overlay| lease::downgrade(overlay, reader.id, None)).1, []);
}

#[test]
fn a_grant_by_priority_makes_the_waiters_for_more_resources_look_again() {
    let mut world = World::new();
    world.hold(ask("a").name("s"));
    world.queue(&ask("b").name("r").name("s"));
    let (lease, effects) = world.hold_with_effects(ask("c").name("r").priority(1));
    assert_eq!(effects, [woken("b")]);
    assert_eq!(world.release(&lease), []);
}

#[test]
fn a_lease_that_will_end_sooner_makes_its_watchers_look_again() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").by_time(1_000));
    world.queue(&ask("b").name("db"));
    let (_, effects, _) = world.decide(|overlay| lease::renew(overlay, held.id, None, Some(seconds(10))));
    assert_eq!(effects, [woken("b")]);
    for as_long_or_longer in [10, 20] {
        let ttl = Some(seconds(as_long_or_longer));
        let (_, effects, _) = world.decide(|overlay| lease::renew(overlay, held.id, None, ttl));
        assert_eq!(effects, []);
    }
}

#[test]
fn an_owner_that_releases_makes_its_own_waiters_look_again() {
    let mut world = World::new();
    let lent = world.hold(ask("a").name("q").of_process(10));
    world.hold(ask("b").name("r"));
    world.queue(&ask("c").name("q").name("r"));
    // c waits for a, so that a watches only the holder.
    world.queue(&ask("a").name("r"));
    assert_eq!(world.release(&lent), [woken("a")]);
}

/// How often a decision reads records. There are a holder and some waiters in a plain line.
fn reads(waiters: u32, decision: impl Fn(&mut World, &Lease, Option<&Ticket>)) -> usize {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db").ttl(100));
    let queue = |number| world.queue(&ask(&format!("w{number}")).of_process(100 + number).name("db"));
    let tickets: Vec<Ticket> = (0..waiters).map(queue).collect();
    world.reads = 0;
    decision(&mut world, &held, tickets.first());
    world.reads
}

/// The next waiter watched the first one already, so its ticket is not checked: that would be twice as many reads.
#[test]
fn a_hand_off_in_a_plain_line_looks_at_nobody_behind() {
    let release = |world: &mut World, held: &Lease, _: Option<&Ticket>| drop(world.release(held));
    assert_eq!(reads(2, release), reads(1, release));
    assert_eq!(reads(20, release), reads(1, release));
}

#[test]
fn a_renewal_and_a_look_without_a_change_do_not_look_at_those_behind() {
    let renew = |world: &mut World, held: &Lease, _: Option<&Ticket>| {
        world.decide(|overlay| lease::renew(overlay, held.id, None, None)).0.unwrap();
    };
    assert_eq!(reads(2, renew), reads(0, renew));
    let look = |world: &mut World, _: &Lease, first: Option<&Ticket>| {
        assert!(matches!(world.check_ticket(first.unwrap()), Outcome::Waiting(_)));
    };
    assert_eq!(reads(2, look), reads(1, look));
}

#[test]
fn a_newcomer_looks_at_no_more_than_its_neighbours_in_line() {
    for priority in [0, 1] {
        let join = |world: &mut World, _: &Lease, _: Option<&Ticket>| {
            world.queue(&ask("x").name("db").priority(priority));
        };
        assert_eq!(reads(20, join), reads(2, join), "{priority}");
    }
}
