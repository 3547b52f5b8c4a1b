//! Write sets: what a tool call would write, worked out before it runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::patch;
use crate::place::{Place, lexical};
use crate::shell;
use crate::tool::{Action, ToolCall};

/// A path, or paths, that a call would write. All are absolute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Exactly this file.
    File(PathBuf),
    /// This entry and, if it is a folder, all that is in it.
    Below(PathBuf),
    /// The files that match, in the grammar of [`lockkeeper_core::pattern`].
    Pattern(String),
}

impl Target {
    /// Whether a write of this path is announced by the target. Compares by the text alone.
    pub fn covers(&self, path: &Path) -> bool {
        match self {
            Self::File(file) => lexical(file) == path,
            Self::Below(folder) => path.starts_with(lexical(folder)),
            Self::Pattern(pattern) => {
                let (pattern, path) =
                    (pattern.trim_start_matches('/'), path.strip_prefix("/").unwrap_or(path));
                let pattern = pattern.parse::<lockkeeper_core::pattern::Pattern>();
                pattern.is_ok_and(|pattern| path.to_str().is_some_and(|path| pattern.matches(path)))
            }
        }
    }
}

/// A part of git that all sessions of a work tree share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GitPart {
    /// The name `git/head`.
    Head,
    /// The name `git/index`.
    Index,
    /// The name `git/stash`.
    Stash,
    /// The name `git/refs`.
    Refs,
}

impl GitPart {
    /// The name that a lease has for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Head => "git/head",
            Self::Index => "git/index",
            Self::Stash => "git/stash",
            Self::Refs => "git/refs",
        }
    }
}

/// What a git command takes into the index or into a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Staged {
    /// Nothing.
    #[default]
    Nothing,
    /// These paths.
    Paths(Vec<Target>),
    /// All that is changed or new: `add -A`.
    Changed,
    /// All that is changed and known to git: `add -u`, `commit -a`.
    Tracked,
    /// All that is in the index: `commit` without paths.
    Index,
}

/// What a git command does to a work tree as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitUse {
    /// The folder in which git is started.
    pub folder: PathBuf,
    /// The parts that it changes.
    pub parts: BTreeSet<GitPart>,
    /// It may rewrite any file of the work tree: `switch`, `reset --hard`, `stash`, `clean`, …
    pub whole_tree: bool,
    /// What it takes into the index or into a commit.
    pub staged: Staged,
}

/// A formatter that runs without paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// The endings of the files that it formats. Empty: it formats files of many kinds.
    pub endings: &'static [&'static str],
}

impl Formats {
    /// Whether it may format this file.
    pub fn covers(&self, path: &Path) -> bool {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        path.starts_with(&self.folder) && (self.endings.is_empty() || self.endings.contains(&ending))
    }
}

/// A simple command of a command line, as the shell would run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program without its folder, and its arguments, joined by blanks. What only the shell knows is `…`.
    pub text: String,
    /// The folder in which it runs. `None`: not known before.
    pub folder: Option<PathBuf>,
    /// The shell does not wait for its end.
    pub background: bool,
}

/// What a call would write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Paths that are known before the call, sorted, each once.
    pub paths: Vec<Target>,
    /// Uses of git that concern more than paths.
    pub git: Vec<GitUse>,
    /// Folders in which a formatter without paths runs: it writes the files that it finds changed or unformatted.
    pub formats: Vec<Formats>,
    /// The simple commands that it runs, also within shells and wrappers, each once.
    pub commands: Vec<Command>,
    /// Why more may be written than is known, each reason once. Such a call passes, and is looked at afterwards.
    pub unknown: Vec<String>,
}

/// Commands beyond this number are not kept.
const MAX_COMMANDS: usize = 500;
/// Reasons beyond this number say nothing new.
const MAX_REASONS: usize = 16;

impl Writes {
    /// Whether the call is known to write nothing.
    pub fn is_nothing(&self) -> bool {
        self.paths.is_empty() && self.git.is_empty() && self.formats.is_empty() && self.unknown.is_empty()
    }

    pub(crate) fn add(&mut self, target: Target) {
        if let Err(at) = self.paths.binary_search(&target) {
            self.paths.insert(at, target);
        }
    }

    pub(crate) fn runs(&mut self, command: Command) {
        if self.commands.len() < MAX_COMMANDS && !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }

    pub(crate) fn not_known(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if self.unknown.len() < MAX_REASONS && !self.unknown.contains(&reason) {
            self.unknown.push(reason);
        }
    }
}

/// Works out what a tool call would write at this place.
pub fn writes(call: &ToolCall, place: &Place<'_>) -> Writes {
    let mut writes = Writes::default();
    match &call.action {
        Action::Reads => {}
        Action::Edits(paths) => files(paths, place, &mut writes),
        Action::Patches(text) => match patch::paths(text) {
            Ok(paths) => files(&paths, place, &mut writes),
            Err(why) => writes.not_known(why.to_string()),
        },
        Action::Runs { command, folder, .. } => {
            let cwd = folder.as_deref().and_then(|folder| place.resolve(folder));
            let place = Place { cwd: cwd.as_deref().unwrap_or(place.cwd), ..*place };
            return shell::writes(command, &place);
        }
        Action::Mcp { paths, .. } => {
            files(paths, place, &mut writes);
            writes.not_known("a tool of an MCP server");
        }
        Action::Unknown => writes.not_known("a tool that is not known"),
    }
    writes
}

fn files(paths: &[String], place: &Place<'_>, writes: &mut Writes) {
    for path in paths {
        match place.resolve(path) {
            Some(path) => writes.add(Target::File(path)),
            None => writes.not_known("a path that cannot be resolved"),
        }
    }
}
