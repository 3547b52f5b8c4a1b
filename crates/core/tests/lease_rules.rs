//! The rules of leases, one claim a test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/story.rs"]
mod story;
#[path = "support/world.rs"]
mod world;

use lockkeeper_core::id::Token;
use lockkeeper_core::lease::{self, NotCurrent, Outcome, WaitTerms};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::{Mode, Target};

use crate::story::{ask, rung};
use crate::world::{World, bell, name, seconds};

fn granted(outcome: Outcome) -> Lease {
    match outcome {
        Outcome::Granted(grant) => grant.lease,
        other => panic!("not granted: {other:?}"),
    }
}

fn db() -> Target {
    name("db", Mode::Exclusive).target
}

mod together {
    use super::*;

    /// Invariant 1. Requirement 154.
    #[test]
    fn an_exclusive_name_has_one_holder() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let jams = world.refused(ask("b").name("db"));
        assert_eq!((jams[0].leases[0].record.id, jams[0].leases[0].witness.as_str()), (held.id, "db"));
        world.hold(ask("b").name("other"));
    }

    /// Invariant 1. Requirement 154.
    #[test]
    fn readers_share_and_exclude_writers() {
        let mut world = World::new();
        world.hold(ask("a").shared("db"));
        world.hold(ask("b").shared("db"));
        assert_eq!(world.refused(ask("c").name("db"))[0].must_go, 2);
    }

    /// Invariant 1.
    #[test]
    fn slots_let_in_as_many_as_the_smallest_number_says() {
        let mut world = World::new();
        world.hold(ask("a").slots("gpu", 3));
        world.hold(ask("b").slots("gpu", 3));
        assert_eq!(world.refused(ask("c").slots("gpu", 2))[0].must_go, 1);
        let two = world.hold(ask("c").slots("gpu", 3));
        world.refused(ask("d").slots("gpu", 4));
        world.release(&two);
        world.hold(ask("d").slots("gpu", 4));
        world.refused(ask("c").shared("gpu"));
    }

    /// Invariant 1.
    #[test]
    fn an_owner_takes_up_one_slot_with_all_its_leases() {
        let mut world = World::new();
        world.hold(ask("a").slots("gpu", 2));
        world.hold(ask("a").slots("gpu", 2));
        world.hold(ask("b").slots("gpu", 2));
        world.hold(ask("a").slots("gpu", 2));
        world.refused(ask("c").slots("gpu", 2));
    }

    /// Invariant 6. Requirement 162.
    #[test]
    fn several_resources_come_all_or_not_at_all() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("y"));
        world.refused(ask("b").name("x").name("y").path("docs/**"));
        world.hold(ask("c").name("x").path("docs/**"));
        let ticket = world.queue(&ask("b").name("z").name("y"));
        assert_eq!(world.board.leases().count(), 2);
        world.release(&held);
        let lease = world.board.lease(ticket.id).unwrap();
        assert_eq!(lease.claim.resources.len(), 2);
    }

    /// Invariant 1.
    #[test]
    fn overlapping_paths_exclude_each_other_and_the_refusal_names_one() {
        let mut world = World::new();
        world.hold(ask("a").path("src/**"));
        assert_eq!(world.refused(ask("b").path("src/a.rs"))[0].leases[0].witness, "src/a.rs");
        let witness = world.refused(ask("b").path("**/*.rs"))[0].leases[0].witness.clone();
        assert!(witness.starts_with("src/") && witness.ends_with(".rs"), "{witness}");
        world.hold(ask("b").path("docs/**"));
        world.hold(ask("c").name("src"));
    }

    /// Invariant 1. Requirement 154.
    #[test]
    fn shared_paths_overlap_freely() {
        let mut world = World::new();
        world.hold(ask("a").shared_path("src/**"));
        world.hold(ask("b").shared_path("**/*.rs"));
        world.refused(ask("c").path("src/a.rs"));
    }

    /// Invariant 6.
    #[test]
    fn a_refusal_leaves_nothing_behind() {
        let mut world = World::new();
        world.hold(ask("a").name("db"));
        let before = world.board.clone();
        world.refused(ask("b").name("db").name("x"));
        assert_eq!(world.board, before);
    }

    #[test]
    fn an_owner_is_never_in_its_own_way() {
        let mut world = World::new();
        let first = world.hold(ask("a").name("db"));
        let joined = world.hold(ask("a").shared("db").join());
        assert_eq!(joined.id, first.id);
        let second = world.hold(ask("a").name("db"));
        assert_ne!(second.id, first.id);
        world.release(&first);
        world.refused(ask("b").name("db"));
    }

    #[test]
    fn a_weaker_lease_is_not_joined() {
        let mut world = World::new();
        let reader = world.hold(ask("a").shared("db"));
        let writer = world.hold(ask("a").name("db").join());
        assert_ne!(reader.id, writer.id);
        let wide = world.hold(ask("b").path("src/**"));
        assert_eq!(world.hold(ask("b").path("src/a.rs").join()).id, wide.id);
        assert_ne!(world.hold(ask("b").path("docs/**").join()).id, wide.id);
    }

    /// Invariant 2.
    #[test]
    fn every_grant_has_a_larger_token() {
        let mut world = World::new();
        let first = world.hold(ask("a").name("db"));
        let second = world.queue(&ask("b").name("db"));
        let other = world.hold(ask("c").name("x"));
        world.release(&first);
        let second = world.board.lease(second.id).unwrap().token;
        assert!(first.token < other.token && other.token < second);
    }
}

