//! What leases in etcd cost, against bare transactions of the same member on the same disk, and against `etcdctl lock`.
//!
//! `scripts/bench etcd` starts a private member and runs this. Numbers are medians of rounds that take turns, so that what else the
//! machine does hits both sides.
#![expect(clippy::unwrap_used, reason = "a measurement may fail by panicking")]

#[path = "speed/measure.rs"]
#[expect(dead_code, reason = "other benches use the rest")]
mod measure;

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::lease::{AcquireRequest, Outcome};
use lockkeeper_core::liveness::{Contract, Proof, Voucher};
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_engine::{Engine, MachineProbe};
use lockkeeper_platform::{origin, process, random};
use lockkeeper_store::{EtcdAddress, EtcdStore, LeaseStore};
use tempfile::TempDir;

use measure::{Row, alternate, quiet, run};

fn main() -> ExitCode {
    let Ok(server) = std::env::var("LOCKKEEPER_TEST_ETCD") else {
        println!("SKIPPED: needs an etcd member (scripts/bench etcd)");
        return ExitCode::SUCCESS;
    };
    println!("{:<52} {:>12} {:>12} {:>8} {:>8}", "", "ours", "bare", "ratio", "limit");
    let mut holds = true;
    for section in [acquire_and_release, exec, among_many] {
        let row = section(&server);
        println!("{row}");
        holds &= row.holds();
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn open(server: &str) -> Arc<EtcdStore> {
    let address = EtcdAddress::parse(&format!("etcd://{server}"), &|_| None, None).unwrap();
    let project = format!("bench-{:x}", random::number().unwrap());
    Arc::new(EtcdStore::open(address, &project, Duration::from_secs(30)).unwrap())
}

/// An engine over a store.
struct User {
    engine: Engine,
    _folder: TempDir,
}

impl User {
    fn of(store: Arc<EtcdStore>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let probe = MachineProbe::new(folder.path(), origin::origin().unwrap()).unwrap();
        Self { engine: Engine::new(store, probe), _folder: folder }
    }

    fn request(&self, name: &str) -> AcquireRequest {
        let resource = Resource { target: Target::Name(name.parse().unwrap()), mode: Mode::Exclusive };
        let claim = Claim {
            owner: format!("worker:{name}").parse().unwrap(),
            resources: vec![resource],
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
        AcquireRequest { claim, priority: Priority::default(), under: Vec::new(), wait: None, join: false }
    }

    fn acquire_and_release(&self, name: &str) {
        let Outcome::Granted(grant) = self.engine.acquire(&self.request(name)).unwrap() else {
            panic!("{name} is free")
        };
        self.engine.release(grant.lease.id, Some(grant.lease.token)).unwrap().unwrap();
    }

    fn fill(&self, count: usize) {
        for number in 0..count {
            assert!(matches!(
                self.engine.acquire(&self.request(&format!("n{number}"))).unwrap(),
                Outcome::Granted(_)
            ));
        }
    }
}

/// One lease at a time, through the rules, against two transactions that put one key each: that is how a number is drawn.
fn acquire_and_release(server: &str) -> Row {
    let (user, bare) = (User::of(open(server)), open(server));
    let put = || {
        bare.begin().unwrap().next_number().unwrap();
    };
    let [ours, bare] = alternate(
        300,
        [&mut || user.acquire_and_release("db"), &mut || {
            put();
            put();
        }],
    );
    Row::times("acquire and release a lease, against two Txn puts", ours, bare, 1.8)
}

/// The command, against etcd's own.
fn exec(server: &str) -> Row {
    let folder = tempfile::tempdir().unwrap();
    let mut ours = quiet(measure::lockkeeper());
    ours.args(["exec", "db", "--", "true"])
        .current_dir(folder.path())
        .env("LOCKKEEPER_STORE", format!("etcd://{server}"))
        .env("LOCKKEEPER_PROJECT", format!("bench-{:x}", random::number().unwrap()));
    let mut theirs: Command = quiet("etcdctl");
    theirs.env("ETCDCTL_API", "3").args(["--endpoints", server, "lock", "db", "true"]);
    let [ours, theirs] = alternate(60, [&mut || run(&mut ours), &mut || run(&mut theirs)]);
    Row::times("exec, against etcdctl lock", ours, theirs, 0.5)
}

/// The same among many leases.
fn among_many(server: &str) -> Row {
    let [few, many] = [10, 10_000].map(|count| {
        let user = User::of(open(server));
        user.fill(count);
        user
    });
    let [few, many] =
        alternate(300, [&mut || few.acquire_and_release("db"), &mut || many.acquire_and_release("db")]);
    Row::times("the same among 10,000 leases, against among 10", many, few, 1.5)
}
