//! An exhaustive check of the takeover protocol: every interleaving of its steps, with kills at every step.
//!
//! The model has one name, the files that it may lead to, and the guard. Each process is a list of steps, each as
//! small as one system call of the real thing. A stopped process is one whose next step comes late, so that stops
//! are part of every interleaving. A record is stale once its owner is dead; the first one is stale from the start.

mod explorer;
mod steps;

use explorer::{Limits, Outcome, explore};
use steps::Kind::{Breaker, Creator, Ours, OursBlind, OursInTwo, RenamesOver, Revives};

const NO_KILLS: Limits = Limits { kills: 0 };
const THREE_KILLS: Limits = Limits { kills: 3 };

/// Requirements 63, 200. From a stale and from a free lock.
#[test]
fn four_of_ours_never_hold_at_once_and_never_lose_the_lock_for_ever() {
    for stale in [true, false] {
        let outcome = explore(&[Ours, Ours, Ours, Ours], stale, THREE_KILLS);
        outcome.assert_sound(2_000);
    }
}

/// Requirements 60, 200. A plain creator, which may die between creating and writing, is excluded exactly.
#[test]
fn ours_and_a_plain_creator_never_hold_at_once() {
    for stale in [true, false] {
        explore(&[Ours, Ours, Ours, Creator], stale, THREE_KILLS).assert_sound(2_000);
        explore(&[Ours, Ours, Creator, Creator], stale, THREE_KILLS).assert_sound(2_000);
    }
}

/// Requirements 60, 200. The same where two names cannot be exchanged.
#[test]
fn without_exchange_ours_and_a_plain_creator_never_hold_at_once() {
    for stale in [true, false] {
        explore(&[OursInTwo, OursInTwo, Creator, Creator], stale, THREE_KILLS).assert_sound(2_000);
    }
}

/// Requirement 202. The holder of the stale record revives and renames a fresh one over it: that is never lost.
#[test]
fn a_record_that_its_holder_revived_is_put_back() {
    explore(&[Ours, Ours, Ours, Revives], true, NO_KILLS).assert_no_fresh_record_lost(1_000);
}

/// The explorer has to find what is known to be broken.
#[test]
fn the_documents_own_procedures_are_found_to_be_broken() {
    for kinds in [&[Breaker, Breaker][..], &[RenamesOver, RenamesOver], &[Ours, Breaker]] {
        let outcome: Outcome = explore(kinds, true, NO_KILLS);
        assert!(outcome.two_holders.is_some(), "{kinds:?} let nobody in twice");
    }
    let blind = explore(&[OursBlind, Revives], true, NO_KILLS);
    assert!(blind.fresh_record_lost.is_some(), "not looking at what came out does no harm");
}
