//! Rules of leases: who is next in line.

use lockkeeper_core::records::Effect;

use super::*;

/// Invariant 7.
#[test]
fn a_release_grants_to_the_next_waiter_in_the_same_decision_and_wakes_only_that_one() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let first = world.queue(&ask("b").name("db"));
    let second = world.queue(&ask("c").name("db"));
    assert_eq!(world.release(&held), [woken("b")]);
    assert!(world.holds(&first) && world.waits(&second));
}

/// Invariant 7. Requirement 155.
#[test]
fn first_come_is_first_served_unless_another_is_more_urgent() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let tickets = [0, 0, 1].map(|priority| {
        let owner = ["b", "c", "d"][world.records.tickets().count()];
        world.queue(&ask(owner).name("db").priority(priority))
    });
    world.release(&held);
    for next in [2, 0, 1] {
        assert!(world.holds(&tickets[next]), "{next}");
        let lease = world.records.lease(tickets[next].id).unwrap().clone();
        world.release(&lease);
    }
}

/// Invariant 7.
#[test]
fn a_minute_in_line_outweighs_a_step_of_priority() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let patient = world.queue(&ask("b").name("db"));
    world.pass(61);
    let urgent = world.queue(&ask("c").name("db").priority(1));
    world.release(&held);
    assert!(world.holds(&patient) && world.waits(&urgent));
}

/// Invariant 7.
#[test]
fn a_waiting_writer_is_not_starved_by_readers() {
    let mut world = World::new();
    let reader = world.hold(ask("a").shared("db"));
    let writer = world.queue(&ask("b").name("db"));
    world.refused(ask("c").shared("db"));
    let late = world.queue(&ask("c").shared("db"));
    world.release(&reader);
    assert!(world.holds(&writer) && world.waits(&late));
}

/// Invariant 7.
#[test]
fn readers_in_line_are_granted_together_also_if_one_takes_more() {
    let mut world = World::new();
    let writer = world.hold(ask("a").name("db"));
    let first = world.queue(&ask("b").shared("db").name("x"));
    let second = world.queue(&ask("c").shared("db"));
    world.release(&writer);
    assert!(world.holds(&first) && world.holds(&second));
}

/// Invariant 7.
#[test]
fn nobody_overtakes_on_a_name_that_is_free_but_waited_for() {
    let mut world = World::new();
    world.hold(ask("a").name("x"));
    let both = world.queue(&ask("b").name("x").name("y"));
    let blockers = world.refused(ask("c").name("y"));
    assert!(blockers[0].leases.is_empty());
    assert_eq!(blockers[0].tickets[0].record.id, both.id);
}

/// Invariants 7 and 8.
#[test]
fn a_ticket_that_waits_for_the_newcomer_is_not_in_its_way() {
    let mut world = World::new();
    world.hold(ask("a").name("x"));
    let both = world.queue(&ask("b").name("x").name("y"));
    world.hold(ask("a").name("y"));
    assert!(world.waits(&both));
}

/// Invariant 7.
#[test]
fn a_grant_that_lifts_its_owner_over_a_ticket_is_followed_by_the_next() {
    let mut world = World::new();
    world.hold(ask("a").shared("q"));
    let both = world.queue(&ask("b").name("q").name("r"));
    let behind = world.queue(&ask("c").name("r"));
    // The writer now waits for c as well, so that it is not in c's way any more.
    world.hold(ask("c").shared("q").priority(1).of_process(30));
    assert!(world.holds(&behind) && world.waits(&both));
}

/// Invariant 7.
#[test]
fn a_waiter_that_gives_up_lets_those_behind_move_up() {
    let mut world = World::new();
    world.hold(ask("a").name("x"));
    let both = world.queue(&ask("b").name("x").name("y"));
    let behind = world.queue(&ask("c").name("y"));
    world.decide(|overlay| lease::give_up(overlay, both.id));
    assert!(world.holds(&behind));
}

#[test]
fn giving_up_after_the_grant_gives_the_lease_back() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db"));
    world.release(&held);
    world.decide(|overlay| lease::give_up(overlay, ticket.id));
    world.hold(ask("c").name("db"));
}

