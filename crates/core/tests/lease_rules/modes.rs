//! Rules of leases: upgrades and downgrades.

use super::*;

/// Requirement 154.
#[test]
fn an_upgrade_gives_a_new_token_and_the_same_lease() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db").ticket_name("mine"));
    let writer = granted(world.upgrade(&reader));
    assert_eq!(writer.id, reader.id);
    assert!(writer.token > reader.token);
    assert_eq!(writer.claim.resources, ask("a").name("db").claim().resources);
    world.refused(ask("b").shared("db"));
}

/// Requirement 154.
#[test]
fn an_upgrade_that_fails_leaves_the_shared_lease() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db"));
    world.hold(ask("b").shared("db"));
    let outcome = world.decide(|overlay| lease::upgrade(overlay, reader.id, None, None)).0.unwrap();
    assert!(matches!(outcome, Outcome::Held(_)));
    assert_eq!(world.records.lease(reader.id), Some(&reader));
    let Outcome::Waiting(waiting) = world.upgrade(&reader) else { panic!("it waits") };
    world.decide(|overlay| lease::give_up(overlay, waiting.ticket.id));
    assert_eq!(world.records.lease(reader.id), Some(&reader));
}

/// Invariant 7. Requirement 154.
#[test]
fn an_upgrade_goes_before_everybody_who_waits() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db"));
    let other = world.hold(ask("b").shared("db"));
    let writer = world.queue(&ask("c").name("db").priority(100));
    let Outcome::Waiting(waiting) = world.upgrade(&reader) else { panic!("it waits") };
    world.release(&other);
    assert!(world.waits(&writer));
    let again = world.decide(|overlay| lease::check_upgrade(overlay, waiting.ticket.id, reader.id, None)).0;
    assert!(granted(again).token > reader.token);
}

#[test]
fn the_ttl_begins_again_with_the_upgrade_whether_it_waited_or_not() {
    for waits in [false, true] {
        let mut world = World::new();
        let reader = world.hold(ask("a").shared("db").ttl(100));
        let other = waits.then(|| world.hold(ask("b").shared("db")));
        world.pass(60);
        assert_eq!(matches!(world.upgrade(&reader), Outcome::Waiting(_)), waits);
        if let Some(other) = other {
            world.pass(20);
            world.release(&other);
        }
        let writer = world.records.lease(reader.id).unwrap();
        assert_eq!(writer.expires_at(), Some(world.now.after(seconds(100).get())));
        assert_eq!(writer.acquired_at, reader.acquired_at);
    }
}

#[test]
fn the_ticket_name_finds_the_lease_and_not_its_upgrade() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db").ticket_name("mine"));
    world.hold(ask("b").shared("db"));
    assert!(matches!(world.upgrade(&reader), Outcome::Waiting(_)));
    let found = world.decide(|overlay| lease::find_tickets(overlay, &"mine".parse().unwrap(), &named("a"))).0;
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [reader.id]);
}

#[test]
fn asking_twice_for_an_upgrade_is_one_ticket_and_one_new_token() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db"));
    let other = world.hold(ask("b").shared("db"));
    let Outcome::Waiting(first) = world.upgrade(&reader) else { panic!("it waits") };
    let Outcome::Waiting(second) = world.upgrade(&reader) else { panic!("it waits") };
    assert_eq!(first.ticket.id, second.ticket.id);
    world.release(&other);
    assert_eq!(world.records.tickets().count(), 0);
}

/// Invariant 8. Requirement 160.
#[test]
fn two_upgraders_would_deadlock_and_the_second_is_refused() {
    let mut world = World::new();
    let one = world.hold(ask("a").shared("db"));
    let two = world.hold(ask("b").shared("db"));
    assert!(matches!(world.upgrade(&one), Outcome::Waiting(_)));
    let Outcome::Deadlock(links) = world.upgrade(&two) else { panic!("it is a deadlock") };
    assert_eq!(links.len(), 2);
    assert!(world.records.lease(two.id).is_some());
    world.release(&two);
    assert_eq!(world.records.lease(one.id).unwrap().claim.resources[0].mode, Mode::Exclusive);
}

/// Invariant 7.
#[test]
fn a_lease_that_is_lost_takes_its_upgrade_out_of_the_line() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db"));
    let other = world.hold(ask("b").shared("db"));
    let Outcome::Waiting(waiting) = world.upgrade(&reader) else { panic!("it waits") };
    let next = world.queue(&ask("c").name("db"));
    world.release(&reader);
    assert!(!world.waits(&waiting.ticket));
    world.release(&other);
    assert!(world.holds(&next));
}

/// Requirement 156.
#[test]
fn a_downgrade_lets_readers_in_and_keeps_the_token() {
    let mut world = World::new();
    let writer = world.hold(ask("a").name("db").ttl(100));
    let reader = world.queue(&ask("b").shared("db"));
    let later = world.queue(&ask("c").name("db"));
    world.pass(60);
    let weaker = world.decide(|overlay| lease::downgrade(overlay, writer.id, Some(writer.token))).0.unwrap();
    assert_eq!(weaker.token, writer.token);
    assert_eq!(weaker.expires_at(), Some(world.now.after(seconds(100).get())));
    assert!(world.holds(&reader) && world.waits(&later));
}

#[test]
fn an_upgrade_or_downgrade_picks_the_lease_up() {
    let downgrade =
        |world: &mut World, id| world.decide(|overlay| lease::downgrade(overlay, id, None)).0.is_ok();
    let renew =
        |world: &mut World, id| world.decide(|overlay| lease::renew(overlay, id, None, None)).0.is_ok();
    let upgrade =
        |world: &mut World, id| world.decide(|overlay| lease::upgrade(overlay, id, None, None)).0.is_ok();
    for come in [downgrade, renew, upgrade] {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let away = world.queue(&ask("b").shared("db").for_process(20));
        world.decide(|overlay| lease::detach(overlay, away.id));
        world.release(&held);
        assert!(come(&mut world, away.id));
        world.pass(101);
        world.refused(ask("c").name("db"));
    }
}
