//! Holders that die in the middle of a decision: whatever the decision saw, nothing is left free while somebody waits.

#[path = "support/world.rs"]
mod world;

use std::convert::Infallible;
use std::time::Duration;

use lockkeeper_core::lease::{self, AcquireRequest, Outcome, WaitTerms};
use lockkeeper_core::overlay::Overlay;
use lockkeeper_core::record::Priority;
use lockkeeper_core::records::{Effect, Scan};
use lockkeeper_core::resource::{Key, KeyRange, Mode, Resource};
use lockkeeper_core::waiting::{Asker, blockers};

use crate::world::{World, claim, name, resident, seconds, waker};

/// More than the number of times that any decision here probes one holder.
const LOOKS: usize = 40;

fn request(pid: u32, resources: Vec<Resource>, waits: bool) -> AcquireRequest {
    let wait = waits.then(|| WaitTerms { waker: Some(waker(pid)), stays: seconds(60) });
    let claim = claim(&pid.to_string(), resident(pid), resources);
    AcquireRequest { claim, priority: Priority::default(), under: Vec::new(), wait, join: false }
}

fn db() -> Vec<Resource> {
    vec![name("db", Mode::Exclusive)]
}

/// Process 1 holds `db` and `index`; 2 waits for `db`, 3 for both, 4 for `index`.
fn line() -> World {
    let index = || vec![name("index", Mode::Exclusive)];
    let both = || [db(), index()].concat();
    let mut world = World::new();
    for (pid, resources) in [(1, both()), (2, db()), (3, both()), (4, index())] {
        world.now = world.now.after(Duration::from_secs(1));
        let (outcome, ..) = world.decide(|overlay| lease::acquire(overlay, &request(pid, resources, true)));
        assert_eq!(matches!(outcome, Outcome::Granted(_)), pid == 1);
    }
    world
}

/// Runs a decision several times. Process 1 dies after each possible number of probes. Checks that nothing stays free.
fn dies_at_every_look(decision: impl Fn(&mut Overlay<'_, Infallible>) -> Result<(), Infallible>) {
    for looks in 0..LOOKS {
        let mut world = line();
        world.dying = Some((1, looks));
        let ((), effects, _) = world.decide(&decision);
        world.dying = None;
        let reaped = world.records.leases().all(|lease| lease.claim.owner.as_str() != "worker:1");
        if !reaped {
            continue;
        }
        let tickets: Vec<_> = world.records.tickets().cloned().collect();
        for ticket in tickets {
            let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
            let (in_the_way, ..) = world.clone().decide(|overlay| blockers(overlay, asker));
            assert!(!in_the_way.is_empty(), "death after {looks} looks: free, but {ticket:?} waits");
        }
        let holds = |pid: u32| {
            let owner = format!("worker:{pid}");
            world.records.leases().any(|lease| lease.claim.owner.as_str() == owner)
        };
        assert!(holds(2), "death after {looks} looks: 2 is next");
        let woken = effects.contains(&Effect::Wake(waker(2)));
        assert!(woken, "death after {looks} looks: 2 was not woken");
    }
}

/// Invariant 4.
#[test]
fn a_holder_that_dies_while_a_waiter_checks_its_ticket_is_succeeded() {
    for id in [2, 3, 4] {
        dies_at_every_look(|overlay| {
            let owner = format!("worker:{id}").parse().unwrap();
            let ticket =
                overlay.next_ticket(&KeyRange::of(Key::of_owner(&owner)), Scan::Forward(None))?.unwrap();
            let terms = WaitTerms { waker: Some(waker(id)), stays: seconds(60) };
            lease::check_ticket(overlay, ticket.id, Some(terms)).map(|_| ())
        });
    }
}

/// Invariant 4.
#[test]
fn a_holder_that_dies_while_a_newcomer_asks_is_succeeded() {
    for waits in [false, true] {
        dies_at_every_look(|overlay| lease::acquire(overlay, &request(9, db(), waits)).map(|_| ()));
    }
}

/// Invariant 4.
#[test]
fn a_holder_that_dies_during_a_clean_up_is_succeeded() {
    dies_at_every_look(lease::clean_up);
}

/// One decision asks about a process once: it lives, or it is dead, for all of its leases.
#[test]
fn a_process_lives_or_is_dead_for_all_of_its_leases() {
    for looks in [0, 1] {
        let mut world = World::new();
        for text in ["db", "index"] {
            let wanted = request(1, vec![name(text, Mode::Exclusive)], false);
            let (outcome, ..) = world.decide(|overlay| lease::acquire(overlay, &wanted));
            assert!(matches!(outcome, Outcome::Granted(_)));
        }
        world.dying = Some((1, looks));
        let (dead, ..) = world.decide(|overlay| {
            let (leases, _) = overlay.all()?;
            Ok(leases.iter().map(|lease| overlay.judge_lease(lease).is_free()).collect::<Vec<_>>())
        });
        assert_eq!(dead, [looks == 0; 2], "death after {looks} looks");
    }
}
