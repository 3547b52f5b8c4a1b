//! Command lines of git: which of them write the index.
//!
//! Two commands that write the index at the same time fail: git takes `index.lock` and does not wait for it. A wrapper asks this
//! module whether a command has to wait for its turn.

use std::ffi::{OsStr, OsString};

/// Commands that write the index, or run others that do.
const WRITING: [&str; 29] = [
    "add",
    "am",
    "bisect",
    "checkout",
    "checkout-index",
    "cherry-pick",
    "citool",
    "commit",
    "filter-branch",
    "gui",
    "merge",
    "merge-index",
    "merge-octopus",
    "merge-one-file",
    "mv",
    "pull",
    "read-tree",
    "rebase",
    "reset",
    "restore",
    "revert",
    "rm",
    "sparse-checkout",
    "stage",
    "switch",
    "subtree",
    "update-index",
    "write-tree",
    "quiltimport",
];

/// Commands of git that leave the index alone. `status` and `diff` may refresh it, and go on if another command has it locked.
const READING: [&str; 120] = [
    "annotate",
    "archive",
    "archimport",
    "blame",
    "branch",
    "bugreport",
    "bundle",
    "cat-file",
    "check-attr",
    "check-ignore",
    "check-mailmap",
    "check-ref-format",
    "cherry",
    "clean",
    "clone",
    "column",
    "commit-graph",
    "commit-tree",
    "config",
    "count-objects",
    "credential",
    "credential-cache",
    "credential-store",
    "cvsexportcommit",
    "cvsimport",
    "cvsserver",
    "daemon",
    "describe",
    "diagnose",
    "diff",
    "diff-files",
    "diff-index",
    "diff-pairs",
    "diff-tree",
    "difftool",
    "fast-export",
    "fast-import",
    "fetch",
    "fetch-pack",
    "fmt-merge-msg",
    "for-each-ref",
    "for-each-repo",
    "format-patch",
    "fsck",
    "fsck-objects",
    "fsmonitor--daemon",
    "gc",
    "get-tar-commit-id",
    "grep",
    "hash-object",
    "help",
    "hook",
    "http-backend",
    "http-fetch",
    "http-push",
    "imap-send",
    "index-pack",
    "init",
    "init-db",
    "instaweb",
    "interpret-trailers",
    "last-modified",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "mailinfo",
    "mailsplit",
    "maintenance",
    "merge-base",
    "merge-file",
    "merge-tree",
    "mktag",
    "mktree",
    "multi-pack-index",
    "name-rev",
    "notes",
    "pack-objects",
    "pack-redundant",
    "pack-refs",
    "patch-id",
    "prune",
    "prune-packed",
    "push",
    "range-diff",
    "receive-pack",
    "reflog",
    "refs",
    "remote",
    "repack",
    "replace",
    "replay",
    "repo",
    "request-pull",
    "rerere",
    "rev-list",
    "rev-parse",
    "send-email",
    "send-pack",
    "shell",
    "shortlog",
    "show",
    "show-branch",
    "show-index",
    "show-ref",
    "status",
    "stripspace",
    "symbolic-ref",
    "tag",
    "unpack-file",
    "unpack-objects",
    "update-ref",
    "update-server-info",
    "upload-archive",
    "upload-pack",
    "var",
    "verify-commit",
    "verify-pack",
    "verify-tag",
    "worktree",
];

/// Global options with a value in the next argument.
const WITH_VALUE: [&str; 8] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--config-env",
    "--attr-source",
];

/// What a command does with the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexUse {
    /// It leaves the index alone.
    Reads,
    /// It writes the index.
    Writes,
    /// It is no command of git itself: an alias, or a program such as `git-flow`.
    Unknown,
}

/// A command line of git, without the name of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitCommand<'a> {
    /// The options before the command.
    pub options: &'a [OsString],
    /// The command.
    pub name: Option<&'a OsStr>,
    /// Its arguments.
    pub arguments: &'a [OsString],
}

