//! Claims of agents: how long they last, and what is in one.

use std::time::Duration;

use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::{Contract, Proof};
use lockkeeper_core::record::{Agent, Claim};
use lockkeeper_core::time::Ttl;

use crate::repository::Wanted;

/// What happens if two agents change one file in two work trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkTrees {
    /// Both are told. It is a merge to come.
    #[default]
    Tell,
    /// The second one is denied.
    Deny,
    /// Nobody is told.
    Ignore,
}

/// The settings of agents in one repository.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a claim lasts after the last call of a working agent.
    pub working: Ttl,
    /// How long a claim on uncommitted work lasts after the end of a turn.
    pub resting: Ttl,
    /// How long a denied agent keeps its place in line without a further call.
    pub ticket: Ttl,
    /// What happens between work trees.
    pub work_trees: WorkTrees,
}

impl Default for Settings {
    fn default() -> Self {
        let minutes = |count: u64| Ttl::new(Duration::from_secs(count * 60)).expect("some minutes are a TTL");
        Self { working: minutes(30), resting: minutes(10), ticket: minutes(2), work_trees: WorkTrees::Tell }
    }
}

/// The claim of an agent to one file.
pub fn claim_of(
    wanted: &Wanted,
    owner: &Owner,
    proof: &Proof,
    note: Option<&str>,
    settings: &Settings,
) -> Claim {
    let work_tree = match settings.work_trees {
        WorkTrees::Tell | WorkTrees::Ignore => Some(wanted.location.work_tree().into()),
        WorkTrees::Deny => None,
    };
    Claim {
        owner: owner.clone(),
        resources: wanted.resources.clone(),
        proof: proof.clone(),
        contract: Contract::Lease,
        ttl: Some(settings.working),
        reason: Some(note.unwrap_or("edit").to_owned()),
        ticket: None,
        agent: Some(Agent { work_tree }),
    }
}
