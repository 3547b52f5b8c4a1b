//! Owners of staged files: groups share an index of git, and a commit of one group leaves out what other groups have staged.
//!
//! The caller holds `git/index` while a command of git runs. The difference between index and HEAD is read before and after
//! the command: what has changed was staged by the owner of the command. A commit without paths then uses a copy of the index
//! in which everything that other live owners have staged is as in HEAD. What nobody or a dead owner has staged is committed
//! as by git alone.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lockkeeper_core::id::Owner;
use lockkeeper_engine::Engine;
use lockkeeper_platform::access;

use super::entry::{Entry, made};
use super::index::{OwnIndex, set_in_common_index};
use crate::git::{Git, GitError, path_text};

/// The list in the state folder: owner and path, each ended by a zero byte.
const FILE: &str = "staged";

/// A path that the index has differently from HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Staged {
    in_head: Entry,
    /// Mode and object.
    in_index: (String, String),
}

/// What is staged before a command of git, and by whom.
pub struct Staging<'s> {
    git: Git,
    state: &'s Path,
    owner: &'s Owner,
    before: Vec<Staged>,
    /// Owners and absolute paths.
    known: Vec<(String, PathBuf)>,
}

impl<'s> Staging<'s> {
    /// Looks at the index of a work tree. None while a merge is under way: git alone decides there.
    pub fn look(
        git: Git,
        state: &'s Path,
        engine: &Engine,
        owner: &'s Owner,
    ) -> Result<Option<Self>, GitError> {
        if git.folder.join("MERGE_HEAD").exists() {
            return Ok(None);
        }
        let before = staged(&git)?;
        let mut known = read(state).map_err(GitError::NotStarted)?;
        if known.iter().any(|(of, _)| of != owner.as_str()) {
            let listing = engine.listing().map_err(|error| GitError::NotStarted(io::Error::other(error)))?;
            let alive = listing.holders.iter().filter(|holder| !holder.verdict.is_free());
            let alive: BTreeSet<&str> = alive.map(|holder| holder.lease.claim.owner.as_str()).collect();
            known.retain(|(of, _)| alive.contains(of.as_str()));
        }
        Ok(Some(Self { git, state, owner, before, known }))
    }

    /// An index without what other owners have staged. None if they have staged nothing.
    pub fn own_index(&self) -> Result<Option<OwnIndex>, GitError> {
        let foreign = |staged: &&Staged| {
            let path = self.git.root.join(&staged.in_head.path);
            self.known.iter().any(|(of, known)| *known == path && of != self.owner.as_str())
        };
        let foreign: Vec<Entry> = self.before.iter().filter(foreign).map(|one| one.in_head.clone()).collect();
        if foreign.is_empty() {
            return Ok(None);
        }
        OwnIndex::without(&self.git, self.state, &foreign).map(Some)
    }

    /// After a commit with an index of its own, sets its paths in the common index to what was committed: hooks of the repository
    /// may have changed them.
    pub fn committed(&self) -> Result<(), GitError> {
        set_in_common_index(&self.git, &made(&self.git, "HEAD")?.entries)
    }

    /// Writes down what the command has staged.
    pub fn record(mut self) -> Result<(), GitError> {
        let (after, known) = (staged(&self.git)?, self.known.clone());
        let root = &self.git.root;
        let is_staged = |path: &Path| after.iter().any(|one| root.join(&one.in_head.path) == path);
        self.known.retain(|(_, path)| !path.starts_with(root) || is_staged(path));
        for one in after.iter().filter(|one| !self.before.contains(one)) {
            let path = root.join(&one.in_head.path);
            self.known.retain(|(_, known)| *known != path);
            self.known.push((self.owner.to_string(), path));
        }
        if self.known == known {
            Ok(())
        } else {
            write(self.state, &self.known).map_err(GitError::NotStarted)
        }
    }
}

/// `:MODE MODE OBJECT OBJECT STATUS` and the path, each ended by a zero byte: first as in HEAD, then as in the index.
fn staged(git: &Git) -> Result<Vec<Staged>, GitError> {
    // Before the first commit, everything in the index is new. The name of the empty tree depends on the repository's hash.
    let empty_tree = || git.run(None, &["hash-object", "-t", "tree", "--stdin"], b"");
    let head = git
        .head()
        .map_or_else(|| empty_tree().map(|name| path_text(name.trim_ascii())), |head| Ok(head.into()))?;
    let head = head.to_string_lossy();
    let output = git.run(None, &["diff-index", "--cached", "--raw", "-z", "--no-renames", &head], b"")?;
    let mut tokens = output.split(|byte| *byte == 0);
    let mut found = Vec::new();
    while let (Some(raw), Some(path)) = (tokens.next(), tokens.next()) {
        let raw = String::from_utf8_lossy(raw).into_owned();
        if let [mode, new_mode, object, new_object, _] =
            raw.trim_start_matches(':').split(' ').collect::<Vec<_>>()[..]
        {
            let path = Path::new(&path_text(path)).to_owned();
            let in_head = Entry { mode: mode.to_owned(), object: object.to_owned(), path };
            found.push(Staged { in_head, in_index: (new_mode.to_owned(), new_object.to_owned()) });
        }
    }
    Ok(found)
}

fn read(state: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let bytes = match fs::read(state.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let mut tokens = bytes.split(|byte| *byte == 0);
    let mut found = Vec::new();
    while let (Some(owner), Some(path)) = (tokens.next(), tokens.next()) {
        found.push((String::from_utf8_lossy(owner).into_owned(), path_text(path).into()));
    }
    Ok(found)
}

/// The file is read and written only by those who hold `git/index`. It is lost in a power cut, as their leases are.
fn write(state: &Path, known: &[(String, PathBuf)]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for (owner, path) in known {
        bytes.extend_from_slice(&[owner.as_bytes(), b"\0", path.as_os_str().as_bytes(), b"\0"].concat());
    }
    let new = state.join(format!("{FILE}.new"));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    access::inherit(&file, state)?;
    file.write_all(&bytes)?;
    fs::rename(new, state.join(FILE))
}
