//! Uncommitted work: which of an agent's files differ from the last commit, as git says.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::worktree_status::OTHER_REPOSITORY;

/// The paths among these that are as committed, or that git ignores. None if git cannot tell.
///
/// Paths are relative to the root of the work tree. `index` is used instead of the common index. `counts` tells whether a changed path
/// below a claimed one is work of the claim.
pub(crate) fn committed(
    root: &Path,
    paths: &[String],
    index: Option<&Path>,
    counts: &dyn Fn(&Path, &Path) -> bool,
) -> Option<BTreeSet<String>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["--no-optional-locks", "--literal-pathspecs", "status"]);
    git.args(["--porcelain=v2", "-z", "--untracked-files=all", "--no-renames", "--"]).args(paths);
    // A hook may run inside of a git command, whose variables name another repository or index.
    for variable in OTHER_REPOSITORY {
        git.env_remove(variable);
    }
    git.envs(index.map(|index| ("GIT_INDEX_FILE", index)));
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let changed: BTreeSet<&Path> = text.split('\0').filter_map(changed_path).map(Path::new).collect();
    // A claimed file may have become a folder.
    let is_clean = |path: &&String| {
        let claimed = Path::new(path);
        let mut below = changed.range(claimed..).take_while(|at| at.starts_with(claimed));
        !below.any(|at| counts(claimed, at))
    };
    Some(paths.iter().filter(is_clean).cloned().collect())
}

/// The path of one entry: `1 XY sub mH mI mW hH hI path`, `u XY sub m1 m2 m3 mW h1 h2 h3 path`, `? path`.
fn changed_path(entry: &str) -> Option<&str> {
    let fields = match entry.as_bytes().first()? {
        b'1' => 9,
        b'u' => 11,
        b'?' => 2,
        _ => return None,
    };
    entry.splitn(fields, ' ').nth(fields - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_kind_have_their_path_at_the_end() {
        let sha = "0".repeat(40);
        assert_eq!(
            changed_path(&format!("1 .M N... 100644 100644 100644 {sha} {sha} a b.rs")),
            Some("a b.rs")
        );
        let unmerged = format!("u UU N... 100644 100644 100644 100644 {sha} {sha} {sha} x y");
        assert_eq!(changed_path(&unmerged), Some("x y"));
        assert_eq!(changed_path("? new file"), Some("new file"));
        for other in ["", "! ignored", "# branch.oid x", "1 short"] {
            assert_eq!(changed_path(other), None, "{other}");
        }
    }
}