#[test]
fn a_ticket_is_found_by_its_name_while_it_waits_and_when_it_holds() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").ticket_name("mine"));
    let find = |world: &mut World| {
        let found =
            world.decide(|overlay| lease::find_tickets(overlay, &"mine".parse().unwrap(), &named("b"))).0;
        found.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(find(&mut world), [ticket.id]);
    world.release(&held);
    assert_eq!(find(&mut world), [ticket.id]);
    let lease = world.records.lease(ticket.id).unwrap().clone();
    world.release(&lease);
    assert_eq!(find(&mut world), []);
}

#[test]
fn a_waiter_that_detaches_keeps_its_place_and_comes_back_to_it() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").for_process(20));
    world.queue(&ask("c").name("db"));
    world.decide(|overlay| lease::detach(overlay, ticket.id));
    world.pass(90);
    assert_eq!(world.release(&held), []);
    let lease = world.records.lease(ticket.id).unwrap();
    assert_eq!(lease.pickup_by, Some(world.now.after(seconds(100).get())));
    world.pass(90);
    let lease = granted(world.check_ticket(&ticket));
    assert_eq!(lease.pickup_by, None);
    world.pass(1_000);
    world.refused(ask("d").name("db"));
}

#[test]
fn a_ticket_whose_owner_stays_away_lapses() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").for_process(20));
    let next = world.queue(&ask("c").name("db"));
    world.decide(|overlay| lease::detach(overlay, ticket.id));
    world.pass(101);
    world.release(&held);
    assert!(world.holds(&next) && !world.waits(&ticket));
    assert!(matches!(world.check_ticket(&ticket), Outcome::Gone));
}

#[test]
fn a_lease_that_nobody_picks_up_goes_to_the_next() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let away = world.queue(&ask("b").name("db").for_process(20));
    let next = world.queue(&ask("c").name("db"));
    world.decide(|overlay| lease::detach(overlay, away.id));
    world.release(&held);
    world.pass(101);
    assert!(matches!(world.check_ticket(&away), Outcome::Gone));
    assert!(world.holds(&next));
}

#[test]
fn a_ticket_that_is_checked_late_is_good_while_nobody_has_reaped_it() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    let late = world.queue(&ask("b").name("db").for_process(20));
    world.pass(101);
    assert!(matches!(world.check_ticket(&late), Outcome::Waiting(_)));
    world.pass(99);
    world.decide(lease::clean_up);
    assert!(world.waits(&late));
}

#[test]
fn a_shorter_stay_begins_when_it_is_asked_for() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").for_process(20));
    world.pass(20);
    let terms = WaitTerms { waker: Some(waker(2)), stays: seconds(10) };
    let (outcome, _, _) = world.decide(|overlay| lease::check_ticket(overlay, ticket.id, Some(terms)));
    assert!(matches!(outcome, Outcome::Waiting(_)));
    for (seconds, waits) in [(10, true), (1, false)] {
        world.pass(seconds);
        world.decide(lease::clean_up);
        assert_eq!(world.waits(&ticket), waits);
    }
}

#[test]
fn the_stay_begins_when_the_process_detaches() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").for_process(20));
    world.pass(90);
    world.decide(|overlay| lease::detach(overlay, ticket.id));
    world.pass(90);
    world.decide(lease::clean_up);
    assert!(world.waits(&ticket));
}

#[test]
fn another_process_that_comes_for_the_ticket_is_woken() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").for_process(20));
    let terms = WaitTerms { waker: Some(waker(77)), stays: seconds(100) };
    let (outcome, _, _) = world.decide(|overlay| lease::check_ticket(overlay, ticket.id, Some(terms)));
    assert!(matches!(outcome, Outcome::Waiting(_)));
    assert_eq!(world.release(&held), [Effect::Wake(waker(77))]);
}

/// Most checks of a ticket write nothing.
#[test]
fn a_check_is_recorded_after_a_quarter_of_the_stay() {
    let mut world = World::new();
    world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").for_process(20));
    for (seconds, is_written) in [(25, false), (1, true)] {
        world.pass(seconds);
        assert!(matches!(world.check_ticket(&ticket), Outcome::Waiting(_)));
        assert_eq!(world.records.ticket(ticket.id).unwrap().seen_at == world.now, is_written);
    }
}
