//! One claim for each question about a command line of git.

use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

fn index_use(line: &str) -> IndexUse {
    GitCommand::parse(&words(line)).index_use()
}

/// Requirement 153.
#[test]
fn commands_that_write_the_index_are_distinguished_from_those_that_read() {
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
fn a_commit_of_what_is_staged_is_distinguished_from_a_commit_of_paths() {
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