mod line {
    use super::*;

    /// Invariant 7.
    #[test]
    fn a_release_hands_on_in_the_same_decision_and_wakes_that_one_waiter() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let first = world.queue(&ask("b").name("db"));
        let second = world.queue(&ask("c").name("db"));
        assert_eq!(world.release(&held), [rung("b")]);
        assert!(world.holds(&first) && world.waits(&second));
    }

    /// Invariant 7. Requirement 155.
    #[test]
    fn first_come_is_first_served_unless_another_is_more_urgent() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let tickets = [0, 0, 1].map(|priority| {
            let owner = ["b", "c", "d"][world.board.tickets().count()];
            world.queue(&ask(owner).name("db").priority(priority))
        });
        world.release(&held);
        for next in [2, 0, 1] {
            assert!(world.holds(&tickets[next]), "{next}");
            let lease = world.board.lease(tickets[next].id).unwrap().clone();
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
    fn nobody_overtakes_on_a_name_that_is_free_but_waited_for() {
        let mut world = World::new();
        world.hold(ask("a").name("x"));
        let both = world.queue(&ask("b").name("x").name("y"));
        let jams = world.refused(ask("c").name("y"));
        assert!(jams[0].leases.is_empty());
        assert_eq!(jams[0].tickets[0].record.id, both.id);
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
    fn who_gives_up_lets_those_behind_move_up() {
        let mut world = World::new();
        world.hold(ask("a").name("x"));
        let both = world.queue(&ask("b").name("x").name("y"));
        let behind = world.queue(&ask("c").name("y"));
        world.decide(|draft| lease::give_up(draft, both.id));
        assert!(world.holds(&behind));
    }

    #[test]
    fn giving_up_after_the_grant_gives_the_lease_back() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let ticket = world.queue(&ask("b").name("db"));
        world.release(&held);
        world.decide(|draft| lease::give_up(draft, ticket.id));
        world.hold(ask("c").name("db"));
    }

    #[test]
    fn a_ticket_is_found_by_its_name_while_it_waits_and_when_it_holds() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let ticket = world.queue(&ask("b").name("db").ticket_name("mine"));
        let find =
            |world: &mut World| world.decide(|draft| lease::find_ticket(draft, &"mine".parse().unwrap())).0;
        assert_eq!(find(&mut world), Some(ticket.id));
        world.release(&held);
        assert_eq!(find(&mut world), Some(ticket.id));
        let lease = world.board.lease(ticket.id).unwrap().clone();
        world.release(&lease);
        assert_eq!(find(&mut world), None);
    }

    #[test]
    fn who_walks_away_keeps_its_place_and_comes_back_to_it() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let ticket = world.queue(&ask("b").name("db").for_process(20));
        world.queue(&ask("c").name("db"));
        world.decide(|draft| lease::walk_away(draft, ticket.id));
        world.pass(90);
        assert_eq!(world.release(&held), []);
        let lease = world.board.lease(ticket.id).unwrap();
        assert_eq!(lease.pickup_by, Some(world.now.after(seconds(100).get())));
        world.pass(90);
        let lease = granted(world.attend(&ticket));
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
        world.decide(|draft| lease::walk_away(draft, ticket.id));
        world.pass(101);
        world.release(&held);
        assert!(world.holds(&next) && !world.waits(&ticket));
        assert!(matches!(world.attend(&ticket), Outcome::Gone));
    }

    #[test]
    fn a_lease_that_nobody_picks_up_goes_to_the_next() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let away = world.queue(&ask("b").name("db").for_process(20));
        let next = world.queue(&ask("c").name("db"));
        world.decide(|draft| lease::walk_away(draft, away.id));
        world.release(&held);
        world.pass(101);
        assert!(matches!(world.attend(&away), Outcome::Gone));
        assert!(world.holds(&next));
    }

    #[test]
    fn a_ticket_that_is_attended_late_is_good_while_nobody_put_it_away() {
        let mut world = World::new();
        world.hold(ask("a").name("db"));
        let late = world.queue(&ask("b").name("db").for_process(20));
        world.pass(101);
        assert!(matches!(world.attend(&late), Outcome::Waiting(_)));
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
        let terms = WaitTerms { bell: Some(bell(2)), stays: seconds(10) };
        let (outcome, _, _) = world.decide(|draft| lease::attend(draft, ticket.id, Some(terms)));
        assert!(matches!(outcome, Outcome::Waiting(_)));
        world.pass(9);
        world.decide(lease::clean_up);
        assert!(world.waits(&ticket));
    }
}