impl<'a> GitCommand<'a> {
    /// Splits a command line.
    pub fn parse(words: &'a [OsString]) -> Self {
        let mut at = 0;
        while let Some(option) =
            words.get(at).and_then(|word| word.to_str()).filter(|word| word.starts_with('-'))
        {
            at += 1 + usize::from(WITH_VALUE.contains(&option));
        }
        let at = at.min(words.len());
        let (options, rest) = words.split_at(at);
        match rest.split_first() {
            Some((name, arguments)) => Self { options, name: Some(name), arguments },
            None => Self { options, name: None, arguments: rest },
        }
    }

    /// Returns the folders of `-C`, each relative to the one before.
    pub fn folders(&self) -> impl Iterator<Item = &'a OsStr> {
        self.values("-C").filter(|folder| !folder.is_empty())
    }

    /// Returns the value of `--git-dir`.
    pub fn git_dir(&self) -> Option<&'a OsStr> {
        let joined =
            self.options.iter().filter_map(|word| word.to_str()?.strip_prefix("--git-dir=").map(OsStr::new));
        self.values("--git-dir").chain(joined).last()
    }

    /// Says what the command does with the index.
    pub fn index_use(&self) -> IndexUse {
        let has = |words: &[&str]| self.arguments.iter().any(|word| words.iter().any(|known| word == known));
        let first = self.arguments.first().and_then(|word| word.to_str());
        // Without a command git prints something and ends.
        let Some(name) = self.name else { return IndexUse::Reads };
        if has(&["--help", "-h"]) {
            return IndexUse::Reads;
        }
        let writes = |writes: bool| if writes { IndexUse::Writes } else { IndexUse::Reads };
        match name.to_str() {
            None => IndexUse::Unknown,
            Some("apply") => writes(has(&["--index", "--cached", "-3", "--3way", "-N", "--intent-to-add"])),
            Some("stash") => writes(!matches!(first, Some("list" | "show" | "drop" | "clear" | "store"))),
            Some("submodule") => {
                writes(!matches!(first, None | Some("status" | "summary" | "foreach" | "sync" | "--quiet")))
            }
            Some("version") => IndexUse::Reads,
            Some(name) if WRITING.contains(&name) => IndexUse::Writes,
            Some(name) if READING.contains(&name) => IndexUse::Reads,
            Some(_) => IndexUse::Unknown,
        }
    }

    /// Says whether it is a `commit` of exactly what is staged: without paths, `-a` and the like.
    pub fn commits_staged(&self) -> bool {
        self.name.is_some_and(|name| name == "commit") && names_no_paths(self.arguments)
    }

    /// Says whether it names the git folder or the work tree itself.
    pub fn names_work_tree(&self) -> bool {
        let names = |word: &str| ["--git-dir", "--work-tree"].iter().any(|option| word.starts_with(option));
        self.options.iter().any(|word| word.to_str().is_some_and(names))
    }

    fn values(&self, option: &str) -> impl Iterator<Item = &'a OsStr> {
        let mut at = 0;
        let mut found = Vec::new();
        while let Some(word) = self.options.get(at) {
            let takes = word.to_str().is_some_and(|word| WITH_VALUE.contains(&word));
            if takes && word == option {
                found.extend(self.options.get(at + 1).map(OsString::as_os_str));
            }
            at += 1 + usize::from(takes);
        }
        found.into_iter()
    }
}

/// Options of `commit` that take more than what is staged.
const TAKES_MORE: [&str; 6] =
    ["--all", "--include", "--interactive", "--only", "--patch", "--pathspec-from-file"];
/// Options of `commit` with a value in the next argument.
const COMMIT_VALUES: [&str; 11] = [
    "--author",
    "--cleanup",
    "--date",
    "--file",
    "--fixup",
    "--message",
    "--reedit-message",
    "--reuse-message",
    "--squash",
    "--template",
    "--trailer",
];

