//! Errands: in a crowd one process decides for the others.
//!
//! Where many take turns, each turn is another process's, which was asleep for as long as all the others took. It finds
//! its memory out of the caches, and that inside the gate, where everybody waits for it: deciding takes it several times
//! as long as somebody who has just decided. So one of those who sleep in line sits down at the store's desk, or
//! a thread of it does that stays there, and whoever wants to let go or to line up leaves an errand there.
//!
//! **Once.** The clerk decides inside the gate, and not after the errand's time. Whoever goes without an answer for that
//! time goes into the gate itself: what the clerk did is in the store by then, and what it did not will never be done. A
//! lease that is gone then was released. A claim is found by its owner, who is new; so only requests of new owners are
//! given away.
//!
//! **Blind for a moment.** Who left a request is rung when it is granted, and is told nothing before. It looks by itself
//! when the errand's time is over, and watches those before it from then on.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper_core::draft::Draft;
use lockkeeper_core::lease::{self, Grant, NotCurrent, Outcome, Request};
use lockkeeper_core::liveness::Voucher;
use lockkeeper_core::record::Lease;

use super::Engine;
use super::seen::Seen;
use super::waiting::is_any_ready;
use lockkeeper_platform::desk::{Answer, GOOD_FOR, Left, Message, Seat};
use lockkeeper_platform::{clock, poll};
use lockkeeper_store::encoding::errand::{Errand, errand_from_bytes, release_to_bytes, request_to_bytes};
use lockkeeper_store::{Bell, Granted, StoreError};

/// How long a clerk looks out for the next errand before it falls asleep: waking it takes longer than an errand does.
const ALERT: Duration = Duration::from_micros(60);
/// After so long a clerk looks what time it is for itself.
const AT_ONCE: Duration = Duration::from_millis(5);