mod ends {
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
        assert!(world.decide(|draft| lease::renew(draft, held.id, Some(held.token), None)).0.is_ok());
    }

    #[test]
    fn an_expired_holder_under_the_lease_contract_is_succeeded_and_told() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db").ttl(10).contract(Contract::Lease));
        let ticket = world.queue(&ask("b").name("db"));
        world.pass(10);
        assert!(matches!(world.attend(&ticket), Outcome::Waiting(_)));
        world.pass(1);
        let (outcome, effects, burials) = world.decide(|draft| lease::attend(draft, ticket.id, None));
        assert_eq!(granted(outcome).id, ticket.id);
        assert!(effects.contains(&rung("a")));
        assert_eq!((burials[0].id, burials[0].held), (held.id, true));
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
    fn a_holder_that_only_time_vouches_for_is_held_until_its_time_is_up() {
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
        let renewed = world.decide(|draft| lease::renew(draft, held.id, Some(held.token), None)).0;
        assert_eq!(renewed, Err(NotCurrent::Expired(held.id)));
        assert!(world.holds(&next));
        let again = world.decide(|draft| lease::renew(draft, held.id, Some(held.token), None)).0;
        assert_eq!(again, Err(NotCurrent::Unknown(held.id)));
    }

    #[test]
    fn renewal_counts_from_now() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db").by_time(10));
        world.pass(9);
        world.decide(|draft| lease::renew(draft, held.id, Some(held.token), None)).0.unwrap();
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
        assert_eq!(world.decide(|draft| lease::renew(draft, id, Some(given), None)).0, Err(refusal.clone()));
        assert_eq!(world.decide(|draft| lease::release(draft, id, Some(given))).0, Err(refusal));
        assert!(world.decide(|draft| lease::release(draft, id, Some(current))).0.is_ok());
        let gone = world.decide(|draft| lease::release(draft, id, Some(current))).0;
        assert_eq!(gone, Err(NotCurrent::Unknown(id)));
    }

    /// Invariant 2.
    #[test]
    fn a_fence_lets_only_the_current_token_pass() {
        let mut world = World::new();
        let old = world.hold(ask("a").name("db").by_time(10));
        let passes = |world: &mut World, target: &Target, token| {
            let before = world.board.clone();
            let fence = world.decide(|draft| lease::fence(draft, target, token)).0;
            assert_eq!(before, world.board);
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
    fn a_revoked_resident_is_told_and_holds_until_it_lets_go() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let next = world.queue(&ask("b").name("db"));
        let (revoked, effects, _) = world.decide(|draft| lease::revoke(draft, held.id));
        assert!(revoked.is_some_and(|(_, stays)| stays) && effects == [rung("a")]);
        assert!(world.waits(&next));
        let renewed = world.decide(|draft| lease::renew(draft, held.id, None, None)).0;
        assert_eq!(renewed, Err(NotCurrent::Revoked(held.id)));
        assert!(!world.decide(|draft| lease::fence(draft, &db(), held.token)).0.passes);
        assert_ne!(world.hold(ask("a").name("db").join()).id, held.id);
        world.release(&held);
    }

    #[test]
    fn a_revoked_holder_without_a_process_loses_the_lease_at_once() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db").by_time(1_000));
        let next = world.queue(&ask("b").name("db"));
        let revoked = world.decide(|draft| lease::revoke(draft, held.id)).0;
        assert!(revoked.is_some_and(|(_, stays)| !stays));
        assert!(world.holds(&next));
    }

    #[test]
    fn an_evicted_holder_is_told_and_the_next_one_holds() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let next = world.queue(&ask("b").name("db"));
        let (was_there, effects, _) = world.decide(|draft| lease::evict(draft, held.id));
        assert!(was_there && effects.contains(&rung("a")) && effects.contains(&rung("b")));
        assert!(world.holds(&next));
        assert!(!world.decide(|draft| lease::evict(draft, held.id)).0);
    }

    /// Invariant 4.
    #[test]
    fn cleaning_up_puts_away_all_the_dead_and_serves_the_living() {
        let mut world = World::new();
        world.hold(ask("a").name("x"));
        world.queue(&ask("b").name("x"));
        let next = world.queue(&ask("c").name("x"));
        let other = world.hold(ask("d").name("y"));
        world.kill("a");
        world.kill("b");
        let ((), _, burials) = world.decide(lease::clean_up);
        let mut buried: Vec<(&str, bool)> =
            burials.iter().map(|one| (one.owner.as_str(), one.held)).collect();
        buried.sort_unstable();
        assert_eq!(buried, [("worker:a", true), ("worker:b", false)]);
        assert!(world.holds(&next) && world.board.lease(other.id).is_some());
    }
}

