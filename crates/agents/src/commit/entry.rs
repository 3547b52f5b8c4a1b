//! Entries of a commit: mode, object and path of what it changed.

use std::path::{Path, PathBuf};

use crate::git::{Git, GitError, path_text};

/// One path, as the commit has it. A deleted path has the mode `000000` and an object of zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) mode: String,
    pub(super) object: String,
    pub(super) path: PathBuf,
}

/// A commit, its first parent, and what it changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) commit: String,
    pub(super) parent: Option<String>,
    pub(super) entries: Vec<Entry>,
}

/// Reads a commit.
pub(super) fn made(git: &Git, commit: &str) -> Result<Made, GitError> {
    let format = "--pretty=format:%H %P";
    let output = git.run(
        None,
        &["diff-tree", "--root", "--always", "-r", "-z", "--raw", "--no-renames", format, commit],
        b"",
    )?;
    Ok(parse(&output))
}

/// What differs between two commits.
pub(super) fn between(git: &Git, from: &str, to: &str) -> Result<Vec<Entry>, GitError> {
    let output = git.run(None, &["diff-tree", "-r", "-z", "--raw", "--no-renames", from, to], b"")?;
    Ok(parse(&output).entries)
}

/// `COMMIT PARENT…`, then for each path `:MODE MODE OBJECT OBJECT STATUS` and the path, each ended by a zero byte or a line end.
fn parse(output: &[u8]) -> Made {
    let mut made = Made::default();
    let mut tokens = output.split(|byte| *byte == 0).peekable();
    while let Some(token) = tokens.next() {
        let text = String::from_utf8_lossy(token);
        let (head, raw) = match text.rsplit_once(':') {
            Some((head, raw)) => (head.trim(), Some(raw)),
            None => (text.trim(), None),
        };
        let mut commits = head.split(' ').filter(|word| !word.is_empty());
        if let Some(commit) = commits.next() {
            made.commit = commit.to_owned();
            made.parent = commits.next().map(str::to_owned);
        }
        let Some(raw) = raw else { continue };
        let fields: Vec<&str> = raw.split(' ').collect();
        if let ([_, mode, _, object, _], Some(path)) = (fields.as_slice(), tokens.next()) {
            let path = Path::new(&path_text(path)).to_owned();
            made.entries.push(Entry { mode: (*mode).to_owned(), object: (*object).to_owned(), path });
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_read_with_what_they_changed() {
        let text = b"c0ffee abc def\0:100644 100755 1111 2222 M\0a: b\n\0:100644 000000 3333 0000 D\0gone\0";
        let read = parse(text);
        assert_eq!((read.commit.as_str(), read.parent.as_deref()), ("c0ffee", Some("abc")));
        let entry = |mode: &str, object: &str, path: &str| Entry {
            mode: mode.into(),
            object: object.into(),
            path: path.into(),
        };
        assert_eq!(read.entries, [entry("100755", "2222", "a: b\n"), entry("000000", "0000", "gone")]);
        assert_eq!(parse(b"c0ffee \0").parent, None);
    }
}
