//! Runs git in one work tree, with the variables of git that the caller's environment names.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use lockkeeper_core::id::LeaseId;
use lockkeeper_engine::under;
use thiserror::Error;

use crate::quote::{cut, one_line};

/// The longest message of git that is passed on, in characters.
const MAX_MESSAGE: usize = 500;

/// Why git did not do what it was asked for.
#[derive(Debug, Error)]
pub enum GitError {
    /// It could not be started.
    #[error("cannot run git")]
    NotStarted(#[source] io::Error),
    /// It failed.
    #[error("`git {command}` failed: {message}")]
    Failed {
        /// The sub-command.
        command: String,
        /// What it wrote to stderr, on one line.
        message: String,
    },
}

/// One work tree.
#[derive(Clone, Debug)]
pub struct Git {
    /// The root of the work tree.
    pub root: PathBuf,
    /// The git folder of this work tree.
    pub folder: PathBuf,
    /// Whether the environment sets `GIT_DIR`. Commands then get the absolute path, since the variable may be relative to
    /// another folder.
    named: bool,
    /// The program.
    program: OsString,
    /// The leases that its commands run under, as the variable names them.
    under: Option<OsString>,
}

impl Git {
    /// Finds the work tree around a folder.
    pub fn find(folder: &Path) -> Result<Self, GitError> {
        Self::find_by("git".as_ref(), folder)
    }

    /// Finds the work tree around a folder by asking this program.
    pub fn find_by(program: &OsStr, folder: &Path) -> Result<Self, GitError> {
        if let Some(found) = Self::find_plain(program, folder) {
            return Ok(found);
        }
        let mut git = Command::new(program);
        git.current_dir(folder).args(["rev-parse", "--absolute-git-dir", "--show-toplevel"]);
        let output = git.stdin(Stdio::null()).output().map_err(GitError::NotStarted)?;
        let text = path_text(&successful("rev-parse", output)?.stdout);
        let lines = text.to_str().and_then(|text| text.trim_end_matches('\n').split_once('\n'));
        let Some((git_dir, root)) = lines else {
            let message = "its folders have names that are not text".to_owned();
            return Err(GitError::Failed { command: "rev-parse".to_owned(), message });
        };
        let named = std::env::var_os("GIT_DIR").is_some_and(|value| !value.is_empty());
        Ok(Self {
            root: root.into(),
            folder: git_dir.into(),
            named,
            program: program.to_owned(),
            under: None,
        })
    }

    /// Tells its commands that they run under these leases, so that the `git` wrapper of groups does not wait for one of them.
    #[must_use]
    pub fn under(self, state: &Path, leases: &[LeaseId]) -> Self {
        Self { under: Some(under::value(state, leases)), ..self }
    }

    /// Finds a plain repository: a folder with a git folder in it, which no variable or setting moves. Git need not be asked then.
    fn find_plain(program: &OsStr, folder: &Path) -> Option<Self> {
        let is_moved = |name: &str| std::env::var_os(name).is_some();
        let variables = [
            "GIT_DIR",
            "GIT_WORK_TREE",
            "GIT_COMMON_DIR",
            "GIT_CEILING_DIRECTORIES",
            "GIT_CONFIG_PARAMETERS",
            "GIT_CONFIG_COUNT",
        ];
        let folder = folder.canonicalize().ok()?;
        if variables.into_iter().any(is_moved) || folder.components().any(|part| part.as_os_str() == ".git") {
            return None;
        }
        let root = folder.ancestors().find(|at| at.join(".git").symlink_metadata().is_ok())?;
        let git = root.join(".git");
        // The git folder of a submodule or of a linked work tree is elsewhere.
        let is_folder = git.symlink_metadata().is_ok_and(|meta| meta.is_dir())
            && git.join("HEAD").is_file()
            && git.join("objects").is_dir();
        let settings = std::fs::read_to_string(git.join("config")).ok()?.to_ascii_lowercase();
        let settings: String = settings.split_whitespace().collect();
        let moves = ["worktree", "include", "bare=true"];
        let is_plain = is_folder && !moves.iter().any(|word| settings.contains(word));
        is_plain.then(|| Self {
            root: root.to_owned(),
            folder: git,
            named: false,
            program: program.to_owned(),
            under: None,
        })
    }

    /// The commit of HEAD. None before the first commit.
    pub fn head(&self) -> Option<String> {
        self.loose_head().or_else(|| self.line(&["rev-parse", "--verify", "--quiet", "HEAD"]))
    }

    /// The commit of HEAD where it stands in a file of its own, as after each commit.
    fn loose_head(&self) -> Option<String> {
        // Branches of a linked work tree are elsewhere.
        if self.folder.join("commondir").exists() {
            return None;
        }
        let head = std::fs::read_to_string(self.folder.join("HEAD")).ok()?;
        let branch = head.trim_end().strip_prefix("ref: refs/heads/")?;
        let commit = std::fs::read_to_string(self.folder.join("refs/heads").join(branch)).ok()?;
        let commit = commit.trim_end();
        let is_commit =
            matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_commit.then(|| commit.to_owned())
    }

