//! Attribution: finds the owner of files that a command has changed, if its writes could not be known before.
//!
//! The kernel notes when a file last changed (ctime), and no program can set that back. So a command changed the paths that
//! differ from the last commit and whose ctime is after its start; nothing has to be read before it. A file that is free
//! becomes the agent's. A file that another owner has is an incident, unless that owner may have written it in the same
//! time: both are told, and the log of incidents has a line.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::Owner;
use lockkeeper_core::record::{Claim, Lease};
use lockkeeper_engine::open::OpenError;
use lockkeeper_platform::wall_clock::WallTime;

use super::stores::{Store, Stores};
use super::{Hook, HookError, is_covered, tell_of_work_trees};
use crate::claims::{WorkTrees, claim_of};
use crate::hook_log::HookLog;
use crate::open_calls::{OpenCall, Wrote};
use crate::place::join;
use crate::quote::{cut, one_line};
use crate::repository::{Wanted, locate, takes_part, wanted_file};
use crate::session::{Session, Written};
use crate::worktree_status::{changed, ignored};

/// With more changed files than this, none is claimed: nobody would edit them one by one.
const MAX_FILES: usize = 300;

impl Hook<'_> {
    /// Finds the files that calls have changed although that could not be known before, and their owners.
    pub(super) fn look(&self, stores: &Stores, calls: &[OpenCall]) -> Result<(), HookError> {
        for call in calls {
            // Without git, or in a repository that no longer takes part, nothing can be attributed.
            let named = self.call.state.as_deref();
            let Some(location) = locate(&call.root, named).filter(takes_part) else { continue };
            let store = Store::new(&location);
            let since = call.began;
            let told = self.input.changed.as_ref().filter(|_| calls.len() == 1);
            let files = match told {
                Some(told) => self.told_files(&location.root, told),
                None => changed_since(&location.root, since),
            };
            // Mostly nothing has changed.
            if told.is_some() && files.is_empty() {
                continue;
            }
            let mut checks = match told {
                Some(_) => Vec::new(),
                None => self.lost_files(&store, since),
            };
            checks.retain(|path| !files.contains(path));
            if let Some(file) = files.iter().find(|file| file.to_str().is_none()) {
                let file = cut(&one_line(&file.to_string_lossy()), 160);
                let message =
                    format!("{file} is not UTF-8, so nobody can claim it: others may write it as well");
                HookLog::new(&store.state).add_once(self.owner.as_str(), &message);
            }
            if !files.is_empty() || !checks.is_empty() {
                let others = self.others(&store);
                self.attribute(stores, &store, call, (&files, &checks), &others)?;
            }
        }
        Ok(())
    }

    /// The files that the harness says were changed, without those that git ignores.
    fn told_files(&self, root: &Path, told: &[String]) -> Vec<PathBuf> {
        let files: Vec<PathBuf> = told.iter().map(|path| join(&self.cwd, path)).collect();
        let inside: Vec<&Path> =
            files.iter().map(PathBuf::as_path).filter(|path| path.starts_with(root)).collect();
        if inside.is_empty() {
            return files;
        }
        let ignored = ignored(root, &inside);
        files.into_iter().filter(|file| !ignored.contains(file)).collect()
    }

    /// The records of other agents, also of those that are gone: leases tell who lives.
    fn others(&self, store: &Store) -> Vec<Session> {
        let all: Vec<Session> = store.sessions.recorded().unwrap_or_default();
        all.into_iter().filter(|session| session.owner != self.owner.as_str()).collect()
    }

    /// Files that others wrote before, and that were changed or removed since without a trace in `git status`: such as
    /// uncommitted work that was reverted.
    fn lost_files(&self, store: &Store, since: i64) -> Vec<PathBuf> {
        let all: Vec<Written> = store.sessions.recorded().unwrap_or_default();
        let others = all.iter().filter(|agent| agent.owner != self.owner.as_str());
        let earlier = others.flat_map(|agent| &agent.wrote).filter(|(_, wrote)| wrote.at < since);
        let is_lost = |(path, wrote): &(&String, &Wrote)| match Path::new(path).symlink_metadata() {
            Ok(meta) => changed_at(&meta) >= since,
            Err(_) => wrote.exists,
        };
        let inside = earlier.filter(|(path, _)| Path::new(path).starts_with(&store.root));
        inside.filter(is_lost).map(|(path, _)| PathBuf::from(path)).collect()
    }

    fn attribute(
        &self,
        stores: &Stores,
        store: &Store,
        call: &OpenCall,
        (files, checks): (&[PathBuf], &[PathBuf]),
        others: &[Session],
    ) -> Result<(), HookError> {
        let (proof, settings) = (self.proof()?, (self.call.settings)(&store.root));
        // Another command that is not known runs here as well: nobody can tell which of them made a new file.
        let is_open = |other: &OpenCall| other.unknown.is_some() && other.root == call.root;
        let works = |other: &Session| other.calls.iter().any(is_open) && !other.is_gone(&proof.origin);
        let is_alone = !others.iter().any(works);
        let note = store.sessions.get(&self.owner).and_then(|session| session.note);
        let named = self.call.state.as_deref();
        let around = self.claims_around(store)?;
        let found = |paths: &[PathBuf]| -> (Vec<Wanted>, Vec<Claim>) {
            let wanted = paths.iter().filter_map(|path| wanted_file(path, named));
            let is_asked =
                |wanted: &Wanted| wanted.location.state == store.state && !is_covered(&around, wanted);
            let wanted: Vec<Wanted> = wanted.filter(is_asked).collect();
            let claim = |wanted: &Wanted| claim_of(wanted, &self.owner, &proof, note.as_deref(), &settings);
            let claims = wanted.iter().map(claim).collect();
            (wanted, claims)
        };
        // With too many files, only those that another agent has written are looked up.
        let is_written = |path: &&PathBuf| {
            let of = |other: &Session| path.to_str().is_some_and(|path| other.wrote.contains_key(path));
            others.iter().any(of)
        };
        let written: Vec<PathBuf> = files.iter().filter(is_written).cloned().collect();
        let are_many = files.len() > MAX_FILES;
        let files = if are_many { written.as_slice() } else { files };
        let (mut wanted, mut claims) = found(files);
        let (lost, mut checks) = found(checks);
        if !is_alone || are_many {
            checks.append(&mut claims);
        }
        wanted.extend(lost);
        let attributed = store.engine()?.attribute(&claims, &checks).map_err(OpenError::Store)?;
        let mut news = Vec::new();
        for (claim, lease) in &attributed.foreign {
            let Some(wanted) = wanted.iter().find(|wanted| wanted.resources == claim.resources) else {
                continue;
            };
            news.extend(self.incident(store, call, wanted, lease, others)?);
        }
        if settings.work_trees == WorkTrees::Tell {
            let here = store.root.display().to_string();
            let told = tell_of_work_trees(&store.sessions, &self.owner, &attributed.elsewhere, &here);
            news.extend(told.map_err(HookError::Sessions)?);
        }
        let is_foreign = |path: &Path| {
            let of_claim =
                |claim: &Claim| wanted.iter().any(|w| w.path == path && w.resources == claim.resources);
            attributed.foreign.iter().any(|(claim, _)| of_claim(claim))
        };
        let now = WallTime::of_files().as_micros();
        let home = stores.iter().next().unwrap_or(store);
        let change = |session: &mut Session| {
            news.into_iter().for_each(|text| session.add_news(text));
            files.iter().filter(|path| !is_foreign(path)).for_each(|path| session.note_written(path, now));
        };
        home.sessions.update(&self.owner, change).map(|_| ()).map_err(HookError::Sessions)
    }

    /// A file of another owner was changed. Returns what this agent has to be told.
    fn incident(
        &self,
        store: &Store,
        call: &OpenCall,
        wanted: &Wanted,
        lease: &Lease,
        others: &[Session],
    ) -> Result<Option<String>, HookError> {
        let holder: &Owner = &lease.claim.owner;
        let session = others.iter().find(|session| session.owner == holder.as_str());
        // The holder has written the file since the command began, or may have done so in a call that is open.
        if session.is_some_and(|session| session.may_have_written(&wanted.path, call.began)) {
            return Ok(None);
        }
        let wrote = session.and_then(|session| session.wrote.get(wanted.path.to_str()?));
        let is_there = wanted.path.symlink_metadata().is_ok();
        // The holder has removed it itself, earlier.
        if !is_there && wrote.is_some_and(|wrote| !wrote.exists) {
            return Ok(None);
        }
        let file = cut(&one_line(&wanted.shown), 160);
        let verb = if is_there { "changed" } else { "removed" };
        let why = call.unknown.as_deref().unwrap_or("a command");
        let (owner, why) = (&self.owner, cut(&one_line(why), 80));
        HookLog::incidents(&store.state).add(
            owner.as_str(),
            &format!("{file}, which {holder} has claimed, was {verb} while a command of {owner} ran ({why})"),
        );
        if session.is_some() {
            let news = format!(
                "{file}, which you have claimed, was {verb} while a command of {owner} ran ({why}). What you had read of it may be out of date."
            );
            store.sessions.update(holder, |session| session.add_news(news)).map_err(HookError::Sessions)?;
        }
        Ok(Some(format!(
            "{file} was {verb} while your command ran ({why}). {holder} has claimed it and was told. It is not yours: edits of it are denied."
        )))
    }
}

/// The paths that differ from the last commit and changed since then.
fn changed_since(root: &Path, since: i64) -> Vec<PathBuf> {
    let all = changed(root).unwrap_or_default().into_iter().map(|changed| root.join(changed.path));
    let is_new = |path: &PathBuf| match path.symlink_metadata() {
        Ok(meta) => changed_at(&meta) >= since,
        // The path was removed, at the latest when its folder last changed. If the folder is gone as well, the time is not known.
        Err(_) => path
            .parent()
            .and_then(|folder| folder.symlink_metadata().ok())
            .is_none_or(|meta| changed_at(&meta) >= since),
    };
    all.filter(is_new).collect()
}

/// When an entry last changed, in microseconds since 1970.
fn changed_at(meta: &std::fs::Metadata) -> i64 {
    meta.ctime().saturating_mul(1_000_000).saturating_add(meta.ctime_nsec() / 1_000)
}
