//! The repositories that one hook call concerns, each with its lease store and its records of agents.

use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::{LeaseId, Token};
use lockkeeper_core::lease::{AgentAnswer, AgentCall};
use lockkeeper_core::time::Moment;
use lockkeeper_engine::Engine;
use lockkeeper_engine::location::Location;
use lockkeeper_engine::open::{OpenError, has_store, open_engine};

use super::HookError;
use crate::repository::Wanted;
use crate::session::Sessions;

/// One repository. Its lease store is opened when it is first needed.
pub(super) struct Store {
    pub(super) state: PathBuf,
    pub(super) root: PathBuf,
    tree: String,
    pub(super) sessions: Sessions,
}

impl Store {
    pub(super) fn new(location: &Location) -> Self {
        let (state, root) = (location.state.clone(), location.root.clone());
        Self { sessions: Sessions::new(&state), tree: location.work_tree(), state, root }
    }

    /// The root of a work tree of this repository, by the name that claims have for it.
    pub(super) fn root_of(&self, tree: &str) -> Option<PathBuf> {
        let common = self.state.parent()?;
        match tree {
            own if own == self.tree => Some(self.root.clone()),
            "." => common.parent().map(Path::to_owned),
            linked if linked.starts_with("worktrees/") => {
                // `gitdir` names the file `.git` of the work tree.
                let file = fs::read_to_string(common.join(linked).join("gitdir")).ok()?;
                Path::new(file.trim_end()).parent().map(Path::to_owned)
            }
            root => Some(PathBuf::from(root)),
        }
    }

    /// Whether anything was ever claimed here.
    pub(super) fn exists(&self) -> bool {
        has_store(&self.state)
    }

    pub(super) fn engine(&self) -> Result<Engine, HookError> {
        Ok(open_engine(&self.state)?)
    }

    pub(super) fn call(&self, call: &AgentCall) -> Result<(AgentAnswer, Moment), HookError> {
        Ok(self.engine()?.agent_call(call).map_err(OpenError::Store)?)
    }

    /// Releases leases that this very call took.
    pub(super) fn release(&self, leases: &[(LeaseId, Token)]) -> Result<(), HookError> {
        if leases.is_empty() {
            return Ok(());
        }
        let engine = self.engine()?;
        for (lease, token) in leases {
            // If the lease has ended meanwhile, nothing is left to release.
            let _ = engine.release(*lease, Some(*token)).map_err(OpenError::Store)?;
        }
        Ok(())
    }
}

/// All repositories of a call: the one in which the agent works first, then those of its files.
pub(super) struct Stores(Vec<Store>);

impl Stores {
    pub(super) fn new(home: Option<&Location>, wanted: &[Wanted]) -> Self {
        let mut stores = Self(home.into_iter().map(Store::new).collect());
        for wanted in wanted {
            stores.add(Store::new(&wanted.location));
        }
        stores
    }

    /// Adds repositories in which the agent has claims from earlier calls.
    pub(super) fn add_known(&mut self, states: &[PathBuf]) {
        for state in states.iter().filter(|state| state.join("agents").is_dir()) {
            let root = state.parent().and_then(Path::parent).unwrap_or(state).to_owned();
            let (tree, sessions) = (".".to_owned(), Sessions::new(state));
            self.add(Store { state: state.clone(), root, tree, sessions });
        }
    }

    fn add(&mut self, store: Store) {
        if !self.0.iter().any(|known| known.state == store.state) {
            self.0.push(store);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn at(&self, at: usize) -> &Store {
        &self.0[at]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Store> {
        self.0.iter()
    }
}
