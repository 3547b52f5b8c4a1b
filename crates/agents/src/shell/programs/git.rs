//! git: which commands write paths, the index, HEAD, the stash, refs or the whole work tree.

mod checkout;
mod pathspec;

use std::collections::BTreeSet;
use std::path::Path;

use super::Call;
use crate::place::join;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;
use crate::writes::{GitPart, GitUse, Staged, Target};

/// Commands that change neither files of the work tree nor what others share.
const READING: [&str; 40] = [
    "annotate",
    "blame",
    "cat-file",
    "check-attr",
    "check-ignore",
    "cherry",
    "count-objects",
    "describe",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "for-each-ref",
    "fsck",
    "gc",
    "grep",
    "help",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "maintenance",
    "merge-base",
    "merge-tree",
    "name-rev",
    "patch-id",
    "push",
    "range-diff",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
    "show-branch",
    "show-ref",
    "status",
    "var",
    "verify-commit",
    "verify-tag",
    "version",
    "whatchanged",
];

/// One git command whose global options are read.
struct Git<'a> {
    command: &'a str,
    arguments: &'a [Value],
    state: State,
}

impl Git<'_> {
    /// Whether it shows a help page, or what was done so far.
    fn only_asks(&self) -> bool {
        let first = self.arguments.first().and_then(Value::text);
        let shows = |options: &[&str]| Arguments::parse(self.arguments, &[]).has(options);
        match (self.command, first) {
            (_, Some("--help")) => true,
            ("stash" | "worktree" | "bisect" | "sparse-checkout", _) if self.asks_about_part() => true,
            (_, Some("-h")) => self.arguments.len() == 1,
            ("bisect", Some("log" | "terms" | "view" | "visualize" | "help")) => true,
            ("am" | "rebase", _) => shows(&["--show-current-patch"]),
            ("pull", _) => shows(&["--dry-run"]),
            ("commit", _) => shows(&["--short", "--porcelain", "--long"]),
            _ => false,
        }
    }

    /// `git stash push --help`.
    fn asks_about_part(&self) -> bool {
        self.arguments.get(1).and_then(Value::text) == Some("--help")
    }
}

