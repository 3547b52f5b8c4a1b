//! `commit`: commits the changed paths of one owner through an index of its own, made now from HEAD.
//!
//! The common index belongs to everybody in a work tree. So the commit is made with another index (`GIT_INDEX_FILE`): hooks, signing
//! and messages are git's own, and hooks see only these paths. Afterwards the same paths are updated in the common
//! index to what was committed. Nothing else in the common index changes. The caller holds the name `git/index` meanwhile.
//!
//! If this process is killed before git has moved HEAD, nothing has changed. If it is killed between that and the update of
//! the common index, `git status` shows the reverse of the commit as staged: `git reset -q -- PATH…` repairs that.

mod changes;
mod entry;
mod index;
mod index_lock;
mod selection;
mod staging;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use lockkeeper_core::id::{LeaseId, Owner};
use lockkeeper_core::record::Lease;
use lockkeeper_engine::Engine;
use lockkeeper_engine::open::OpenError;
use thiserror::Error;

use crate::caller::Caller;
use crate::foreign::{Foreign, Others, holds, holds_in, shown, shown_path};
use crate::git::{Git, GitError};
use crate::session::Sessions;
use crate::uncommitted::committed;
use changes::{Changed, Kind, changes};
use entry::{Made, between, made};
pub use index::OwnIndex;
use index::{set_in_common_index, wait_for_common_index};
pub use index_lock::index_request;
use selection::path_of;
pub use selection::{OutsideError, Selection};
pub use staging::Staging;

/// The variable that tells the git guard that `commit` itself releases the claims.
pub(crate) const COMMITS: &str = "LOCKKEEPER_COMMITS";
/// How far back a commit is looked for if others have committed after it.
const MAX_BACK: &str = "--max-count=100";

/// Operations of git that may be under way: the file or folder in the git folder that shows it, the name of the operation, and how
/// to end it.
const OPERATIONS: [(&str, &str, &str); 6] = [
    ("MERGE_HEAD", "a merge", "`git merge --continue` or `git merge --abort`"),
    ("rebase-merge", "a rebase", "`git rebase --continue` or `git rebase --abort`"),
    ("rebase-apply", "a rebase or `git am`", "`git rebase --abort` or `git am --abort`"),
    ("CHERRY_PICK_HEAD", "a cherry-pick", "`git cherry-pick --continue` or `git cherry-pick --abort`"),
    ("REVERT_HEAD", "a revert", "`git revert --continue` or `git revert --abort`"),
    ("sequencer", "a cherry-pick or revert", "`git cherry-pick --continue` or `git cherry-pick --abort`"),
];

/// A request to commit.
pub struct CommitRequest<'a> {
    /// The work tree.
    pub git: &'a Git,
    /// The lease store, the state folder and the name of the work tree in claims.
    pub engine: &'a Engine,
    /// See `engine`.
    pub state: &'a Path,
    /// See `engine`.
    pub work_tree: &'a str,
    /// The caller. An agent is refused paths of others, a person is only warned.
    pub caller: &'a Caller,
    /// The leases that the caller runs under. They are its own.
    pub around: &'a [LeaseId],
    /// The owners whose claims are released after the commit.
    pub owners: &'a [Owner],
    /// What to commit.
    pub selection: Selection,
    /// The paragraphs of the message.
    pub messages: &'a [String],
    /// Whether the output of git is collected instead of shown.
    pub collect: bool,
}

