//! The git guard: what Lockkeeper does in the hooks of git.
//!
//! Before a commit, an agent is refused paths that another live owner works on; people are only warned. `--no-verify` skips
//! `pre-commit`, but not `prepare-commit-msg`, so both look. After HEAD has moved, the other agents in the same work tree are told, and the
//! claims on what was committed end. Everything that fails lets git go on.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;

use lockkeeper_core::liveness::{Origin, ProcessRef};
use lockkeeper_engine::location::Location;
use lockkeeper_engine::open::{has_store, open_engine, open_engine_to_read};
use lockkeeper_engine::under;

use crate::caller::Caller;
use crate::commit::{COMMITS, release_committed};
use crate::foreign::{Others, shown};
use crate::git::{Git, GitError, path_text};
use crate::repository::{locate, takes_part};
use crate::session::{Session, Sessions};

/// The beginning of the news that HEAD moved.
const MOVED: &str = "HEAD moved from ";
/// Refs to commits that a merge, a cherry-pick or a rebase takes over. Their content is nobody's uncommitted work.
const TAKEN_OVER: [&str; 3] = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REBASE_HEAD"];

/// A hook of git.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitEvent {
    /// Before a commit, unless `--no-verify` is given.
    PreCommit,
    /// Before a commit, always.
    PrepareCommitMsg,
    /// After a commit.
    PostCommit,
    /// After a switch, or after files were checked out.
    PostCheckout,
    /// After a merge or pull.
    PostMerge,
    /// After an amended commit or a rebase.
    PostRewrite,
}

impl GitEvent {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::PreCommit,
        Self::PrepareCommitMsg,
        Self::PostCommit,
        Self::PostCheckout,
        Self::PostMerge,
        Self::PostRewrite,
    ];

    /// The name that git has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PreCommit => "pre-commit",
            Self::PrepareCommitMsg => "prepare-commit-msg",
            Self::PostCommit => "post-commit",
            Self::PostCheckout => "post-checkout",
            Self::PostMerge => "post-merge",
            Self::PostRewrite => "post-rewrite",
        }
    }
}

impl FromStr for GitEvent {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|event| event.name() == text).ok_or(())
    }
}

/// One call of a hook of git.
pub struct GitCall<'a> {
    /// Which hook.
    pub event: GitEvent,
    /// What git says in its arguments.
    pub words: &'a [String],
    /// The repository.
    pub location: &'a Location,
    /// This machine, and this process with its ancestors.
    pub here: &'a Origin,
    /// See `here`.
    pub ancestors: &'a [ProcessRef],
    /// Reads an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// How the agent's shell finds this program.
    pub program: &'a dyn Fn() -> String,
}

/// What the hook says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitAnswer {
    /// Text for stderr.
    pub message: Option<String>,
    /// Whether git is to stop.
    pub refused: bool,
}

/// Answers a hook of git. An error means: let git go on, and log it.
pub fn answer_git(call: &GitCall<'_>) -> Result<GitAnswer, Box<dyn std::error::Error>> {
    if !takes_part(call.location) {
        return Ok(GitAnswer::default());
    }
    let sessions = Sessions::new(&call.location.state);
    let all = sessions.all(call.here)?;
    let named = (call.variable)("LOCKKEEPER_OWNER").and_then(|text| text.parse().ok());
    let caller = Caller::find(&all, named, call.ancestors, call.here, call.variable);
    match call.event {
        GitEvent::PreCommit | GitEvent::PrepareCommitMsg => check(call, &caller),
        GitEvent::PostCommit | GitEvent::PostCheckout | GitEvent::PostMerge | GitEvent::PostRewrite => {
            let git = Git::find(&call.location.root)?;
            tell_others(call, &git, &caller, &sessions, &all)?;
            if call.event == GitEvent::PostCommit && (call.variable)(COMMITS).is_none() {
                release(call, &git, &caller)?;
            }
            Ok(GitAnswer::default())
        }
    }
}

/// Before a commit: finds paths in it that others work on.
fn check(call: &GitCall<'_>, caller: &Caller) -> Result<GitAnswer, Box<dyn std::error::Error>> {
    let state = &call.location.state;
    if !has_store(state) {
        return Ok(GitAnswer::default());
    }
    let listing = open_engine_to_read(state)?.listing()?;
    let work_tree = call.location.work_tree();
    let under = (call.variable)(under::VARIABLE).unwrap_or_default();
    let others = Others::new(&listing, &work_tree, caller, &under::read(under.as_ref(), state));
    // Mostly nobody else works here. Then git need not be asked.
    if others.is_empty() {
        return Ok(GitAnswer::default());
    }
    let found = others.among(&staged_paths(call)?.into_iter().collect::<Vec<_>>());
    if found.is_empty() {
        return Ok(GitAnswer::default());
    }
    let shown = shown(&found);
    if !caller.is_agent() {
        // Once is enough: git calls `prepare-commit-msg` in any case.
        let message = format!("lockkeeper: warning: this commit has files that others work on: {shown}");
        let message = Some(message).filter(|_| call.event == GitEvent::PrepareCommitMsg);
        return Ok(GitAnswer { message, refused: false });
    }
    let message = format!(
        "lockkeeper: nothing was committed: this commit has files that others work on: {shown}. This command commits exactly \
         the files that {} has claimed: `{} commit -m MSG`; with paths behind it, exactly those.",
        caller.shown(),
        (call.program)(),
    );
    Ok(GitAnswer { message: Some(message), refused: true })
}