/// Says whether arguments of `commit` name neither paths nor an option that takes more than what is staged.
fn names_no_paths(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(word) = word.to_str() else { return false };
        if word == "--" {
            return words.next().is_none();
        }
        if word.starts_with("--") {
            let name = word.split_once('=').map_or(word, |(name, _)| name);
            if TAKES_MORE.contains(&name) {
                return false;
            }
            if COMMIT_VALUES.contains(&word) {
                words.next();
            }
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return false;
        };
        for (at, letter) in letters.char_indices() {
            match letter {
                'a' | 'i' | 'o' | 'p' => return false,
                'C' | 'F' | 'c' | 'm' | 't' => {
                    if at + 1 == letters.len() {
                        words.next();
                    }
                    break;
                }
                // The rest is the value.
                'S' | 'u' => break,
                _ => {}
            }
        }
    }
    true
}

/// What an alias of git stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alias {
    /// Another command with arguments.
    Command(Vec<OsString>),
    /// A line for the shell, and whether it names a command that writes the index.
    Shell(IndexUse),
}

/// Reads the value of `alias.NAME`.
pub fn alias(value: &str) -> Alias {
    match value.trim().strip_prefix('!') {
        Some(line) => {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '-');
            let writes =
                words.any(|word| WRITING.contains(&word) || matches!(word, "stash" | "apply" | "submodule"));
            Alias::Shell(if writes { IndexUse::Writes } else { IndexUse::Reads })
        }
        None => Alias::Command(value.split_whitespace().map(OsString::from).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn index_use(line: &str) -> IndexUse {
        GitCommand::parse(&words(line)).index_use()
    }

    /// Requirement 153.
    #[test]
    fn commands_that_write_the_index_are_told_from_those_that_read() {
        for line in [
            "commit -m x",
            "-C sub commit -m x",
            "--git-dir=.git --work-tree . add .",
            "-c user.name=commit rm x",
            "stash",
            "stash pop",
            "apply --index p",
            "submodule update",
            "--no-pager checkout main",
            "rebase main",
        ] {
            assert_eq!(index_use(line), IndexUse::Writes, "{line}");
        }
        for line in [
            "",
            "--version",
            "-C add log",
            "log --grep commit",
            "status",
            "diff --cached",
            "stash list",
            "apply p",
            "submodule status",
            "commit --help",
            "branch -d add",
            "push",
            "worktree add ../x",
        ] {
            assert_eq!(index_use(line), IndexUse::Reads, "{line}");
        }
        for line in ["ci -m x", "flow feature finish", "comit"] {
            assert_eq!(index_use(line), IndexUse::Unknown, "{line}");
        }
        assert_eq!(index_use("-C"), IndexUse::Reads, "the value is missing");
    }

    /// Requirement 153.
    #[test]
    fn a_commit_of_what_is_staged_is_told_from_one_of_paths() {
        let commits_staged = |line: &str| GitCommand::parse(&words(line)).commits_staged();
        for line in [
            "commit -m a",
            "commit -qm a",
            "commit -m a -m -p",
            "commit --message all --amend --no-edit",
            "commit --message=x --",
            "commit -ma",
            "-C sub commit -F file -S",
            "commit -uall",
            "commit",
        ] {
            assert!(commits_staged(line), "{line}");
        }
        for line in [
            "commit -m a b",
            "commit -am a",
            "commit --all",
            "commit -m a -- b",
            "commit -",
            "commit -vp",
            "add x",
        ] {
            assert!(!commits_staged(line), "{line}");
        }
        assert!(GitCommand::parse(&words("--git-dir=x commit")).names_work_tree());
        assert!(!GitCommand::parse(&words("-C x commit --git-dir")).names_work_tree());
    }

    #[test]
    fn folders_and_the_git_folder_are_read_from_the_options() {
        let line = words("-C a -c x=y -C b --git-dir d --git-dir=e commit -C HEAD");
        let command = GitCommand::parse(&line);
        assert_eq!(command.folders().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(command.git_dir(), Some(OsStr::new("e")));
    }

    #[test]
    fn an_alias_is_another_command_or_a_line_for_the_shell() {
        assert_eq!(alias("commit -v"), Alias::Command(words("commit -v")));
        assert_eq!(alias("!git add -A && git commit"), Alias::Shell(IndexUse::Writes));
        assert_eq!(alias("!git log --oneline | head"), Alias::Shell(IndexUse::Reads));
    }
}
