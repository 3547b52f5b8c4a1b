//! Changed paths: what `git status` says of a work tree, as data.

use std::path::{Path, PathBuf};

use crate::git::{Git, GitError, path_text};

/// With more bytes of paths than this, git looks at the whole work tree, because a command line has a limit.
const MAX_ARGUMENTS: usize = 64 * 1024;

/// What git says of a work tree.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The commit of HEAD. None before the first commit.
    pub(super) head: Option<String>,
    /// The paths that differ from HEAD, in the index or in the work tree.
    pub(super) changed: Vec<Changed>,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Changed in the work tree, new, or deleted.
    Here,
    /// Changed or added in the index alone.
    Staged,
    /// In conflict.
    Unmerged,
    /// An untracked folder that is a repository of its own.
    Nested,
}

/// Asks git about some paths. Without paths it looks at the whole work tree.
pub(super) fn changes(git: &Git, paths: &[&str]) -> Result<Changes, GitError> {
    let mut args =
        vec!["--no-optional-locks", "--literal-pathspecs", "status", "--porcelain=v2", "--branch", "-z"];
    args.extend(["--untracked-files=all", "--no-renames", "--ignore-submodules=dirty", "--"]);
    if paths.iter().map(|path| path.len() + 1).sum::<usize>() <= MAX_ARGUMENTS && !paths.contains(&"") {
        args.extend(paths);
    }
    Ok(parse(&git.run(None, &args, b"")?))
}

fn parse(output: &[u8]) -> Changes {
    let mut changes = Changes::default();
    for entry in output.split(|byte| *byte == 0) {
        if let Some(oid) = entry.strip_prefix(b"# branch.oid ") {
            changes.head = Some(String::from_utf8_lossy(oid).into_owned()).filter(|oid| oid != "(initial)");
        }
        changes.changed.extend(changed(entry));
    }
    changes
}

/// One entry: `1 XY sub mH mI mW hH hI path`, `u XY sub m1 m2 m3 mW h1 h2 h3 path`, `? path`.
fn changed(entry: &[u8]) -> Option<Changed> {
    let (fields, kind) = match entry.first()? {
        b'1' if entry.get(3) == Some(&b'.') && entry.get(2) != Some(&b'D') => (9, Kind::Staged),
        b'1' => (9, Kind::Here),
        b'u' => (11, Kind::Unmerged),
        b'?' if entry.ends_with(b"/") => (2, Kind::Nested),
        b'?' => (2, Kind::Here),
        _ => return None,
    };
    let path = entry.splitn(fields, |byte| *byte == b' ').nth(fields - 1)?;
    Some(Changed { path: Path::new(&path_text(path)).components().collect(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_every_kind_are_read() {
        let sha = "0".repeat(40);
        let text = format!(
            "# branch.oid abc\0# branch.head main\01 .M N... 100644 100644 100644 {sha} {sha} a b.rs\0\
             1 D. N... 100644 000000 000000 {sha} {sha} gone\01 A. N... 0 1 1 {sha} {sha} added\0u UU N... 1 2 3 4 {sha} {sha} {sha} x y\0? new\nname\0? nested/\0"
        );
        let found = parse(text.as_bytes());
        assert_eq!(found.head.as_deref(), Some("abc"));
        let shown: Vec<(&str, Kind)> =
            found.changed.iter().map(|changed| (changed.path.to_str().unwrap(), changed.kind)).collect();
        let expected = [
            ("a b.rs", Kind::Here),
            ("gone", Kind::Here),
            ("added", Kind::Staged),
            ("x y", Kind::Unmerged),
            ("new\nname", Kind::Here),
            ("nested", Kind::Nested),
        ];
        assert_eq!(shown, expected);
        assert_eq!(parse(b"# branch.oid (initial)\0").head, None);
    }
}