impl Engine {
    /// As [`Engine::acquire`], for an owner in whose name nobody has asked before, and who alone sleeps on `bell`.
    pub fn acquire_as_new(&self, request: &Request, bell: &dyn Bell) -> Result<Outcome, StoreError> {
        let asked_at = clock::now();
        let desk = self.store.desk().filter(|_| is_plain(request));
        let left = desk.zip(request_to_bytes(request)).map(|(desk, errand)| desk.leave(&errand));
        match left {
            None | Some(Ok(Left::Nowhere) | Err(_)) => return self.acquire(request),
            Some(Ok(Left::Doubtful)) => return self.acquire_once(request),
            Some(Ok(Left::WithClerk)) => {}
        }
        // Before its time is over it may still be done: no other ring says that it was.
        let until = Instant::now() + GOOD_FOR;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match poll::wait(&[bell.as_fd()], Some(left)) {
                Ok(ready) if !ready.any() => break,
                Ok(_) => {}
                Err(_) => {
                    thread::sleep(left);
                    break;
                }
            }
            // What was granted earlier was asked for earlier: its ring is late.
            if let Some(granted) = bell.hear().filter(|granted| granted.at > asked_at) {
                let lease = granted.lease(Arc::new(request.claim.clone()));
                return Ok(Outcome::Granted(Grant { lease, joined: false }));
            }
        }
        self.acquire_once(request)
    }

    /// As [`Engine::acquire`], where that may have been done already.
    fn acquire_once(&self, request: &Request) -> Result<Outcome, StoreError> {
        self.decide(|draft| lease::acquire_once(draft, request)).map(|(outcome, _)| outcome)
    }

    /// Ends a lease that the caller holds.
    pub fn release_held(&self, held: &Lease) -> Result<Result<Lease, NotCurrent>, StoreError> {
        let answer = match self.store.desk() {
            // What fails here is done again below, whatever became of it.
            Some(desk) => desk.send(&release_to_bytes(held)).unwrap_or(Answer::None),
            None => Answer::Yourself,
        };
        match answer {
            Answer::Done => Ok(Ok(held.clone())),
            Answer::Yourself => self.release_here(held),
            Answer::None => Ok(match self.release_here(held)? {
                Err(NotCurrent::Unknown(_)) => Ok(held.clone()),
                released => released,
            }),
        }
    }

    /// Sits down at the desk, if there is one and nobody sits there.
    pub fn sit_down(&self) -> Option<Seat> {
        self.store.desk()?.sit().ok()?
    }

    /// Does the errands that were left, and those that are left soon, unless something else calls.
    pub(super) fn do_errands(&self, seat: &Seat, is_called: impl Fn() -> bool) {
        let begun = Instant::now();
        let mut last = begun;
        while last.elapsed() < ALERT && begun.elapsed() < AT_ONCE {
            let errands: Vec<_> = errands_at(seat).collect();
            if !errands.is_empty() {
                self.do_together(seat, &errands);
                last = Instant::now();
            }
            if is_called() {
                return;
            }
        }
    }

    /// Does errands until `end` is ready, or `stays` has no time left for more, and leaves the desk then.
    pub fn attend_desk(&self, seat: Seat, end: BorrowedFd<'_>, mut stays: impl FnMut() -> Option<Duration>) {
        while let Some(span) = stays() {
            match poll::wait(&[end, seat.as_fd()], Some(span)) {
                Ok(ready) if ready.contains(0) => break,
                Ok(ready) if ready.contains(1) => self.do_errands(&seat, || is_any_ready(&[end])),
                // Nobody came.
                Ok(_) => {}
                Err(_) => break,
            }
        }
        self.stand_up(seat);
    }

    /// Leaves the desk when all that was left there is done.
    pub(super) fn stand_up(&self, seat: Seat) {
        seat.close();
        loop {
            let errands: Vec<_> = errands_at(&seat).collect();
            if errands.is_empty() {
                return drop(seat);
            }
            self.do_together(&seat, &errands);
        }
    }

    /// Does errands in one decision.
    fn do_together(&self, seat: &Seat, errands: &[(Message, Errand)]) {
        let (mut done, mut told) = (Vec::new(), Vec::new());
        let decided = self.store.transact(&mut |records| {
            done.clear();
            told.clear();
            for (message, errand) in errands {
                if records.now() > message.until() {
                    done.push(Done::TooLate);
                    continue;
                }
                let mut view = Seen::new(records, &self.senses);
                let mut draft = Draft::new(&mut view);
                let outcome = do_errand(&mut draft, errand)?;
                if !matches!(outcome, Done::Left) {
                    let (changes, effects, _) = draft.finish();
                    let granted = self.announce(&changes);
                    told.push((effects, granted));
                    for change in changes {
                        records.apply(change)?;
                    }
                }
                done.push(outcome);
            }
            Ok(())
        });
        if decided.is_err() {
            // Each sees for itself what is wrong.
            done = errands.iter().map(|_| Done::Left).collect();
            told.clear();
        }
        for (effects, granted) in told {
            self.act(effects, &granted);
        }
        for ((message, errand), done) in errands.iter().zip(done) {
            self.tell(seat, message, errand, done);
        }
    }

    fn tell(&self, seat: &Seat, message: &Message, errand: &Errand, done: Done) {
        match (errand, done) {
            (Errand::Release { .. }, Done::Left) => seat.answer(message, Answer::Yourself),
            (Errand::Release { .. }, Done::Did | Done::Granted(_)) => seat.answer(message, Answer::Done),
            (Errand::Acquire(request), Done::Granted(granted)) => {
                if let Some(bell) = request.wait.and_then(|terms| terms.bell) {
                    self.store.hand_over(bell, granted);
                }
            }
            // Who lines up is rung in its turn, and looks for itself when the errand's time is over.
            (Errand::Acquire(_), Done::Did | Done::Left) | (_, Done::TooLate) => {}
        }
    }
}

/// What was left at the desk and is an errand.
fn errands_at(seat: &Seat) -> impl Iterator<Item = (Message, Errand)> {
    let messages = seat.errands().unwrap_or_default().into_iter();
    messages.filter_map(|message| errand_from_bytes(message.body()).map(|errand| (message, errand)))
}

/// What became of an errand.
enum Done {
    /// It was done.
    Did,
    /// It was done, and the lease is held already.
    Granted(Granted),
    /// It is not as simple as that, and nothing was done.
    Left,
    /// Its sender did not wait.
    TooLate,
}

/// Does one errand as its sender would.
fn do_errand(draft: &mut Draft<'_, Seen<'_>>, errand: &Errand) -> Result<Done, StoreError> {
    Ok(match errand {
        Errand::Release { id, token, name } => {
            // To hand it on, those are looked at who hold the same: of a whole name that is this one.
            if let Some(name) = name {
                draft.leases(&name.reach())?;
            }
            match lease::release(draft, *id, Some(*token))? {
                Ok(_) => Done::Did,
                Err(_) => Done::Left,
            }
        }
        Errand::Acquire(request) => match lease::acquire(draft, request)? {
            Outcome::Granted(Grant { lease, .. }) => Done::Granted(Granted::of(&lease)),
            Outcome::Waiting(_) => Done::Did,
            Outcome::Held(_) | Outcome::Deadlock(_) | Outcome::Gone => Done::Left,
        },
    })
}

/// Whether a lease needs nothing written when it is taken up: its holder stays with it, and no time is counted.
fn is_plain(request: &Request) -> bool {
    request.claim.ttl.is_none() && matches!(request.claim.proof.voucher, Voucher::KernelLock { .. })
}
