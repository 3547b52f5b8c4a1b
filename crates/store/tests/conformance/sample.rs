//! Records to put into stores.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId, Token};
use lockkeeper_core::liveness::{Contract, Origin, ProcessRef, Proof, Voucher};
use lockkeeper_core::record::{Claim, Lease, Priority, Rank, Ticket};
use lockkeeper_core::records::Change;
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_core::time::{Moment, Ttl};

use super::commit;
use lockkeeper_store::LeaseStore;

pub(super) fn name(text: &str) -> Target {
    Target::Name(text.parse().unwrap())
}

pub(super) fn path(text: &str) -> Target {
    Target::Path(text.parse().unwrap())
}

/// A claim of `worker:OWNER`, exclusive, with no end.
pub(super) fn claim(owner: &str, targets: &[Target]) -> Claim {
    let exclusive = |target: &Target| Resource { target: target.clone(), mode: Mode::Exclusive };
    let process = ProcessRef { pid: 42, started: 7 };
    Claim {
        owner: format!("worker:{owner}").parse().unwrap(),
        resources: targets.iter().map(exclusive).collect(),
        proof: Proof {
            origin: Origin {
                host: "here".to_owned(),
                boot: "now".to_owned(),
                pid_namespace: 1,
                session: None,
            },
            voucher: Voucher::KernelLock { holder: HolderId(9), process },
        },
        contract: Contract::Strict,
        ttl: None,
        reason: None,
        ticket: None,
        agent: None,
    }
}

pub(super) fn lease(id: u64, owner: &str, targets: &[Target]) -> Lease {
    let at = Moment::from_micros(0);
    Lease {
        id: LeaseId(id),
        token: Token(id),
        claim: Arc::new(claim(owner, targets)),
        acquired_at: at,
        heartbeat_at: at,
        pickup_by: None,
        revoked: false,
    }
}

/// A ticket whose rank is `at`.
pub(super) fn ticket(id: u64, at: i64, owner: &str, targets: &[Target]) -> Ticket {
    Ticket {
        id: LeaseId(id),
        claim: Arc::new(claim(owner, targets)),
        priority: Priority::default(),
        rank: Rank { at, id: LeaseId(id) },
        enqueued_at: Moment::from_micros(at),
        seen_at: Moment::from_micros(at),
        stays: Ttl::new(Duration::from_secs(90)).unwrap(),
        waker: None,
        under: Vec::new(),
        upgrades: None,
    }
}

/// Commits changes together.
pub(super) fn put(store: &dyn LeaseStore, changes: &[Change]) {
    commit(store, changes, &[]).unwrap();
}
