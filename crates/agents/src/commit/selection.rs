//! What to commit: the claims of an owner, or paths that somebody has named.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::Owner;
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::Target;
use lockkeeper_engine::Engine;
use lockkeeper_engine::open::OpenError;
use thiserror::Error;

use crate::foreign::{holds_in, patterns_of};
use crate::git::Git;
use crate::place::lexical;

/// A path is not in the work tree.
#[derive(Debug, Error)]
#[error("`{}` is not a path of {}", .path.display(), .root.display())]
pub struct OutsideError {
    /// The path.
    path: PathBuf,
    /// The work tree.
    root: PathBuf,
}

/// What to commit.
#[derive(Clone, Debug)]
pub enum Selection {
    /// The changed files that these leases cover.
    Claims(Vec<Lease>),
    /// These files, and what is below these folders, from the root of the work tree. An empty path is the root.
    Paths(Vec<String>),
}

impl Selection {
    /// What an owner has claimed in a work tree.
    ///
    /// # Errors
    ///
    /// The lease store cannot be read.
    pub fn claimed_by(owner: &Owner, engine: &Engine, work_tree: &str) -> Result<Self, OpenError> {
        let mut leases: Vec<Lease> = engine.leases_of(owner)?;
        // An owner that has not picked up its lease yet has not worked on the file.
        leases.retain(|lease| lease.pickup_by.is_none() && holds_in(lease, work_tree));
        Ok(Self::Claims(leases))
    }

    /// Files and folders that somebody has named, from a folder.
    ///
    /// # Errors
    ///
    /// One of them is not in the work tree.
    pub fn named_from(folder: &Path, paths: &[PathBuf], git: &Git) -> Result<Self, OutsideError> {
        let paths = paths.iter().map(|path| from_root(git, folder, path));
        Ok(Self::Paths(paths.collect::<Result<_, _>>()?))
    }

    /// What git has to look at. Empty for the whole work tree.
    pub(super) fn pathspecs(&self) -> Vec<&str> {
        match self {
            Self::Paths(paths) => paths.iter().map(String::as_str).collect(),
            Self::Claims(leases) => {
                let patterns: Vec<_> =
                    leases.iter().flat_map(|lease| lease.claim.targets()).filter_map(path_of).collect();
                if patterns.iter().all(|pattern| pattern.is_literal()) {
                    patterns.iter().map(|pattern| pattern.literal_prefix()).collect()
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// Whether a path is to be committed. `is_changed` tells whether a path is itself among the changed ones, `has_written` whether an
    /// agent has written a path.
    pub(super) fn includes(
        &self,
        path: &Path,
        is_changed: impl Fn(&Path) -> bool,
        has_written: impl Fn(&Owner, &Path) -> bool,
    ) -> bool {
        // A file that became a folder: the agent's claim was on the file, and the folder may have files of others.
        let was_file = |pattern: &Pattern| {
            let claimed = Path::new(pattern.literal_prefix());
            pattern.is_literal() && claimed != path && is_changed(claimed)
        };
        let claims = |lease: &Lease| {
            let is_own = || lease.claim.agent.is_none() || has_written(&lease.claim.owner, path);
            let counts = |pattern: &&Pattern| !was_file(pattern) || is_own();
            let covers = |pattern: &Pattern| path.to_str().is_some_and(|path| pattern.matches(path));
            patterns_of(lease).filter(counts).any(covers)
        };
        match self {
            Self::Paths(paths) => paths.iter().any(|wanted| path.starts_with(wanted)),
            Self::Claims(leases) => leases.iter().any(claims),
        }
    }

    /// The single files and folders that were asked for.
    pub(super) fn named(&self) -> BTreeSet<&str> {
        self.pathspecs().into_iter().filter(|path| !path.is_empty()).collect()
    }
}

/// The pattern of a target that is a path.
pub(super) fn path_of(target: &Target) -> Option<&Pattern> {
    match target {
        Target::Path(pattern) => Some(pattern),
        Target::Name(_) => None,
    }
}

/// A path from the root of the work tree. The path itself may be a symlink, or missing.
fn from_root(git: &Git, folder: &Path, path: &Path) -> Result<String, OutsideError> {
    let whole = lexical(&folder.join(path));
    let is_folder = whole.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let mut real = whole.clone();
    for folder in whole.ancestors().skip(usize::from(!is_folder)) {
        if let (Ok(found), Ok(rest)) = (folder.canonicalize(), whole.strip_prefix(folder)) {
            real = if rest.as_os_str().is_empty() { found } else { found.join(rest) };
            break;
        }
    }
    let inside = real.strip_prefix(&git.root).ok().and_then(Path::to_str);
    inside.map(str::to_owned).ok_or_else(|| OutsideError { path: path.to_owned(), root: git.root.clone() })
}
