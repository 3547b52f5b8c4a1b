//! Foreign paths: which of some paths another live owner works on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::pattern::Pattern;
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

/// The path leases of other live owners in one work tree.
pub(crate) struct Others<'l> {
    /// Claims to single paths, which cover what is below them.
    literal: BTreeMap<&'l Path, &'l Owner>,
    patterns: Vec<(&'l Pattern, &'l Owner)>,
}

impl<'l> Others<'l> {
    /// `around`: the leases that the caller runs under. They are its own.
    pub(crate) fn new(listing: &'l Listing, work_tree: &str, caller: &Caller, around: &[LeaseId]) -> Self {
        let mut others = Self { literal: BTreeMap::new(), patterns: Vec::new() };
        for holder in &listing.holders {
            let lease = &holder.lease;
            // An owner that has not picked up its lease yet has not worked on the file.
            let is_own = caller.is_family_of(&lease.claim.owner) || around.contains(&lease.id);
            let counts = lease.pickup_by.is_none() && !is_own;
            if !counts || holder.verdict.is_free() || !holds_in(lease, work_tree) {
                continue;
            }
            for pattern in patterns_of(lease) {
                if pattern.is_literal() {
                    others.literal.insert(Path::new(pattern.literal_prefix()), &lease.claim.owner);
                } else {
                    others.patterns.push((pattern, &lease.claim.owner));
                }
            }
        }
        others
    }

    /// Whether nobody else works here.
    pub(crate) fn is_empty(&self) -> bool {
        self.literal.is_empty() && self.patterns.is_empty()
    }

    /// Those of the paths that others work on.
    pub(crate) fn among(&self, paths: &[PathBuf]) -> Vec<Foreign> {
        let found = |path: &PathBuf| Some(Foreign { owner: self.holder(path)?.clone(), path: path.clone() });
        paths.iter().filter_map(found).collect()
    }

    fn holder(&self, path: &Path) -> Option<&'l Owner> {
        if let Some(owner) = path.ancestors().find_map(|at| self.literal.get(at)) {
            return Some(owner);
        }
        let text = path.to_str()?;
        self.patterns.iter().find(|(pattern, _)| pattern.matches(text)).map(|(_, owner)| *owner)
    }
}

/// Whether a lease holds in a work tree. Leases that were taken by hand hold in all of them.
pub(crate) fn holds_in(lease: &Lease, work_tree: &str) -> bool {
    let named = lease.claim.agent.as_ref().and_then(|agent| agent.work_tree.as_deref());
    named.is_none_or(|named| named == work_tree)
}

/// Whether a lease covers a path in exclusive mode. A claim to a file that became a folder covers what is below it.
pub(crate) fn holds(lease: &Lease, path: &Path) -> bool {
    path.to_str().is_some_and(|path| patterns_of(lease).any(|pattern| pattern.matches(path)))
}

/// The paths that a lease covers in exclusive mode.
pub(crate) fn patterns_of(lease: &Lease) -> impl Iterator<Item = &Pattern> {
    let exclusive = lease.claim.resources.iter().filter(|resource| resource.mode == Mode::Exclusive);
    exclusive.filter_map(|resource| match &resource.target {
        Target::Path(pattern) => Some(pattern),
        Target::Name(_) => None,
    })
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
