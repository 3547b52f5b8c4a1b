//! The lock on the common index: one commit at a time in one repository.

use std::io;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::lease::AcquireRequest;
use lockkeeper_core::liveness::Contract;
use lockkeeper_core::record::{Claim, Priority};
use lockkeeper_core::resource::{Mode, Resource, Target};
use lockkeeper_engine::Resident;
use lockkeeper_engine::open::unique_owner;

use crate::caller::Caller;

/// The request for `git/index`. Each commit is an owner of its own: two commits of one agent exclude each other, too.
///
/// # Errors
///
/// The system gives no random number.
pub fn index_request(
    resident: &Resident,
    caller: &Caller,
    under: Vec<LeaseId>,
) -> io::Result<AcquireRequest> {
    let name = "git/index".parse().expect("it is a name");
    let claim = Claim {
        owner: unique_owner("commit")?,
        resources: vec![Resource { target: Target::Name(name), mode: Mode::Exclusive }],
        proof: resident.proof(),
        contract: Contract::Strict,
        ttl: None,
        reason: Some(format!("commit by {}", caller.shown())),
        ticket: None,
        agent: None,
    };
    Ok(AcquireRequest { claim, priority: Priority::default(), under, wait: None, join: false })
}
