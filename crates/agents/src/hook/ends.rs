//! Ends: of a turn, of a sub-agent, of a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lockkeeper_core::record::Lease;
use lockkeeper_core::resource::Target;
use lockkeeper_engine::open::OpenError;
use lockkeeper_platform::wall_clock;

use super::stores::{Store, Stores};
use super::{Hook, HookError};
use crate::session::{Activity, Session};
use crate::uncommitted::committed;

impl Hook<'_> {
    /// The agent and its sub-agents are done: everything ends.
    pub(super) fn end_session(&self, stores: &Stores) -> Result<(), HookError> {
        for store in stores.iter() {
            if store.exists() {
                store.engine()?.end_agent_session(&self.owner).map_err(OpenError::Store)?;
            }
            store.sessions.remove_family(&self.owner).map_err(HookError::Sessions)?;
        }
        Ok(())
    }

    /// A sub-agent is done: what it has goes to the owner above it.
    pub(super) fn end_subagent(&self, stores: &Stores) -> Result<(), HookError> {
        self.close_all(stores)?;
        for store in stores.iter() {
            if store.exists() {
                store.engine()?.hand_up(&self.owner).map_err(OpenError::Store)?;
            }
            store.sessions.remove_family(&self.owner).map_err(HookError::Sessions)?;
        }
        Ok(())
    }

    /// The agent waits for its user: claims on committed files are released, others stay for a while.
    pub(super) fn end_turn(&self, stores: &Stores) -> Result<(), HookError> {
        self.close_all(stores)?;
        for store in stores.iter() {
            if store.exists() {
                let engine = store.engine()?;
                let mut leases = engine.leases_of(&self.owner).map_err(OpenError::Store)?;
                leases.retain(|lease| lease.claim.agent.is_some() && lease.pickup_by.is_none());
                let settings = (self.call.settings)(&store.root);
                let done = self.committed(store, &leases);
                if !leases.is_empty() {
                    engine.rest(&self.owner, &done, settings.resting).map_err(OpenError::Store)?;
                }
            }
            if store.sessions.get(&self.owner).is_some() {
                let change = |session: &mut Session| {
                    session.state = Activity::Rests;
                    session.seen_at = wall_clock::epoch_seconds();
                };
                store.sessions.update(&self.owner, change).map_err(HookError::Sessions)?;
            }
        }
        Ok(())
    }

    /// The leases whose files are as committed. A file of which git knows nothing counts as uncommitted work.
    fn committed(&self, store: &Store, leases: &[Lease]) -> Vec<Lease> {
        let mut by_tree: BTreeMap<PathBuf, Vec<(&Lease, String)>> = BTreeMap::new();
        for lease in leases {
            let tree = lease.claim.agent.as_ref().and_then(|agent| agent.work_tree.as_deref());
            let root = tree.map_or_else(|| Some(store.root.clone()), |tree| store.root_of(tree));
            if let (Some(root), Some(path)) = (root, file_of(lease)) {
                by_tree.entry(root).or_default().push((lease, path));
            }
        }
        let mut done = Vec::new();
        for (root, files) in by_tree {
            let paths: Vec<String> = files.iter().map(|(_, path)| path.clone()).collect();
            let Some(clean) = committed(&root, &paths, None, &|_, _| true) else { continue };
            let of_tree = files.into_iter().filter(|(_, path)| clean.contains(path));
            done.extend(of_tree.map(|(lease, _)| lease.clone()));
        }
        done
    }
}

/// The path of a claim to one file, without the escapes of a pattern.
pub(super) fn file_of(lease: &Lease) -> Option<String> {
    let Target::Path(pattern) = lease.claim.targets().next()? else { return None };
    pattern.is_literal().then(|| pattern.literal_prefix().to_owned())
}
