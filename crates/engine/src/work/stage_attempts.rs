//! Attempts of stages that will never be made.
//!
//! Only the `stages run` that executes a stage makes the attempts of its runs, because it has the leases of the groups. If it is
//! gone, the run ends as its last attempt did, or is canceled if there was none, and `stages run --resume` executes it again.

use lockkeeper_core::resource::Target;
use lockkeeper_core::run::Run;

use crate::Engine;
use crate::runs::{RunError, Runs};
use crate::stage_names;

/// The message of the end of such a run.
pub(crate) const WHY: &str = "its `stages run` is gone: `lockkeeper stages run --resume` executes it again";

/// The runs of stages that wait for an attempt, and whose `stages run` is gone.
pub(crate) fn unmade(runs: &Runs, leases: &Engine) -> Result<Vec<Run>, RunError> {
    let waiting = runs.waiting_stage_attempts()?;
    if waiting.is_empty() {
        return Ok(Vec::new());
    }
    let listing = leases.listing()?;
    let held = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
    let held: Vec<&Target> = held.flat_map(|holder| holder.lease.claim.targets()).collect();
    let is_executed = |owner: &str| {
        // An owner that is not known to be a stage is left alone.
        stage_names::lock_of(owner).is_none_or(|lock| {
            held.iter().any(|target| matches!(target, Target::Name(name) if name.as_str() == lock))
        })
    };
    Ok(waiting.into_iter().filter(|(_, owner)| !is_executed(owner)).map(|(run, _)| run).collect())
}
