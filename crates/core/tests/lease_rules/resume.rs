//! Rules of leases: who may continue with the ticket of an earlier command.

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::Resumer;
use lockkeeper_core::liveness::{Origin, ProcessRef};

use super::*;

fn process(pid: u32) -> ProcessRef {
    ProcessRef { pid, started: 1 }
}

/// A command of this process that names no owner.
fn command_of(pid: u32) -> Resumer {
    let origin = Origin { host: "here".to_owned(), boot: "now".to_owned(), pid_namespace: 1, session: None };
    let processes = Some((origin.clone(), vec![process(pid)]));
    Resumer { caller: Caller { processes, ..Caller::default() }, made_for: Some((origin, process(pid))) }
}

fn find(world: &mut World, resumer: &Resumer) -> Vec<LeaseId> {
    let name = "mine".parse().unwrap();
    let found = world.decide(|overlay| lease::find_tickets(overlay, &name, &resumer.caller)).0;
    found.into_iter().map(|(id, _)| id).collect()
}

fn resume(world: &mut World, id: LeaseId, resumer: &Resumer) -> Outcome {
    let terms = Some(WaitTerms { waker: Some(waker(90)), stays: seconds(100) });
    world.decide(|overlay| lease::resume(overlay, id, resumer, terms)).0
}

#[test]
fn nobody_else_gets_the_lease_by_the_name_of_its_ticket() {
    let mut world = World::new();
    let held = world.hold(ask("b").name("db").for_process(20).ticket_name("mine"));
    assert_eq!(find(&mut world, &command_of(21)), []);
    assert!(matches!(resume(&mut world, held.id, &command_of(21)), Outcome::Gone));
    assert_eq!(find(&mut world, &command_of(20)), [held.id], "it is its own");
    assert_eq!(granted(resume(&mut world, held.id, &command_of(20))), held);
    let named = Resumer { caller: named("b"), made_for: None };
    assert_eq!(granted(resume(&mut world, held.id, &named)), held);
}

#[test]
fn nobody_else_waits_with_a_ticket_that_a_process_waits_with() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let ticket = world.queue(&ask("b").name("db").for_process(20).ticket_name("mine"));
    for other in [20, 21] {
        assert_eq!(find(&mut world, &command_of(other)), []);
        assert!(matches!(resume(&mut world, ticket.id, &command_of(other)), Outcome::Gone));
    }
    world.decide(|overlay| lease::detach(overlay, ticket.id));
    assert!(matches!(resume(&mut world, ticket.id, &command_of(21)), Outcome::Waiting(_)));
    assert!(matches!(resume(&mut world, ticket.id, &command_of(22)), Outcome::Gone), "the first one waits");
    assert_eq!(world.release(&held).len(), 1);
    assert!(world.holds(&ticket));
}

#[test]
fn a_lease_is_tied_to_the_process_that_continues_the_wait() {
    for granted_meanwhile in [false, true] {
        let mut world = World::new();
        let held = world.hold(ask("a").name("db"));
        let ticket = world.queue(&ask("b").name("db").for_process(20).ticket_name("mine"));
        world.decide(|overlay| lease::detach(overlay, ticket.id));
        if granted_meanwhile {
            world.release(&held);
            let lease = granted(resume(&mut world, ticket.id, &command_of(21)));
            assert_eq!((lease.claim.proof.process(), lease.pickup_by), (Some(process(21)), None));
        } else {
            assert!(matches!(resume(&mut world, ticket.id, &command_of(21)), Outcome::Waiting(_)));
            world.release(&held);
        }
        world.dead.insert(20);
        world.refused(ask("c").name("db"));
        world.dead.insert(21);
        world.hold(ask("c").name("db"));
    }
}
