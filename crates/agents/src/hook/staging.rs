//! Staging: whether a git command would take the changed files of others into the index or into a commit.

use std::path::{Path, PathBuf};

use lockkeeper_core::id::Owner;
use lockkeeper_engine::location::Location;
use lockkeeper_engine::open::{OpenError, has_store, open_engine_to_read};

use super::{Hook, HookError, Plan};
use crate::caller::Caller;
use crate::deny_text::quote_for_shell;
use crate::foreign::{Foreign, Others, shown};
use crate::worktree_status::{Changed, changed};
use crate::writes::Staged;

/// Files of git that show a merge, cherry-pick, rebase or revert under way. The git guard checks the paths of its commit.
const TAKES_OVER: [&str; 4] = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REBASE_HEAD", "REVERT_HEAD"];

impl Hook<'_> {
    /// Why the call is refused: it would take others' changed files along, or format them.
    pub(super) fn takes_others_along(&self, plan: &Plan) -> Result<Option<String>, HookError> {
        for (location, staged) in &plan.staging {
            // What a merge takes over from another commit is nobody's work here.
            if is_taking_over(location) {
                continue;
            }
            let found = self.foreign_changes(location, |changed| takes(staged, changed, &location.root))?;
            if !found.is_empty() {
                return Ok(Some(refusal(&found, &self.owner, &(self.call.program)())));
            }
        }
        for (location, formats) in &plan.formats {
            let found =
                self.foreign_changes(location, |changed| formats.covers(&location.root.join(&changed.path)))?;
            if !found.is_empty() {
                return Ok(Some(format!(
                    "Nothing was run: the command formats all files that it finds, and others work on {}. With paths behind it, \
                     it formats exactly those.",
                    shown(&found)
                )));
            }
        }
        Ok(None)
    }

    fn foreign_changes(
        &self,
        location: &Location,
        is_taken: impl Fn(&Changed) -> bool,
    ) -> Result<Vec<Foreign>, HookError> {
        if !has_store(&location.state) {
            return Ok(Vec::new());
        }
        let listing = open_engine_to_read(&location.state)?.listing().map_err(OpenError::Store)?;
        let work_tree = location.work_tree();
        let caller = Caller::Agents(vec![self.owner.clone()]);
        let others = Others::new(&listing, &work_tree, &caller, &self.around(&location.state));
        // Mostly nobody else works here. Then git need not be asked.
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let changed = changed(&location.root).unwrap_or_default();
        let paths: Vec<PathBuf> = changed.into_iter().filter(is_taken).map(|changed| changed.path).collect();
        Ok(others.among(&paths))
    }
}

fn takes(staged: &Staged, changed: &Changed, root: &Path) -> bool {
    match staged {
        Staged::Nothing => false,
        Staged::Changed => true,
        Staged::Tracked => !changed.is_new,
        Staged::Index => changed.is_staged,
        Staged::Paths(targets) => targets.iter().any(|target| target.covers(&root.join(&changed.path))),
    }
}

/// Whether a merge, cherry-pick, rebase or revert is under way in the work tree.
fn is_taking_over(location: &Location) -> bool {
    let Some(common) = location.state.parent() else { return false };
    let folder = common.join(location.work_tree());
    TAKES_OVER.iter().any(|name| folder.join(name).exists())
}

fn refusal(found: &[Foreign], owner: &Owner, program: &str) -> String {
    let (program, owner) = (quote_for_shell(program), quote_for_shell(owner.as_str()));
    format!(
        "Nothing was run: the command would take along changed files that others work on: {}. This command commits exactly the \
         files that you have claimed, whatever is staged: `{program} commit --owner {owner} -m MSG`; with paths behind it, \
         exactly those.",
        shown(found)
    )
}
