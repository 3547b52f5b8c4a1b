//! Hard links: one file has several names, and a write by one of them changes all. So the names that others have claimed count, too.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::Owner;
use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::Resource;
use lockkeeper_engine::open::{OpenError, has_store, open_engine_to_read};

use super::HookError;
use crate::foreign::holds_in;
use crate::repository::Wanted;

/// Adds to each file the other names of it that others have claimed. Mostly files have one name; then no lease is read.
pub(super) fn add_claimed_names(wanted: &mut [Wanted], owner: &Owner) -> Result<(), HookError> {
    let mut stores: BTreeMap<PathBuf, Vec<Lease>> = BTreeMap::new();
    for wanted in wanted.iter_mut().filter(|wanted| wanted.name().is_none() && !wanted.only_checked) {
        let Some(file) = file_with_names(&wanted.path) else { continue };
        let state = &wanted.location.state;
        if !stores.contains_key(state) && has_store(state) {
            let leases = open_engine_to_read(state)?.leases().map_err(OpenError::Store)?;
            stores.insert(state.clone(), leases);
        }
        let work_tree = wanted.location.work_tree();
        let others = stores.get(state).into_iter().flatten();
        let others = others.filter(|lease| lease.claim.owner != *owner && holds_in(lease, &work_tree));
        for resource in others.flat_map(|lease| &lease.claim.resources) {
            let is_same = path_of(resource, &wanted.location.root)
                .is_some_and(|path| path != wanted.path && file_with_names(&path) == Some(file));
            if is_same && !wanted.resources.contains(resource) {
                wanted.resources.push(resource.clone());
            }
        }
    }
    Ok(())
}

/// Device and inode of a file that has more than one name.
fn file_with_names(path: &Path) -> Option<(u64, u64)> {
    let meta = path.symlink_metadata().ok().filter(|meta| meta.is_file() && meta.nlink() > 1)?;
    Some((meta.dev(), meta.ino()))
}

/// The single file that a resource is.
fn path_of(resource: &Resource, root: &Path) -> Option<PathBuf> {
    let lockkeeper_core::resource::Target::Path(pattern) = &resource.target else { return None };
    pattern.is_literal().then(|| root.join(pattern.literal_prefix()))
}