/// A commit that was made.
#[derive(Debug)]
pub struct Committed {
    /// The commit.
    pub commit: String,
    /// The paths that it changed. Hooks of the repository may have added some.
    pub paths: Vec<PathBuf>,
    /// What was asked for and is not in it, and why.
    pub left_out: Vec<(PathBuf, &'static str)>,
    /// The claims that were released.
    pub released: Vec<Lease>,
    /// Paths in it that others work on.
    pub foreign: Vec<Foreign>,
    /// What git printed, if it was collected.
    pub output: String,
    /// Why the common index could not be updated.
    pub index_error: Option<GitError>,
    /// Why the claims could not be released.
    pub release_error: Option<OpenError>,
}

/// Why `commit` failed. Nothing was changed, except after [`CommitError::Unseen`].
#[derive(Debug, Error)]
pub enum CommitError {
    /// Git is in the middle of something.
    #[error("{operation} is under way in this work tree")]
    UnderWay {
        /// What it is.
        operation: &'static str,
        /// How to end it.
        way_out: &'static str,
    },
    /// No path of the selection differs from HEAD.
    #[error("nothing to commit: {0}")]
    Nothing(&'static str),
    /// A file is in conflict.
    #[error("{} has conflicts that are not resolved", shown_path(.0))]
    Unmerged(PathBuf),
    /// Another owner works on a path.
    #[error("others work on these paths: {}", shown(.0))]
    Held(Vec<Foreign>),
    /// Somebody else has committed or switched meanwhile.
    #[error("HEAD has moved meanwhile")]
    HeadMoved,
    /// Another git command has the common index locked, and goes on.
    #[error("another git command has locked the common index: {}", shown_path(.0))]
    IndexLocked(PathBuf),
    /// Git, or a hook of the repository, refused.
    #[error("git has not made the commit")]
    Refused {
        /// What git and the hooks printed, if it was collected.
        output: String,
    },
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Git has made the commit, and then failed to show it.
    #[error("git has made a commit, but cannot show it")]
    Unseen(#[source] GitError),
    /// The lease store failed.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Git could not be started.
    #[error("cannot run git")]
    Io(#[from] io::Error),
}

/// Commits. The caller of this function holds `git/index`.
pub fn commit(request: &CommitRequest<'_>) -> Result<Committed, CommitError> {
    let git = request.git;
    let under_way = |(file, ..): &&(&str, &str, &str)| git.folder.join(file).symlink_metadata().is_ok();
    if let Some((_, operation, way_out)) = OPERATIONS.iter().find(under_way) {
        return Err(CommitError::UnderWay { operation, way_out });
    }
    if !wait_for_common_index(git) {
        return Err(CommitError::IndexLocked(git.folder.join("index.lock")));
    }
    let head = git.head();
    // Neither git command needs the result of the other, so both run at once.
    let (found, own) = thread::scope(|scope| {
        let own = scope.spawn(|| OwnIndex::new(git, request.state, head.as_deref()));
        let found = changes(git, &request.selection.pathspecs());
        (found, own.join())
    });
    let (found, own) = (found?, own.expect("making an index does not panic")?);
    if found.head != head {
        return Err(CommitError::HeadMoved);
    }
    let (chosen, left_out) = choose(request, &found.changed)?;
    let paths: Vec<PathBuf> = chosen.iter().map(|changed| changed.path.clone()).collect();
    let listing = request.engine.listing().map_err(OpenError::Store)?;
    let foreign = Others::new(&listing, request.work_tree, request.caller, request.around).among(&paths);
    if !foreign.is_empty() && request.caller.is_agent() {
        return Err(CommitError::Held(foreign));
    }
    let head = head.as_deref();
    own.take(git, &paths.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    let output = run_commit(request, &own, head)?;
    let made = find_commit(git, &own, head).map_err(|error| match error {
        CommitError::Git(error) => CommitError::Unseen(error),
        other => other,
    })?;
    let paths: Vec<PathBuf> = made.entries.iter().map(|entry| entry.path.clone()).collect();
    // The index of this commit shows what is as committed, so both run at once.
    let (index_error, released) = thread::scope(|scope| {
        let common = scope.spawn(|| set_in_common_index(git, &made.entries).err());
        let released = release(request, &paths, own.path());
        (common.join().expect("setting entries does not panic"), released)
    });
    let (released, release_error) = match released {
        Ok(released) => (released, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let commit = made.commit;
    Ok(Committed { commit, paths, left_out, released, foreign, output, index_error, release_error })
}

/// What is committed, and what is left out with the reason.
type Chosen<'c> = (Vec<&'c Changed>, Vec<(PathBuf, &'static str)>);

/// Chooses from the changed paths those of the selection. Fails if one of them is in conflict, or if none is left.
fn choose<'c>(request: &CommitRequest<'_>, changed: &'c [Changed]) -> Result<Chosen<'c>, CommitError> {
    let (mut chosen, mut left_out) = (Vec::new(), Vec::new());
    let all: BTreeSet<&Path> = changed.iter().map(|changed| changed.path.as_path()).collect();
    let sessions = Sessions::new(request.state);
    let has_written = |owner: &Owner, path: &Path| {
        sessions.get(owner).is_some_and(|session| session.has_written(&request.git.root.join(path)))
    };
    let is_asked = |changed: &&Changed| {
        request.selection.includes(&changed.path, |path| all.contains(path), has_written)
    };
    let asked: Vec<&Changed> = changed.iter().filter(is_asked).collect();
    for changed in &asked {
        let is_missing = || request.git.root.join(&changed.path).symlink_metadata().is_err();
        match changed.kind {
            Kind::Unmerged => return Err(CommitError::Unmerged(changed.path.clone())),
            Kind::Nested => left_out.push((changed.path.clone(), "a repository of its own")),
            Kind::Staged if is_missing() => {
                left_out.push((changed.path.clone(), "not in the sparse checkout"));
            }
            Kind::Staged | Kind::Here => chosen.push(*changed),
        }
    }
    let unchanged = |path: &&&str| !asked.iter().any(|changed| changed.path.starts_with(path));
    let named = request.selection.named();
    left_out.extend(
        named.iter().filter(unchanged).map(|path| (PathBuf::from(path), "not changed, or ignored by git")),
    );
    if !chosen.is_empty() {
        return Ok((chosen, left_out));
    }
    Err(CommitError::Nothing(match &request.selection {
        Selection::Claims(leases) if leases.is_empty() => {
            "this owner has no claims on files in this work tree"
        }
        Selection::Claims(_) => "the claimed files are as committed, or ignored by git",
        Selection::Paths(_) => "these paths are as committed, or ignored by git",
    }))
}

/// Lets git make the commit, with the hooks of the repository.
fn run_commit(
    request: &CommitRequest<'_>,
    own: &OwnIndex,
    head: Option<&str>,
) -> Result<String, CommitError> {
    let git = request.git;
    // Git itself refuses if HEAD moves while it runs, but the index was made before.
    if git.head().as_deref() != head {
        return Err(CommitError::HeadMoved);
    }
    let mut command = git.command();
    command.args(["commit", "--quiet"]).env("GIT_INDEX_FILE", own.path()).env(COMMITS, "1");
    command.args(request.messages.iter().map(|message| format!("--message={message}")));
    if let [owner] = request.owners {
        command.env("LOCKKEEPER_OWNER", owner.as_str());
    }
    let (succeeded, output) = if request.collect {
        let output = command.output()?;
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    } else {
        // Standard output is for the id of the commit.
        let status = command.stdout(Stdio::from(io::stderr())).status()?;
        (status.success(), String::new())
    };
    if succeeded {
        return Ok(output);
    }
    if git.head().as_deref() != head {
        return Err(CommitError::HeadMoved);
    }
    if head.is_some_and(|head| own.run(git, &["diff-index", "--cached", "--quiet", head], b"").is_ok()) {
        return Err(CommitError::Nothing("in the work tree these paths are as committed"));
    }
    Err(CommitError::Refused { output })
}

/// Finds the commit that git has just made. If its parent is not the commit that the index was made from, the new commit would
/// revert that parent, so it is taken back.
fn find_commit(git: &Git, own: &OwnIndex, head: Option<&str>) -> Result<Made, CommitError> {
    let last = made(git, "HEAD")?;
    if last.parent.as_deref() == head {
        return Ok(last);
    }
    let tree = own.run(git, &["write-tree"], b"")?;
    let tree = String::from_utf8_lossy(&tree).trim().to_owned();
    let list = ["log", MAX_BACK, "--first-parent", "--no-show-signature", "--format=%H %T", "HEAD"];
    let recent = String::from_utf8_lossy(&git.run(None, &list, b"")?).into_owned();
    let ours = recent.lines().filter_map(|line| line.split_once(' ')).find(|(_, of)| *of == tree);
    let ours = made(git, ours.map(|(commit, _)| commit).ok_or(CommitError::HeadMoved)?)?;
    match (ours.parent.as_deref(), head) {
        (parent, head) if parent == head => {
            // Others have committed on top of it, and have updated the common index themselves.
            let later = between(git, &ours.commit, "HEAD")?;
            let mut ours = ours;
            ours.entries.retain(|entry| !later.iter().any(|other| other.path == entry.path));
            Ok(ours)
        }
        (Some(parent), _) => {
            let why = "lockkeeper commit: HEAD had moved";
            git.run(None, &["update-ref", "-m", why, "HEAD", parent, &ours.commit], b"")?;
            Err(CommitError::HeadMoved)
        }
        (None, _) => Err(CommitError::HeadMoved),
    }
}

/// Releases the claims of the owner to paths that are as committed.
fn release(request: &CommitRequest<'_>, paths: &[PathBuf], index: &Path) -> Result<Vec<Lease>, OpenError> {
    let mut released = Vec::new();
    for owner in request.owners {
        released.extend(release_committed(
            request.engine,
            request.state,
            owner,
            request.work_tree,
            &request.git.root,
            paths,
            Some(index),
        )?);
    }
    Ok(released)
}

/// Releases the claims of an agent to these paths, where the work tree is as committed. A file that was changed again stays claimed.
pub(crate) fn release_committed(
    engine: &Engine,
    state: &Path,
    owner: &Owner,
    work_tree: &str,
    root: &Path,
    paths: &[PathBuf],
    index: Option<&Path>,
) -> Result<Vec<Lease>, OpenError> {
    let mut leases = engine.leases_of(owner)?;
    leases.retain(|lease| {
        lease.claim.agent.is_some()
            && holds_in(lease, work_tree)
            && paths.iter().any(|path| holds(lease, path))
    });
    if leases.is_empty() {
        return Ok(leases);
    }
    let files: Vec<String> = leases
        .iter()
        .flat_map(|lease| lease.claim.targets())
        .filter_map(path_of)
        .map(|pattern| pattern.literal_prefix().to_owned())
        .collect();
    let session = Sessions::new(state).get(owner).unwrap_or_default();
    // A committed file that has become a folder: only what the agent has written there is its work.
    let counts = |claimed: &Path, changed: &Path| {
        changed == claimed
            || !paths.iter().any(|path| path == claimed)
            || session.has_written(&root.join(changed))
    };
    let clean = committed(root, &files, index, &counts).unwrap_or_default();
    leases.retain(|lease| {
        lease.claim.targets().filter_map(path_of).all(|pattern| clean.contains(pattern.literal_prefix()))
    });
    for lease in &leases {
        // If the lease has ended meanwhile, nothing is left to release.
        let _ = engine.release(lease.id, Some(lease.token))?;
    }
    Ok(leases)
}
