//! Rules of leases: who may end or shorten a lease.

use lockkeeper_core::id::LeaseId;

use super::*;

/// Invariant 2.
#[test]
fn the_owner_and_the_current_token_may_end_a_lease_and_a_refusal_says_what_was_wrong() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let mut permit = |id, caller: Caller| world.decide(|overlay| lease::permit(overlay, id, &caller)).0;
    let (id, current) = (held.id, held.token);
    assert_eq!(permit(id, Caller::from(Some(current))), Ok(()));
    assert_eq!(permit(id, named("a")), Ok(()));
    let not_the_owner = Err(NotCurrent::NotTheOwner { id, owner: held.claim.owner.clone() });
    assert_eq!(permit(id, named("b")), not_the_owner);
    assert_eq!(permit(id, Caller::default()), not_the_owner);
    let given = Token(current.0 + 7);
    let old = Caller { token: Some(given), ..named("a") };
    assert_eq!(permit(id, old), Err(NotCurrent::Token { id, given, current }));
    let other = LeaseId(id.0 + 1);
    assert_eq!(permit(other, named("a")), Err(NotCurrent::Unknown(other)));
}

#[test]
fn anybody_may_renew_but_only_a_caller_that_may_end_the_lease_may_shorten_it() {
    let mut world = World::new();
    let timed = world.hold(ask("a").name("db").by_time(100)).id;
    let endless = world.hold(ask("a").name("x")).id;
    world.pass(40);
    let mut permit = |id, caller: Caller, ttl: Option<u64>| {
        let ttl = ttl.map(seconds);
        world.decide(|overlay| lease::permit_renewal(overlay, id, &caller, ttl)).0.is_ok()
    };
    for (id, ttl, is_shorter) in [
        (timed, Some(61), false),
        (timed, Some(60), false),
        (timed, Some(59), true),
        (timed, None, false),
        (endless, Some(1_000), true),
        (endless, None, false),
    ] {
        assert!(permit(id, named("a"), ttl), "{id} {ttl:?}");
        assert_eq!(permit(id, named("b"), ttl), !is_shorter, "{id} {ttl:?}");
    }
}

/// Invariant 7. The owner of a ticket takes it out of the line, and the next one behind it is served.
#[test]
fn only_the_owner_takes_a_ticket_out_of_the_line_unless_a_person_decides() {
    let mut world = World::new();
    let held = world.hold(ask("a").name("db"));
    let first = world.queue(&ask("b").name("db"));
    let second = world.queue(&ask("c").name("db"));
    let third = world.queue(&ask("d").name("db"));
    let withdraw = |world: &mut World, id, caller: Caller| {
        world.decide(|overlay| lease::withdraw(overlay, id, &caller)).0.map(|ticket| ticket.id)
    };
    let (id, owner) = (first.id, first.claim.owner.clone());
    assert_eq!(withdraw(&mut world, id, named("c")), Err(NotCurrent::NotTheWaiter { id, owner }));
    assert!(world.waits(&first));
    assert_eq!(withdraw(&mut world, id, named("b")), Ok(id));
    assert!(!world.waits(&first));
    assert_eq!(withdraw(&mut world, id, named("b")), Err(NotCurrent::NotInLine(id)));
    let (removed, effects, _) = world.decide(|overlay| lease::remove_ticket(overlay, second.id));
    assert_eq!(removed.map(|ticket| ticket.id), Some(second.id));
    assert!(!effects.is_empty(), "the process that waits with it is woken");
    assert!(world.decide(|overlay| lease::remove_ticket(overlay, second.id)).0.is_none());
    world.release(&held);
    assert!(world.holds(&third));
}
