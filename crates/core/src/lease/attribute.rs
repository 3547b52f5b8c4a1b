//! Attribution: whose the files are that a command has changed. Which files these are is known only after the command.

use std::sync::Arc;

use super::agents::in_other_work_trees;
use super::{lease_to_join, new_lease, reap_dead};
use crate::id::LeaseId;
use crate::overlay::Overlay;
use crate::record::{Claim, Lease, Rank};
use crate::waiting::{Asker, Obstacle, blockers, hand_off, settle};

/// Whose the changed files are.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Attributed {
    /// The new leases: files that nobody had.
    pub granted: Vec<Lease>,
    /// Leases of others on changed files.
    pub foreign: Vec<(Claim, Lease)>,
    /// Claims of other agents to the new files in other work trees.
    pub elsewhere: Vec<Obstacle<Lease>>,
}

/// Claims each of the changed files that is free, and finds out who has the others. `checks` are never claimed.
///
/// Unlike a call before an edit, it leaves no ticket: the file is changed already, so there is nothing to wait for.
pub fn attribute<E>(
    overlay: &mut Overlay<'_, E>,
    claims: &[Claim],
    checks: &[Claim],
) -> Result<Attributed, E> {
    let mut found = Attributed::default();
    for claim in claims.iter().chain(checks) {
        reap_dead(overlay, claim)?;
    }
    // What a dead holder leaves goes to the waiters first, and then to a new claim.
    hand_off(overlay)?;
    for (at, claim) in claims.iter().chain(checks).enumerate() {
        if lease_to_join(overlay, claim)?.is_some() {
            continue;
        }
        let last = Rank::new(overlay.now(), crate::record::Priority::default(), LeaseId(u64::MAX));
        let in_the_way = blockers(overlay, Asker { claim, rank: last, whole_line: false })?;
        let holder = in_the_way.iter().flat_map(|blocker| &blocker.leases).next();
        if let Some(holder) = holder {
            found.foreign.push((claim.clone(), holder.record.clone()));
        } else if in_the_way.is_empty() && at < claims.len() {
            let token = overlay.next_token()?;
            let lease = new_lease(LeaseId(token.0), token, Arc::new(claim.clone()), overlay.now());
            overlay.put_lease(None, lease.clone());
            found.elsewhere.extend(in_other_work_trees(overlay, claim)?);
            found.granted.push(lease);
        }
    }
    settle(overlay, None)?;
    Ok(found)
}