mod modes {
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
        let outcome = world.decide(|draft| lease::upgrade(draft, reader.id, None, None)).0.unwrap();
        assert!(matches!(outcome, Outcome::Held(_)));
        assert_eq!(world.board.lease(reader.id), Some(&reader));
        let Outcome::Waiting(waiting) = world.upgrade(&reader) else { panic!("it waits") };
        world.decide(|draft| lease::give_up(draft, waiting.ticket.id));
        assert_eq!(world.board.lease(reader.id), Some(&reader));
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
        let again = world.decide(|draft| lease::attend_upgrade(draft, waiting.ticket.id, reader.id, None)).0;
        assert!(granted(again).token > reader.token);
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
        assert_eq!(world.board.tickets().count(), 0);
    }

    /// Invariant 8. Requirement 160.
    #[test]
    fn two_upgraders_would_deadlock_and_the_second_is_told_so() {
        let mut world = World::new();
        let one = world.hold(ask("a").shared("db"));
        let two = world.hold(ask("b").shared("db"));
        assert!(matches!(world.upgrade(&one), Outcome::Waiting(_)));
        let Outcome::Deadlock(links) = world.upgrade(&two) else { panic!("it is a deadlock") };
        assert_eq!(links.len(), 2);
        assert!(world.board.lease(two.id).is_some());
        world.release(&two);
        assert_eq!(world.board.lease(one.id).unwrap().claim.resources[0].mode, Mode::Exclusive);
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
        let writer = world.hold(ask("a").name("db"));
        let reader = world.queue(&ask("b").shared("db"));
        let later = world.queue(&ask("c").name("db"));
        let weaker = world.decide(|draft| lease::downgrade(draft, writer.id, Some(writer.token))).0.unwrap();
        assert_eq!(weaker.token, writer.token);
        assert!(world.holds(&reader) && world.waits(&later));
    }

    #[test]
    fn coming_for_a_lease_to_change_it_is_picking_it_up() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let away = world.queue(&ask("b").name("db").for_process(20));
        world.decide(|draft| lease::walk_away(draft, away.id));
        world.release(&held);
        assert!(world.decide(|draft| lease::downgrade(draft, away.id, None)).0.is_ok());
        world.pass(101);
        world.refused(ask("c").name("db"));
    }
}

