//! `git checkout`, `restore` and `checkout-index`: files that git writes back into the work tree.

use super::Git;
use crate::place::join;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Reader};
use crate::shell::value::Value;
use crate::writes::{GitPart, Staged};

impl Reader<'_> {
    pub(super) fn restore(&mut self, git: &Git<'_>) {
        let arguments = Arguments::parse(git.arguments, &["-s", "--source", "--pathspec-from-file"]);
        let staged = arguments.has(&["-S", "--staged"]);
        if staged {
            self.use_git(git, &[GitPart::Index], false, Staged::Nothing);
        }
        if !staged || arguments.has(&["-W", "--worktree"]) {
            self.restore_paths(git, &arguments.operands);
        }
    }

    /// Files that git writes back. `.` and the top of the repository are the whole tree.
    pub(super) fn restore_paths(&mut self, git: &Git<'_>, paths: &[Value]) {
        let whole = |path: &Value| matches!(path.text(), Some("." | "./" | ":/" | ":" | "*"));
        if paths.iter().any(whole) {
            self.use_git(git, &[GitPart::Index], true, Staged::Nothing);
            return;
        }
        self.write_all(&self.pathspecs(paths, &git.state), &git.state, Extent::Below);
    }

    /// `checkout-index`: files of the index, into the work tree or below a prefix.
    pub(super) fn checkout_index(&mut self, git: &Git<'_>) {
        let arguments = Arguments::parse(git.arguments, &["--prefix", "--stage"]);
        let prefix = arguments.value(&["--prefix"]).map_or(Some(""), Value::text);
        let Some(prefix) = prefix.filter(|_| !arguments.has(&["--temp", "--stdin"])) else {
            self.writes.not_known("files of the index at other places");
            return;
        };
        match prefix.rsplit_once('/') {
            Some((folder, _)) if arguments.has(&["-a", "--all"]) => {
                self.write(&Value::Text(format!("{folder}/")), &git.state, Extent::Below);
            }
            None if arguments.has(&["-a", "--all"]) => self.use_git(git, &[], true, Staged::Nothing),
            _ => {
                for file in arguments.operands.iter().map(Value::text) {
                    let path = file.map_or(Value::Unknown, |file| Value::Text(format!("{prefix}{file}")));
                    self.write(&path, &git.state, Extent::File);
                }
            }
        }
    }

    pub(super) fn checkout(&mut self, git: &Git<'_>) {
        use GitPart::{Head, Index, Refs};
        let arguments = Arguments::parse(git.arguments, &["-b", "-B", "--orphan", "--conflict"]);
        if arguments.has(&["-b", "-B", "--orphan"]) {
            let parts: &[GitPart] = &[Head, Refs];
            // With `-f` the changes of the work tree are thrown away.
            let writes = !arguments.operands.is_empty() || arguments.has(&["-f", "--force", "-m", "--merge"]);
            self.use_git(git, parts, writes, Staged::Nothing);
            return;
        }
        if let Some(before) = arguments.before_dashes {
            self.restore_paths(git, &arguments.operands[before..]);
            return;
        }
        // Without `--` git takes the first word for a branch, unless there is a file of this name.
        let is_path = |value: &Value| {
            let text = value.text().unwrap_or_default();
            text == "." || git.state.cwd.as_deref().is_some_and(|cwd| self.exists(&join(cwd, text)))
        };
        match arguments.operands.as_slice() {
            [first, ..] if is_path(first) => self.restore_paths(git, &arguments.operands),
            [_, paths @ ..] if !paths.is_empty() => self.restore_paths(git, paths),
            _ => self.use_git(git, &[Head, Index], true, Staged::Nothing),
        }
    }
}