    /// A git command in the root of the work tree, with the common index.
    pub fn command(&self) -> Command {
        let mut git = Command::new(&self.program);
        git.current_dir(&self.root).stdin(Stdio::null());
        // A hook of git may have started this program with another index.
        for variable in ["GIT_INDEX_FILE", "GIT_PREFIX", "GIT_LITERAL_PATHSPECS", "GIT_ICASE_PATHSPECS"] {
            git.env_remove(variable);
        }
        git.envs(self.under.iter().map(|value| (under::VARIABLE, value)));
        if self.named {
            git.env("GIT_DIR", &self.folder).env("GIT_WORK_TREE", &self.root);
        }
        git
    }

    /// Runs git to its end, with input. Fails if git fails.
    pub fn run(&self, index: Option<&Path>, args: &[&str], input: &[u8]) -> Result<Vec<u8>, GitError> {
        let mut git = self.command();
        if let Some(index) = index {
            git.env("GIT_INDEX_FILE", index);
        }
        let output = with_input(git.args(args), input).map_err(GitError::NotStarted)?;
        let command = args.iter().find(|arg| !arg.starts_with('-')).copied().unwrap_or_default();
        Ok(successful(command, output)?.stdout)
    }

    /// Runs git and returns its output as one trimmed line. None if it fails.
    pub fn line(&self, args: &[&str]) -> Option<String> {
        let text = String::from_utf8(self.run(None, args, b"").ok()?).ok()?;
        Some(text.trim_end().to_owned()).filter(|line| !line.is_empty())
    }
}

/// Runs a command with input, and collects its output.
pub(crate) fn with_input(command: &mut Command, input: &[u8]) -> io::Result<Output> {
    if input.is_empty() {
        return command.output();
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take();
    thread::scope(|scope| {
        // A command that fails early does not read its input. Its exit code tells.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    })
}

pub(crate) fn successful(command: &str, output: Output) -> Result<Output, GitError> {
    if output.status.success() {
        return Ok(output);
    }
    let message = cut(&one_line(&String::from_utf8_lossy(&output.stderr)), MAX_MESSAGE);
    Err(GitError::Failed { command: command.to_owned(), message })
}

/// Bytes of git as a path. Names on Linux need not be UTF-8.
pub(crate) fn path_text(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path, args: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(folder).args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args);
        assert!(successful("test", git.output().unwrap()).is_ok(), "{args:?}");
    }

    /// A repository with one commit, a folder in it, and a linked work tree beside it.
    fn repository() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("repo");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        run(&root, &["init", "-q", "-b", "main"]);
        run(&root, &["commit", "-q", "--allow-empty", "-m", "x"]);
        run(&root, &["worktree", "add", "-q", "../tree", "-b", "other"]);
        (folder, root)
    }

    /// Where git is not asked, the answer is the same.
    #[test]
    fn a_plain_repository_is_found_as_git_finds_it() {
        let (_folder, root) = repository();
        for folder in [root.clone(), root.join("a/b")] {
            let found = Git::find_plain("git".as_ref(), &folder).expect("it is plain");
            assert_eq!((&found.root, &found.folder), (&root, &root.join(".git")));
            let output =
                Command::new("git").current_dir(&folder).args(["rev-parse", "--show-toplevel"]).output();
            assert_eq!(String::from_utf8_lossy(&output.unwrap().stdout).trim_end(), root.to_str().unwrap());
        }
    }

    #[test]
    fn git_is_asked_where_a_repository_may_be_elsewhere() {
        let (_folder, root) = repository();
        let tree = root.with_file_name("tree");
        assert!(Git::find_plain("git".as_ref(), &tree).is_none(), "a linked work tree");
        assert_eq!(Git::find(&tree).unwrap().root, tree);
        assert!(
            Git::find_plain("git".as_ref(), &root.join(".git/refs")).is_none(),
            "inside of the git folder"
        );
        assert!(Git::find_plain("git".as_ref(), root.parent().unwrap()).is_none(), "no repository");
        let file = root.join(".git/config");
        let config = std::fs::read_to_string(&file).unwrap();
        for setting in
            ["[core]\n\tworktree = ../../tree\n", "[core]\n bare=true\n", "[include]\npath = more\n"]
        {
            std::fs::write(&file, format!("{config}{setting}")).unwrap();
            assert!(Git::find_plain("git".as_ref(), &root).is_none(), "{setting}");
        }
        std::fs::write(&file, config).unwrap();
        assert!(Git::find_plain("git".as_ref(), &root).is_some());
    }

    #[test]
    fn head_is_what_git_says_however_it_is_kept() {
        let (_folder, root) = repository();
        let same = |root: &Path, what: &str| {
            let git = Git::find(root).unwrap();
            assert_eq!(git.head(), git.line(&["rev-parse", "--verify", "--quiet", "HEAD"]), "{what}");
            git.head()
        };
        assert!(same(&root, "a loose branch").is_some());
        same(&root.with_file_name("tree"), "a linked work tree");
        run(&root, &["pack-refs", "--all"]);
        assert!(same(&root, "a packed branch").is_some());
        run(&root, &["checkout", "-q", "--detach"]);
        assert!(same(&root, "no branch").is_some());
        run(&root, &["checkout", "-q", "--orphan", "new/born"]);
        assert_eq!(same(&root, "before the first commit"), None);
    }
}
