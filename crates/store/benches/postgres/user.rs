//! A program that uses leases on the server, through the rules and with connections of its own.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::lease::{AcquireRequest, Grant, Outcome};
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Ttl;
use lockkeeper_engine::{Acquired, AtEnd, Engine, MachineProbe, Resident, WaitOptions};
use lockkeeper_platform::origin;
use lockkeeper_store::PostgresStore;
use tempfile::TempDir;

pub struct User {
    pub store: Arc<PostgresStore>,
    engine: Engine,
    resident: Resident,
    name: String,
    _folder: TempDir,
}

impl User {
    pub fn new(server: &str, project: &str, name: &str) -> Self {
        let config: tokio_postgres::Config = server.parse().unwrap();
        let store = Arc::new(PostgresStore::open(config, project, Duration::from_secs(5)).expect("it opens"));
        let folder = tempfile::tempdir().unwrap();
        let probe = MachineProbe::new(folder.path(), origin::origin().unwrap()).unwrap();
        let engine = Engine::new(Arc::clone(&store) as _, probe).keep_wakers();
        let resident = engine.resident().unwrap();
        Self { store, engine, resident, name: name.to_owned(), _folder: folder }
    }

    fn request(&self, name: &str) -> AcquireRequest {
        let resource = Resource { target: Target::Name(name.parse().unwrap()), mode: Mode::Exclusive };
        let claim = Claim {
            owner: format!("worker:{}", self.name).parse().unwrap(),
            resources: vec![resource],
            proof: self.resident.proof(),
            contract: Contract::Strict,
            ttl: None,
            reason: None,
            ticket: None,
            agent: None,
        };
        AcquireRequest { claim, priority: Priority::default(), under: Vec::new(), wait: None, join: false }
    }

    /// Acquires a name that is free.
    pub fn acquire(&self, name: &str) -> Grant {
        match self.engine.acquire(&self.request(name)).unwrap() {
            Outcome::Granted(grant) => grant,
            outcome => panic!("{name} is not free: {outcome:?}"),
        }
    }

    /// Acquires a name, and waits for it if another one has it. Calls `waits` before it sleeps.
    pub fn wait_for(&self, name: &str, waits: &mut dyn FnMut()) -> Grant {
        let options = WaitOptions { until: None, interrupts: &[], grace: Duration::from_secs(5), tick: None };
        let stays = Ttl::new(Duration::from_secs(30)).unwrap();
        let acquired =
            self.engine
                .acquire_and_wait(self.request(name), stays, &options, AtEnd::GiveUp, &mut |_| waits());
        match acquired.unwrap() {
            Acquired::Granted(grant) => grant,
            acquired => panic!("{name} did not come: {acquired:?}"),
        }
    }

    pub fn release(&self, grant: &Grant) {
        self.engine.release(grant.lease.id, Some(grant.lease.token)).unwrap().unwrap();
    }

    pub fn acquire_and_release(&self, name: &str) {
        self.release(&self.acquire(name));
    }
}