/// The paths of the commit, both names of what was renamed. What is taken over from another commit does not count.
fn staged_paths(call: &GitCall<'_>) -> Result<BTreeSet<PathBuf>, GitError> {
    // The hook has the index of this very commit in its environment, which may not be the common one.
    let index = (call.variable)("GIT_INDEX_FILE").map(|index| call.location.root.join(index));
    let git = Git::find(&call.location.root)?;
    let diff = |against: Option<&str>| -> Result<BTreeSet<PathBuf>, GitError> {
        let mut args = vec!["diff", "--cached", "--name-status", "-M", "-z", "--no-ext-diff"];
        args.extend(against);
        args.push("--");
        Ok(names(&git.run(index.as_deref(), &args, b"")?))
    };
    let mut paths = diff(None)?;
    for other in TAKEN_OVER {
        if !paths.is_empty() && git.folder.join(other).exists() {
            let differs = diff(Some(other))?;
            paths.retain(|path| differs.contains(path));
        }
    }
    Ok(paths)
}

/// `M`, path; `R100`, old path, new path; each ended by a zero byte.
fn names(output: &[u8]) -> BTreeSet<PathBuf> {
    let mut paths = BTreeSet::new();
    let mut tokens = output.split(|byte| *byte == 0);
    while let Some(status) = tokens.next().filter(|status| !status.is_empty()) {
        let count = if matches!(status[0], b'R' | b'C') { 2 } else { 1 };
        paths.extend(tokens.by_ref().take(count).map(|name| PathBuf::from(path_text(name))));
    }
    paths
}

/// Tells the other agents in this work tree from where to where HEAD moved, and by whom.
fn tell_others(
    call: &GitCall<'_>,
    git: &Git,
    caller: &Caller,
    sessions: &Sessions,
    all: &[Session],
) -> Result<(), std::io::Error> {
    let others = all.iter().filter_map(|session| session.owner.parse().ok().map(|owner| (session, owner)));
    let others: Vec<_> = others
        .filter(|(session, owner)| !caller.is_family_of(owner) && works_in(session, call.location))
        .map(|(_, owner)| owner)
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    let Some((from, to)) = moved(call, git) else { return Ok(()) };
    let branch = git.line(&["symbolic-ref", "--short", "--quiet", "HEAD"]);
    let branch = branch.map_or_else(|| "no branch".to_owned(), |branch| format!("branch {branch}"));
    for owner in others {
        sessions.update(&owner, |session| {
            // Several moves become one: from the commit that the agent was last told of.
            let earlier = session.news.iter().find_map(|news| news.strip_prefix(MOVED)?.split(' ').next());
            let first = earlier.unwrap_or(&from).to_owned();
            session.news.retain(|news| !news.starts_with(MOVED));
            session.add_news(format!("{MOVED}{first} to {to} ({branch}) by {}.", caller.shown()));
        })?;
    }
    Ok(())
}

/// Whether an agent works in this work tree. Each work tree has its own HEAD, so other agents are not told.
fn works_in(session: &Session, location: &Location) -> bool {
    let named = (location.source == lockkeeper_engine::location::LocationSource::Named)
        .then_some(location.state.as_path());
    locate(session.cwd.as_ref(), named).is_some_and(|found| found.root == location.root)
}

/// From where to where HEAD moved, in short. None if it did not.
fn moved(call: &GitCall<'_>, git: &Git) -> Option<(String, String)> {
    let short = |commit: &str| git.line(&["rev-parse", "--short", "--verify", "--quiet", commit]);
    let from = match (call.event, call.words) {
        // The third word is 0 if only files were checked out. Zeros: a new clone or work tree.
        (GitEvent::PostCheckout, [from, _, kind]) if kind == "1" && from.bytes().any(|byte| byte != b'0') => {
            from.as_str()
        }
        (GitEvent::PostCheckout, _) => return None,
        // `post-commit` has reported it already.
        (GitEvent::PostRewrite, [kind, ..]) if kind == "amend" => return None,
        (GitEvent::PostMerge | GitEvent::PostRewrite, _) => "ORIG_HEAD",
        (GitEvent::PostCommit | GitEvent::PreCommit | GitEvent::PrepareCommitMsg, _) => "HEAD@{1}",
    };
    Some((short(from).unwrap_or_else(|| "nothing".to_owned()), short("HEAD")?))
}

/// Releases the claims of the committing agent to what is in the commit.
fn release(call: &GitCall<'_>, git: &Git, caller: &Caller) -> Result<(), Box<dyn std::error::Error>> {
    let Caller::Agents(owners) = caller else { return Ok(()) };
    if !has_store(&call.location.state) {
        return Ok(());
    }
    let args = ["diff-tree", "--root", "--no-commit-id", "-r", "-z", "--name-status", "--no-renames", "HEAD"];
    let paths: Vec<PathBuf> = names(&git.run(None, &args, b"")?).into_iter().collect();
    let engine = open_engine(&call.location.state)?;
    for owner in owners {
        release_committed(
            &engine,
            &call.location.state,
            owner,
            &call.location.work_tree(),
            &git.root,
            &paths,
            None,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_a_rename_count() {
        let found = names(b"M\0a b\0R100\0old\0new\0D\0gone\0");
        let expected = ["a b", "gone", "new", "old"].map(PathBuf::from);
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
        assert!(names(b"").is_empty());
    }

    #[test]
    fn events_have_the_names_of_git() {
        for event in GitEvent::ALL {
            assert_eq!(event.name().parse(), Ok(event));
        }
        assert_eq!("update".parse::<GitEvent>(), Err(()));
    }
}
