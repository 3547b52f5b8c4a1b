//! One lease at a time, by the calls of a store.

use std::sync::Arc;

use lockkeeper_core::id::{HolderId, LeaseId, Token};
use lockkeeper_core::liveness::{Contract, Origin, ProcessRef, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::Moment;
use lockkeeper_store::{Commit, LeaseStore};

/// A lease of a name.
pub fn lease(id: u64, name: &str) -> Lease {
    let resource = Resource { target: Target::Name(name.parse().unwrap()), mode: Mode::Exclusive };
    let origin = Origin { host: "here".to_owned(), boot: "now".to_owned(), pid_namespace: 1, session: None };
    let voucher = Voucher::KernelLock { holder: HolderId(9), process: ProcessRef { pid: 42, started: 7 } };
    let claim = Claim {
        owner: "worker:bench".parse().unwrap(),
        resources: vec![resource],
        proof: Proof { origin, voucher },
        contract: Contract::Strict,
        ttl: None,
        reason: None,
        ticket: None,
        agent: None,
    };
    let at = Moment::from_micros(0);
    Lease {
        id: LeaseId(id),
        token: Token(id),
        claim: Arc::new(claim),
        acquired_at: at,
        heartbeat_at: at,
        pickup_by: None,
        revoked: false,
    }
}

/// Reads the name, draws a number and adds a lease.
pub fn acquire(store: &dyn LeaseStore, name: &str) -> Lease {
    loop {
        let mut transaction = store.begin().unwrap();
        let range = Target::Name(name.parse().unwrap()).key_range();
        assert!(transaction.leases(&range).unwrap().is_empty());
        let lease = lease(transaction.next_number().unwrap(), name);
        if transaction.commit(vec![Change::AddLease(lease.clone())], &[]).unwrap() == Commit::Committed {
            return lease;
        }
    }
}

/// Removes a lease whose record the caller has.
pub fn release(store: &dyn LeaseStore, lease: Lease) {
    let removed = store.begin().unwrap().commit(vec![Change::RemoveLease(lease)], &[]).unwrap();
    assert!(removed == Commit::Committed);
}