mod circles {
    use super::*;

    /// Invariant 8. Requirement 160.
    #[test]
    fn a_circle_of_two_is_refused_and_named() {
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
    fn a_circle_of_three_is_refused_and_named() {
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
    fn a_chain_is_not_a_circle() {
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
    fn holders_of_slots_make_a_circle_only_when_all_of_them_are_stuck() {
        let mut world = World::new();
        world.hold(ask("a").slots("gpu", 2));
        let free = world.hold(ask("b").slots("gpu", 2));
        world.hold(ask("c").name("x"));
        world.queue(&ask("a").name("x"));
        let waiting = world.queue(&ask("c").slots("gpu", 2));
        world.decide(|draft| lease::give_up(draft, waiting.id));
        world.queue(&ask("b").name("x"));
        assert!(world.board.lease(free.id).is_some());
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
    fn an_urgent_wait_that_closes_a_circle_behind_it_is_refused() {
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
    fn a_command_waits_in_vain_for_what_the_lease_above_it_holds() {
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
    fn paths_make_circles_and_name_a_path() {
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
    fn a_dead_waiter_closes_no_circle() {
        let mut world = World::new();
        world.hold(ask("a").name("x").of_process(10));
        world.hold(ask("b").name("y"));
        world.queue(&ask("a").name("y"));
        world.kill("a");
        world.queue(&ask("b").name("x"));
    }
}

mod watching {
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
        assert_eq!(world.decide(|draft| lease::walk_away(draft, away.id)).1, [rung("c")]);
        let Outcome::Waiting(waiting) = world.attend(&behind) else { panic!("it waits") };
        assert_eq!(waiting.jams[0].leases[0].record.id, held.id);
    }

    #[test]
    fn whoever_is_put_before_others_has_them_look_again() {
        let mut world = World::new();
        world.hold(ask("a").name("db"));
        world.queue(&ask("b").name("db"));
        let (_, _, effects) = world.queue_and_watch(&ask("c").name("db").priority(1));
        assert_eq!(effects, [rung("b")]);
    }

    #[test]
    fn a_grant_by_priority_has_those_look_again_who_wait_for_more() {
        let mut world = World::new();
        world.hold(ask("a").name("s"));
        world.queue(&ask("b").name("r").name("s"));
        let (lease, effects) = world.hold_and_tell(ask("c").name("r").priority(1));
        assert_eq!(effects, [rung("b")]);
        assert_eq!(world.release(&lease), []);
    }

    #[test]
    fn a_lease_that_will_end_sooner_has_those_look_again_who_watch_it() {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db").by_time(1_000));
        world.queue(&ask("b").name("db"));
        let (_, effects, _) = world.decide(|draft| lease::renew(draft, held.id, None, Some(seconds(10))));
        assert_eq!(effects, [rung("b")]);
        let (_, effects, _) = world.decide(|draft| lease::renew(draft, held.id, None, Some(seconds(20))));
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
        assert_eq!(world.release(&lent), [rung("a")]);
    }
}
