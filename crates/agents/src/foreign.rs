//! Foreign paths: which of some paths another live owner works on.

use std::path::{Path, PathBuf};

use lockkeeper_core::id::Owner;
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::{Mode, Target};
use lockkeeper_engine::Listing;

use crate::caller::Caller;
use crate::quote::{cut, one_line};

/// How many paths a message names.
const MAX_SHOWN: usize = 3;
/// The longest path in a message, in characters.
const MAX_PATH: usize = 160;

/// A path, and the live owner who works on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The path from the root of the work tree.
    pub path: PathBuf,
    /// Who works on it.
    pub owner: Owner,
}

/// Finds the paths that others hold in this work tree.
pub fn foreign(listing: &Listing, work_tree: &str, caller: &Caller, paths: &[PathBuf]) -> Vec<Foreign> {
    let others: Vec<&Lease> = listing
        .holders
        .iter()
        .filter(|holder| !holder.verdict.is_free())
        .map(|holder| &holder.lease)
        // Who has not picked its lease up yet has not worked on the file.
        .filter(|lease| lease.pickup_by.is_none() && !caller.is_family_of(&lease.claim.owner))
        .filter(|lease| holds_in(lease, work_tree))
        .collect();
    let holder =
        |path: &Path| others.iter().find(|lease| holds(lease, path)).map(|lease| lease.claim.owner.clone());
    paths.iter().filter_map(|path| Some(Foreign { owner: holder(path)?, path: path.clone() })).collect()
}

/// Whether a lease holds in a work tree. Leases that were taken by hand hold in all of them.
pub(crate) fn holds_in(lease: &Lease, work_tree: &str) -> bool {
    let named = lease.claim.agent.as_ref().and_then(|agent| agent.work_tree.as_deref());
    named.is_none_or(|named| named == work_tree)
}

/// Whether a lease covers a path alone. A claim to a file that became a folder covers what is below it.
pub(crate) fn holds(lease: &Lease, path: &Path) -> bool {
    let Some(path) = path.to_str() else { return false };
    let covers = |target: &Target| match target {
        Target::Path(pattern) => pattern.matches(path),
        Target::Name(_) => false,
    };
    let mut exclusive = lease.claim.resources.iter().filter(|resource| resource.mode == Mode::Exclusive);
    exclusive.any(|resource| covers(&resource.target))
}

/// The paths and their owners in one line: `src/a.rs (claude:1), src/b.rs (codex:2) and 3 more`.
pub fn shown(foreign: &[Foreign]) -> String {
    let one = |found: &Foreign| format!("{} ({})", shown_path(&found.path), found.owner);
    let mut text = foreign.iter().take(MAX_SHOWN).map(one).collect::<Vec<_>>().join(", ");
    if foreign.len() > MAX_SHOWN {
        text.push_str(&format!(" and {} more", foreign.len() - MAX_SHOWN));
    }
    text
}

/// A path for people and models: on one line, cut.
pub(crate) fn shown_path(path: &Path) -> String {
    cut(&one_line(&path.to_string_lossy()), MAX_PATH)
}
