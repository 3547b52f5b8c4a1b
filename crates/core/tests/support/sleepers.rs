//! Waiters as an engine runs them: each sleeps until it is woken, until a process that it watches dies, or until a
//! time is up. There is no timer that would save a waiter that nobody wakes.

use std::collections::BTreeMap;

use lockkeeper_core::id::{LeaseId, WakerId};
use lockkeeper_core::lease::{self, Outcome, WaitTerms, Waiting};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Ticket};
use lockkeeper_core::records::Effect;
use lockkeeper_core::time::Moment;
use lockkeeper_core::waiting::{Asker, Watched, blockers, watch_list};

use crate::world::World;

/// All processes that sleep on a ticket.
#[derive(Clone, Debug, Default)]
pub struct Sleepers {
    pub asleep: BTreeMap<LeaseId, Sleeper>,
}

/// A process that sleeps on a ticket.
#[derive(Clone, Debug)]
pub struct Sleeper {
    pub ticket: Ticket,
    pub watched: Vec<Watched>,
    /// When the time of the first watched record may be up.
    pub until: Option<Moment>,
    pub woken: bool,
}

impl Sleepers {
    /// A waiter has checked its ticket, and goes to sleep.
    pub fn sleep(&mut self, world: &World, waiting: Waiting) {
        let watched = watch_list(&waiting.blockers);
        assert!(!watched.is_empty(), "a waiter with nothing to watch: {:?}", waiting.ticket);
        let until = first_end(world, &watched);
        let sleeper = Sleeper { ticket: waiting.ticket, watched, until, woken: false };
        self.asleep.insert(sleeper.ticket.id, sleeper);
    }

    /// A waiter is gone, or sleeps on another ticket.
    pub fn forget(&mut self, id: LeaseId) {
        self.asleep.remove(&id);
    }

    /// Carries out the effects of a decision, and wakes the waiters that watch a process that died or a time that is up.
    pub fn notice(&mut self, world: &World, effects: &[Effect]) {
        let woken: Vec<WakerId> = effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Wake(waker) => Some(*waker),
                Effect::RemoveWaker(_) => None,
            })
            .collect();
        let process_of = |watched: &Watched| watched.claim().proof.process();
        self.asleep.retain(|_, sleeper| {
            sleeper.ticket.claim.proof.process().is_none_or(|process| !world.dead.contains(&process.pid))
        });
        for sleeper in self.asleep.values_mut() {
            let is_over = |watched: &Watched| {
                process_of(watched).is_some_and(|process| world.dead.contains(&process.pid))
            };
            let is_due = sleeper.ticket.lapses_at().is_some()
                && world.now.since(sleeper.ticket.seen_at) > sleeper.ticket.stays.get() / 3;
            sleeper.woken |= sleeper.ticket.waker.is_some_and(|waker| woken.contains(&waker))
                || sleeper.watched.iter().any(is_over)
                || sleeper.until.is_some_and(|until| until < world.now)
                || is_due;
        }
    }

    pub fn woken(&self) -> Vec<LeaseId> {
        self.asleep.iter().filter(|(_, sleeper)| sleeper.woken).map(|(id, _)| *id).collect()
    }

    /// One woken waiter checks its ticket.
    pub fn check_ticket(&mut self, world: &mut World, id: LeaseId) {
        let Some(sleeper) = self.asleep.remove(&id) else { return };
        let terms = WaitTerms { waker: sleeper.ticket.waker, stays: sleeper.ticket.stays };
        let (outcome, effects, _) = world.decide(|overlay| match sleeper.ticket.upgrades {
            None => lease::check_ticket(overlay, id, Some(terms)),
            Some(lease) => lease::check_upgrade(overlay, id, lease, Some(terms)),
        });
        if let Outcome::Waiting(waiting) = outcome {
            self.sleep(world, waiting);
        }
        self.notice(world, &effects);
    }

    /// Invariants 4 and 7: no waiter sleeps on although it may be granted. True whenever no waiter is woken.
    pub fn check(&self, world: &World) {
        for (id, sleeper) in &self.asleep {
            let mut world = world.clone();
            let Some(ticket) = world.records.ticket(*id).cloned() else {
                panic!("{id} sleeps on a ticket that is gone");
            };
            let asker = Asker { claim: &ticket.claim, rank: ticket.rank, whole_line: false };
            let (in_the_way, _, _) = world.clone().decide(|overlay| blockers(overlay, asker));
            assert!(
                !in_the_way.is_empty(),
                "nothing is in the way of {id}, but it sleeps\n{}",
                describe(&world)
            );
            // A death that nobody awake has to notice changes nothing yet.
            let (in_the_way, _, _) = world.decide(|overlay| blockers(&mut overlay.before(), asker));
            let watched = watch_list(&in_the_way);
            for now in &watched {
                let seen = sleeper.watched.iter().any(|then| then.id() == now.id());
                assert!(seen, "{id} does not watch {}\n{}", now.id(), describe(&world));
            }
            let in_time = match (first_end(&world, &watched), sleeper.until) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(end), Some(until)) => until <= end,
            };
            assert!(in_time, "{id} sleeps longer than those before it last\n{}", describe(&world));
        }
    }
}

/// When time may end the first of them; a strict holder that is there to be seen does not end by time.
fn first_end(world: &World, watched: &[Watched]) -> Option<Moment> {
    let may_end = |watched: &&Watched| match watched {
        Watched::Ticket(_) => true,
        Watched::Lease(lease) => {
            let seen = lease.claim.contract == Contract::Strict && lease.claim.proof.process().is_some();
            lease.pickup_by.is_some() || !seen
        }
    };
    watched.iter().filter(may_end).filter_map(Watched::ends_at).filter(|end| *end >= world.now).min()
}

/// The world on a few lines, for a person who has to find out why a check failed.
pub fn describe(world: &World) -> String {
    let describe = |claim: &Claim| {
        let resources: Vec<String> =
            claim.resources.iter().map(|resource| format!("{} {}", resource.mode, resource.target)).collect();
        let pid = claim.proof.process().map_or(0, |process| process.pid);
        let state = if world.dead.contains(&pid) { "dead" } else { "live" };
        format!("{} {state} {pid}: {}", claim.owner, resources.join(", "))
    };
    let leases = world.records.leases().map(|lease| format!("{} {}", lease.id, describe(&lease.claim)));
    let tickets = world.records.tickets().map(|ticket| {
        let away = if ticket.waker.is_none() { " away" } else { "" };
        let (ticket, rank) =
            (format!("{}{away} {}", ticket.id.as_ticket(), describe(&ticket.claim)), ticket.rank);
        format!("{ticket} at {}", rank.at)
    });
    leases.chain(tickets).collect::<Vec<String>>().join("\n")
}
