//! Status of a work tree: the paths that differ from the last commit, as git says.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::git::path_text;

/// One path that differs from the last commit. What git ignores is not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    /// From the root of the work tree.
    pub(crate) path: PathBuf,
    /// The index differs from the last commit.
    pub(crate) is_staged: bool,
    /// Git does not know the file.
    pub(crate) is_new: bool,
}

/// Asks git which paths of a work tree have changed. None if git cannot tell.
///
/// It takes no lock and writes nothing, so it disturbs no other git command.
pub(crate) fn changed(root: &Path) -> Option<Vec<Changed>> {
    let args =
        ["--no-optional-locks", "status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames"];
    let output = git(root, &args, b"")?;
    Some(output.split(|byte| *byte == 0).filter_map(entry).collect())
}

/// Those of the paths that git ignores.
pub(crate) fn ignored(root: &Path, paths: &[&Path]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let input: Vec<u8> =
        paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
    // Git exits with 1 if none is ignored.
    let output = git(root, &["check-ignore", "-z", "--stdin"], &input).unwrap_or_default();
    let names = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(path_text(name))).collect()
}

/// The variables of git that name another repository or index: a hook may run inside of a git command.
pub(crate) const OTHER_REPOSITORY: [&str; 5] =
    ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"];

fn git(root: &Path, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(args).stderr(Stdio::null());
    for variable in OTHER_REPOSITORY {
        git.env_remove(variable);
    }
    let output = crate::git::with_input(&mut git, input).ok()?;
    output.status.success().then_some(output.stdout)
}

/// One entry: `1 XY sub mH mI mW hH hI path`, `u XY sub m1 m2 m3 mW h1 h2 h3 path`, `? path`.
fn entry(entry: &[u8]) -> Option<Changed> {
    let (fields, is_new) = match entry.first()? {
        b'1' => (9, false),
        b'u' => (11, false),
        // A folder that is a repository of its own does not belong to this work tree.
        b'?' if !entry.ends_with(b"/") => (2, true),
        _ => return None,
    };
    let path = entry.splitn(fields, |byte| *byte == b' ').nth(fields - 1)?;
    let is_staged = !is_new && entry.get(2) != Some(&b'.');
    Some(Changed { path: path_text(path).into(), is_staged, is_new })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_kind_have_their_path_at_the_end() {
        let sha = "0".repeat(40);
        let read = |text: &str| entry(text.as_bytes());
        let found = |path: &str, is_staged, is_new| Some(Changed { path: path.into(), is_staged, is_new });
        let changed = |xy: &str| format!("1 {xy} N... 100644 100644 100644 {sha} {sha} a b.rs");
        assert_eq!(read(&changed(".M")), found("a b.rs", false, false));
        assert_eq!(read(&changed("MM")), found("a b.rs", true, false));
        let unmerged = format!("u UU N... 100644 100644 100644 100644 {sha} {sha} {sha} x y");
        assert_eq!(read(&unmerged), found("x y", true, false));
        assert_eq!(read("? new file"), found("new file", false, true));
        for other in ["", "! ignored", "# branch.oid x", "1 short", "? nested/"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
