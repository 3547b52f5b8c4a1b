//! A decision of the engine may run more than once: only the last run counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper_core::lease::{AcquireRequest, Outcome, WaitTerms};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource};
use lockkeeper_core::time::Ttl;
use tempfile::TempDir;

use super::sample::{name, path};
use super::twice::Runs;
use super::{Harness, everything};
use lockkeeper_engine::{Engine, MachineProbe};
use lockkeeper_platform::{origin, process};
use lockkeeper_store::LeaseStore;

/// An engine on a store. This process is the holder of all leases.
struct World {
    engine: Engine,
    _folder: TempDir,
}

impl World {
    fn over(store: Box<dyn LeaseStore>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let probe = MachineProbe::new(folder.path(), origin::origin().unwrap()).unwrap();
        Self { engine: Engine::new(store.into(), probe), _folder: folder }
    }

    fn request(&self, owner: &str, wants: &[(&str, Mode)], waits: bool) -> AcquireRequest {
        let target = |text: &str| if text.contains('*') { path(text) } else { name(text) };
        let resource = |(text, mode): &(&str, Mode)| Resource { target: target(text), mode: *mode };
        let claim = Claim {
            owner: format!("worker:{owner}").parse().unwrap(),
            resources: wants.iter().map(resource).collect(),
            proof: Proof {
                origin: self.engine.probe().origin().clone(),
                voucher: Voucher::Process(process::current().unwrap()),
            },
            contract: Contract::Strict,
            ttl: None,
            reason: None,
            ticket: None,
            agent: None,
        };
        let stays = Ttl::new(Duration::from_secs(600)).unwrap();
        let wait = waits.then_some(WaitTerms { waker: None, stays });
        AcquireRequest { claim, priority: Priority::default(), under: Vec::new(), wait, join: false }
    }

    fn acquire(&self, owner: &str, wants: &[(&str, Mode)], waits: bool) -> String {
        match self.engine.acquire(&self.request(owner, wants, waits)).unwrap() {
            Outcome::Granted(grant) => format!("granted, joined {}", grant.joined),
            Outcome::Waiting(waiting) => format!("waiting for {}", waiting.blockers.len()),
            Outcome::Held(blockers) => format!("held {}", blockers.len()),
            Outcome::Deadlock(links) => format!("deadlock of {}", links.len()),
            Outcome::Gone => "gone".to_owned(),
        }
    }

    /// The newest lease of an owner, and what is done with it.
    fn with_lease<T>(
        &self,
        owner: &str,
        act: impl FnOnce(&Engine, lockkeeper_core::record::Lease) -> T,
    ) -> T {
        let owner = format!("worker:{owner}").parse().unwrap();
        let lease = self.engine.leases_of(&owner).unwrap().pop().expect("the owner has a lease");
        act(&self.engine, lease)
    }

    /// All leases and tickets, without numbers.
    fn told(&self) -> Vec<String> {
        let listing = self.engine.listing().unwrap();
        let resources = |claim: &Claim| {
            let all = claim.resources.iter().map(|resource| format!("{} {}", resource.target, resource.mode));
            all.collect::<Vec<_>>().join(", ")
        };
        let held = listing
            .holders
            .iter()
            .map(|holder| format!("{} holds {}", holder.lease.claim.owner, resources(&holder.lease.claim)));
        let waiting = listing.waiters.iter().map(|waiter| {
            let claim = &waiter.ticket.claim;
            format!("{} waits for {}, place {}", claim.owner, resources(claim), waiter.position)
        });
        held.chain(waiting).collect()
    }
}

/// A history with every kind of decision. Returns the records after each step.
fn history(world: &World) -> Vec<Vec<String>> {
    use Mode::{Exclusive, Shared};
    let mut told = Vec::new();
    let mut note = |what: String| told.push([vec![what], world.told()].concat());
    note(world.acquire("a", &[("db", Exclusive), ("src/**", Exclusive)], false));
    note(world.acquire("b", &[("db", Exclusive)], false));
    note(world.acquire("b", &[("docs", Shared)], false));
    note(world.acquire("c", &[("docs", Shared)], false));
    note(world.acquire("b", &[("src/*.rs", Exclusive)], true));
    note(world.acquire("d", &[("db", Shared)], true));
    note(world.acquire("e", &[("db", Shared)], true));
    note(world.acquire("a", &[("docs", Exclusive)], true));
    note(format!(
        "{}",
        world.with_lease("a", |engine, lease| {
            engine.renew(lease.id, Some(lease.token), None).unwrap().is_ok()
        })
    ));
    note(format!(
        "{}",
        world.with_lease("a", |engine, lease| {
            engine.downgrade(lease.id, Some(lease.token)).unwrap().is_ok()
        })
    ));
    note(format!(
        "{}",
        world.with_lease("d", |engine, lease| {
            engine.upgrade(lease.id, Some(lease.token), None).unwrap().is_ok()
        })
    ));
    note(format!(
        "{}",
        world.with_lease("a", |engine, lease| {
            engine.release(lease.id, Some(lease.token)).unwrap().is_ok()
        })
    ));
    note(format!(
        "{}",
        world.with_lease("b", |engine, lease| {
            engine.break_lease(lease.id, Duration::ZERO).unwrap().is_some()
        })
    ));
    note(format!("{}", world.engine.clean_up().unwrap().len()));
    note(format!("{}", world.engine.break_all(Duration::ZERO).unwrap().len()));
    told
}

pub(super) fn decisions_may_run_twice(harness: &dyn Harness) {
    let (one, other) = (harness.place(), harness.place());
    let once = World::over(Box::new(Runs::once(one.open())));
    let twice = World::over(Box::new(Runs::twice(other.open())));
    assert_eq!(history(&once), history(&twice));
}

/// Another owner acquires the name between the first run and the second.
pub(super) fn only_the_last_run_counts(harness: &dyn Harness) {
    let place = harness.place();
    let other = World::over(Box::new(Runs::once(place.open())));
    let request = other.request("other", &[("db", Mode::Exclusive)], false);
    let taken = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&taken);
    let interlude = move || {
        if !begun.swap(true, Ordering::Relaxed) {
            let outcome = other.engine.acquire(&request).unwrap();
            assert!(matches!(outcome, Outcome::Granted(_)), "the first run left something behind");
        }
    };
    let late = World::over(Box::new(Runs::twice_with(place.open(), Box::new(interlude))));
    assert_eq!(late.acquire("late", &[("db", Mode::Exclusive)], false), "held 1");
    assert!(taken.load(Ordering::Relaxed));
    let (leases, tickets) = everything(&*place.open());
    assert_eq!((leases.len(), tickets.len()), (1, 0));
}