impl Reader<'_> {
    pub(super) fn git(&mut self, call: &Call<'_>, state: &State) -> bool {
        if call.name != "git" {
            return false;
        }
        let mut state = state.clone();
        let mut rest = call.arguments;
        while let Some(option) = rest.first().and_then(Value::text).filter(|text| text.starts_with('-')) {
            let takes = matches!(option, "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace");
            if option == "-C" {
                self.change_folder(Some(rest.get(1).unwrap_or(&Value::Unknown)), &mut state);
            } else if matches!(option, "--help" | "-h" | "--version" | "-v") {
                return true;
            } else if option.starts_with("--git-dir") || option.starts_with("--work-tree") {
                self.writes.not_known("git with a work tree of its own");
            }
            rest = rest.get(1 + usize::from(takes)..).unwrap_or_default();
        }
        let Some((command, arguments)) = rest.split_first() else { return true };
        let Some(command) = command.text() else {
            self.writes.not_known("a git command that only the shell knows");
            return true;
        };
        let git = Git { command, arguments, state };
        if git.only_asks() {
            return true;
        }
        if READING.contains(&command) {
            let arguments = Arguments::parse(arguments, &["--output"]);
            arguments.values(&["--output"]).for_each(|file| self.write(file, &git.state, Extent::File));
        }
        if arguments.iter().any(|option| option.text().is_some_and(|text| text.starts_with("--pathspec-fr")))
        {
            self.writes.not_known("paths in a file");
        }
        if !READING.contains(&command) && !self.git_paths(&git, call) && !self.git_shared(&git) {
            let command: String = command.chars().take(40).collect();
            self.writes.not_known(format!("the command git {command:?} is not known"));
        }
        true
    }

    /// Commands that write the paths which they name.
    fn git_paths(&mut self, git: &Git<'_>, call: &Call<'_>) -> bool {
        let state = &git.state;
        match git.command {
            "rm" => {
                let arguments = Arguments::parse(git.arguments, &[]);
                if arguments.has(&["-n", "--dry-run"]) {
                    return true;
                }
                if !arguments.has(&["--cached"]) {
                    self.write_all(&self.pathspecs(&arguments.operands, state), state, Extent::Below);
                }
                self.stage_paths(git, &arguments.operands);
            }
            "mv" => {
                let arguments = Arguments::parse(git.arguments, &[]);
                if arguments.has(&["-n", "--dry-run"]) {
                    return true;
                }
                self.git_move(git, &arguments.operands);
            }
            "apply" => {
                let arguments =
                    Arguments::parse(git.arguments, &["-p", "--directory", "--exclude", "--include"]);
                if arguments.has(&["--check", "--stat", "--numstat", "--summary"]) {
                    return true;
                }
                let strip =
                    arguments.value(&["-p"]).and_then(Value::text).map_or(Some(1), |n| n.parse().ok());
                let inputs = match arguments.operands.as_slice() {
                    [] => vec![call.input.clone()],
                    files => files.iter().map(|file| self.input_of(file, call.input, state)).collect(),
                };
                if arguments.has(&["--directory"]) {
                    self.writes.not_known("a patch for another folder");
                } else if !arguments.has(&["--cached"]) {
                    inputs.iter().for_each(|input| self.unified(input, strip, state));
                }
                if arguments.has(&["--index", "--cached", "-3", "--3way"]) {
                    self.use_git(git, &[GitPart::Index], false, Staged::Nothing);
                }
            }
            "restore" => self.restore(git),
            "checkout" => self.checkout(git),
            "checkout-index" => self.checkout_index(git),
            "merge-file" => {
                let arguments = Arguments::parse(git.arguments, &["-L", "--marker-size"]);
                if !arguments.has(&["-p", "--stdout"]) {
                    self.write_all(arguments.operands.get(..1).unwrap_or_default(), state, Extent::File);
                }
            }
            "archive" | "bundle" => {
                let arguments = Arguments::parse(git.arguments, &["-o", "--output", "--format", "--prefix"]);
                match arguments.value(&["-o", "--output"]) {
                    Some(file) => self.write(&file.clone(), state, Extent::File),
                    None if git.command == "bundle" => self.writes.not_known("the name of a bundle"),
                    None => {}
                }
            }
            "format-patch" if Arguments::parse(git.arguments, &[]).has(&["--stdout"]) => {}
            "worktree" => match git.arguments.first().and_then(Value::text) {
                Some("list" | "prune" | "lock" | "unlock" | "repair") | None => {}
                Some("add") => self.use_git(git, &[GitPart::Refs], false, Staged::Nothing),
                Some(_) => {
                    let arguments = Arguments::parse(&git.arguments[1..], &[]);
                    self.write_all(&arguments.operands, state, Extent::Below);
                }
            },
            _ => return false,
        }
        true
    }

    /// Commands that concern the whole work tree, or what all sessions share.
    fn git_shared(&mut self, git: &Git<'_>) -> bool {
        use GitPart::{Head, Index, Refs, Stash};
        let with_value =
            ["-m", "--message", "-F", "--file", "-C", "-c", "--author", "--date", "-t", "--trailer"];
        let arguments = Arguments::parse(git.arguments, &with_value);
        let first = git.arguments.first().and_then(Value::text);
        match git.command {
            "switch" => {
                let with_value = ["-c", "-C", "--create", "--force-create", "--orphan", "--conflict"];
                let arguments = Arguments::parse(git.arguments, &with_value);
                // With force the changes of the work tree are thrown away.
                let forced = arguments.has(&["-f", "--force", "--discard-changes", "-m", "--merge"]);
                let created = arguments.has(&["-c", "-C", "--create", "--force-create"]);
                let new = created && !forced && arguments.operands.is_empty();
                let parts: &[GitPart] = if new { &[Head, Refs] } else { &[Head, Index] };
                self.use_git(git, parts, !new, Staged::Nothing);
            }
            "merge" | "rebase" | "pull" | "cherry-pick" | "revert" | "am" | "bisect" => {
                self.use_git(git, &[Head, Index], true, Staged::Nothing);
            }
            "reset" => {
                if arguments.has(&["--hard", "--merge", "--keep"]) {
                    self.use_git(git, &[Head, Index], true, Staged::Nothing);
                } else if arguments.has(&["--soft"]) {
                    self.use_git(git, &[Head], false, Staged::Nothing);
                } else {
                    self.use_git(git, &[Index], false, Staged::Nothing);
                }
            }
            "stash" => match first {
                Some("list" | "show") => {}
                Some("drop" | "clear" | "create" | "store") => {
                    self.use_git(git, &[Stash], false, Staged::Nothing);
                }
                // `git stash push PATH…` and `git stash -- PATH…` take only these.
                _ => {
                    let before = match first {
                        Some("push") => Some(1),
                        _ => arguments.before_dashes,
                    };
                    match before.and_then(|before| arguments.operands.get(before..)) {
                        Some(paths) if !paths.is_empty() => {
                            self.restore_paths(git, paths);
                            self.use_git(git, &[Index, Stash], false, Staged::Nothing);
                        }
                        _ => self.use_git(git, &[Index, Stash], true, Staged::Nothing),
                    }
                }
            },
            "clean" => {
                let arguments = Arguments::parse(git.arguments, &["-e", "--exclude"]);
                if arguments.has(&["-n", "--dry-run"]) {
                    return true;
                }
                if arguments.operands.is_empty() {
                    self.use_git(git, &[], true, Staged::Nothing);
                } else {
                    self.restore_paths(git, &arguments.operands);
                }
            }
            "add" | "stage" => self.add(git, &arguments),
            "commit" => self.commit(git),
            "fetch" => self.use_git(git, &[Refs], false, Staged::Nothing),
            "branch" | "tag" => {
                let lists = git.arguments.is_empty()
                    || arguments.operands.is_empty()
                    || arguments.has(&[
                        "-l",
                        "--list",
                        "--contains",
                        "--merged",
                        "--no-merged",
                        "--points-at",
                    ]);
                if !lists {
                    self.use_git(git, &[Refs], false, Staged::Nothing);
                }
            }
            "update-ref" | "symbolic-ref" if arguments.operands.len() > 1 => {
                self.use_git(git, &[Refs], false, Staged::Nothing);
            }
            "symbolic-ref" | "reflog" | "remote" | "config" | "notes" | "replace" => {}
            "read-tree" => {
                // `-u` takes the files over into the work tree, too.
                let arguments = Arguments::parse(git.arguments, &["--index-output"]);
                self.use_git(git, &[Index], arguments.has(&["-u"]), Staged::Nothing);
            }
            "update-index" => self.use_git(git, &[Index], false, Staged::Nothing),
            "sparse-checkout" if first != Some("list") => {
                self.use_git(git, &[Index], true, Staged::Nothing);
            }
            _ => return false,
        }
        true
    }

    fn git_move(&mut self, git: &Git<'_>, operands: &[Value]) {
        let Some((destination, sources)) = operands.split_last() else { return };
        self.write_all(sources, &git.state, Extent::Below);
        let folder = |text: &str| {
            text.ends_with('/')
                || git.state.cwd.as_deref().is_some_and(|cwd| self.is_folder(&join(cwd, text)))
        };
        let into = sources.len() > 1 || destination.text().is_some_and(folder);
        let mut written = Vec::new();
        for source in sources {
            match (source.text(), destination.text()) {
                (Some(source), Some(folder)) if into => {
                    let name = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                    written.push(Value::Text(format!("{}/{name}", folder.trim_end_matches('/'))));
                }
                _ => written.push(destination.clone()),
            }
        }
        self.write_all(&written, &git.state, Extent::Below);
        self.stage_paths(git, &[sources, &written].concat());
    }

    fn add(&mut self, git: &Git<'_>, arguments: &Arguments) {
        if arguments.has(&["-n", "--dry-run"]) {
            return;
        }
        let whole = |path: &Value| matches!(path.text(), Some(":/" | ":"));
        let named = &arguments.operands;
        let all = named.iter().any(whole) || (named.is_empty() && arguments.has(&["-A", "--all"]));
        if all {
            self.use_git(git, &[GitPart::Index], false, Staged::Changed);
        } else if named.is_empty() && arguments.has(&["-u", "--update"]) {
            self.use_git(git, &[GitPart::Index], false, Staged::Tracked);
        } else {
            self.stage_paths(git, named);
        }
    }

    fn commit(&mut self, git: &Git<'_>) {
        let with_value = [
            "-m",
            "--message",
            "-F",
            "--file",
            "-C",
            "--reuse-message",
            "-c",
            "--reedit-message",
            "--author",
            "--date",
            "-t",
            "--template",
            "--trailer",
            "--fixup",
            "--squash",
            "--pathspec-from-file",
        ];
        let arguments = Arguments::parse(git.arguments, &with_value);
        if arguments.has(&["--dry-run"]) {
            return;
        }
        let staged = if arguments.has(&["-a", "--all"]) {
            Staged::Tracked
        } else if arguments.has(&["--pathspec-from-file"]) {
            // The git guard sees the paths of the commit.
            Staged::Nothing
        } else if arguments.operands.is_empty() {
            Staged::Index
        } else {
            self.targets(git, &arguments.operands)
        };
        self.use_git(git, &[GitPart::Head, GitPart::Index], false, staged);
    }

    fn stage_paths(&mut self, git: &Git<'_>, paths: &[Value]) {
        let staged = self.targets(git, paths);
        self.use_git(git, &[GitPart::Index], false, staged);
    }

    fn targets(&mut self, git: &Git<'_>, paths: &[Value]) -> Staged {
        let mut targets: Vec<Target> = Vec::new();
        for path in &self.pathspecs(paths, &git.state) {
            match self.target(path, &git.state, Extent::Below) {
                Ok(target) => targets.extend(target),
                Err(why) => self.writes.not_known(why),
            }
        }
        Staged::Paths(targets)
    }

    fn use_git(&mut self, git: &Git<'_>, parts: &[GitPart], whole_tree: bool, staged: Staged) {
        match git.state.cwd.as_deref().map(Path::to_path_buf) {
            Some(folder) => {
                let parts: BTreeSet<GitPart> = parts.iter().copied().collect();
                let used = GitUse { folder, parts, whole_tree, staged };
                if !self.writes.git.contains(&used) {
                    self.writes.git.push(used);
                }
            }
            None => self.writes.not_known("git in a folder that is not known before"),
        }
    }
}
