//! Claims of agents: how long they last, and what is in one.

use std::time::Duration;

use lockkeeper_core::id::Owner;
use lockkeeper_core::liveness::{Contract, Proof};
use lockkeeper_core::record::{Agent, Claim};
use lockkeeper_core::time::Ttl;

use crate::command_names::CommandName;
use crate::repository::Wanted;

/// What happens if two agents change one file in two work trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkTrees {
    /// Both are told that they will have to merge.
    #[default]
    Tell,
    /// The second one is denied.
    Deny,
    /// Nobody is told.
    Ignore,
}

/// The settings of agents in one repository.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a claim lasts after the last call of a working agent.
    pub working: Ttl,
    /// How long a claim on uncommitted work lasts after the end of a turn.
    pub resting: Ttl,
    /// How long a denied agent keeps its place in line without a further call.
    pub ticket: Ttl,
    /// What happens between work trees.
    pub work_trees: WorkTrees,
    /// Names that are held while commands run.
    pub commands: Vec<CommandName>,
}

impl Default for Settings {
    fn default() -> Self {
        let minutes = |count: u64| Ttl::new(Duration::from_secs(count * 60)).expect("some minutes are a TTL");
        Self {
            working: minutes(30),
            resting: minutes(10),
            ticket: minutes(2),
            work_trees: WorkTrees::Tell,
            commands: Vec::new(),
        }
    }
}

/// How long a part of git is held at most. Git commands are short, and a harness may never report the end of a call.
const GIT_TTL: Duration = Duration::from_secs(120);

/// The claim of an agent to one file or name.
pub fn claim_of(
    wanted: &Wanted,
    owner: &Owner,
    proof: &Proof,
    note: Option<&str>,
    settings: &Settings,
) -> Claim {
    let name = wanted.name();
    // Each work tree has its own HEAD and index. All work trees share every other name, such as a port.
    let is_of_tree = match (name, settings.work_trees) {
        (Some(name), _) => matches!(name, "git/head" | "git/index"),
        (None, WorkTrees::Tell | WorkTrees::Ignore) => true,
        (None, WorkTrees::Deny) => false,
    };
    let work_tree = is_of_tree.then(|| wanted.location.work_tree().into());
    let is_git = name.is_some_and(|name| name.starts_with("git/"));
    let ttl = Ttl::new(GIT_TTL).ok().filter(|_| is_git).unwrap_or(settings.working);
    let usual = wanted.because.as_deref().unwrap_or("edit");
    Claim {
        owner: owner.clone(),
        resources: wanted.resources.clone(),
        proof: proof.clone(),
        contract: Contract::Lease,
        ttl: Some(ttl),
        reason: Some(note.unwrap_or(usual).to_owned()),
        ticket: None,
        agent: Some(Agent { work_tree }),
    }
}
