//! The git guard at work, as hooks of the real git.

use lockkeeper_testing::{Finished, World};

use crate::guard_setup::guard;
use crate::repository::{Agent, git, holders, hook, last, repository, write};

fn guarded() -> World {
    let world = repository();
    assert!(guard(&world, "install").starts_with("6 hooks"));
    world
}

fn git_of(agent: &Agent<'_>, args: &[&str]) -> Finished {
    Finished::of(&mut agent.command("git", args))
}

#[test]
fn an_agent_cannot_commit_the_files_of_another() {
    let world = guarded();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    let head = git(&world, &["rev-parse", "HEAD"]);
    for args in [&["commit", "-a", "-m", "x"][..], &["commit", "-a", "--no-verify", "-m", "x"][..]] {
        git_of(&one, args).code(1).says("src/b.rs (claude:2)").says("commit -m MSG");
        assert_eq!(git(&world, &["rev-parse", "HEAD"]), head, "{args:?}");
    }
    git_of(&one, &["commit", "-q", "-m", "x", "src/a.rs"]).code(0);
    assert_eq!(last(&world), ["M src/a.rs"]);
    assert!(holders(&world, "src/a.rs").is_empty(), "what is committed is let go");
    assert_eq!(holders(&world, "src/b.rs"), [two.owner()]);
}

#[test]
fn both_names_of_a_rename_are_looked_at() {
    let world = guarded();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    two.claim("src/b.rs");
    world.git_run(&["mv", "src/b.rs", "src/moved.rs"]);
    one.edit("src/a.rs", "one\n");
    git_of(&one, &["commit", "-m", "x"]).code(1).says("src/b.rs (claude:2)");
}

#[test]
fn people_are_warned_once_and_never_stopped() {
    let world = guarded();
    let one = Agent::new(&world, "1");
    one.edit("src/a.rs", "one\n");
    let done = Finished::of(world.command("git").args(["commit", "-q", "-a", "-m", "x"])).code(0);
    assert_eq!(
        done.stderr()
            .matches("warning: this commit has files that others work on: src/a.rs (claude:1)")
            .count(),
        1
    );
    assert_eq!(holders(&world, "src/a.rs"), [one.owner()]);
}

/// The agent is found by the mark in its shell, too, where its process cannot be seen.
#[test]
fn the_mark_of_a_harness_makes_it_an_agent() {
    let world = guarded();
    let two = Agent::new(&world, "2");
    two.edit("src/b.rs", "two\n");
    let commit = |session: &str| {
        let mut command = world.command("git");
        Finished::of(command.args(["commit", "-q", "-a", "-m", "x"]).env("CLAUDE_CODE_SESSION_ID", session))
    };
    commit("1").code(1).says("src/b.rs (claude:2)");
    commit("2").code(0);
}

#[test]
fn dead_owners_and_other_work_trees_stop_nobody() {
    let world = guarded();
    let tree = world.beside("tree");
    world.git_run(&["worktree", "add", "-q", tree.to_str().unwrap(), "-b", "other"]);
    let one = Agent::new(&world, "1");
    let mut elsewhere = Agent::new(&world, "2");
    elsewhere.cwd = tree;
    elsewhere.edit("src/a.rs", "elsewhere\n");
    Agent::new(&world, "dead").edit("src/b.rs", "dead\n");
    one.edit("src/c.rs", "one\n");
    write(&world, "src/a.rs", "here\n");
    git_of(&one, &["commit", "-q", "-a", "-m", "x"]).code(0);
    assert_eq!(last(&world), ["M src/a.rs", "M src/b.rs", "M src/c.rs"]);
}

#[test]
fn others_are_told_at_their_next_call_that_head_moved() {
    let world = guarded();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    let short = || git(&world, &["rev-parse", "--short", "HEAD"]).trim_end().to_owned();
    two.claim("src/b.rs");
    let first = short();
    one.edit("src/a.rs", "one\n");
    git_of(&one, &["commit", "-q", "-m", "x", "src/a.rs"]).code(0);
    let second = short();
    let branch = git(&world, &["branch", "--show-current"]).trim_end().to_owned();
    assert_eq!(two.news(), format!("HEAD moved from {first} to {second} (branch {branch}) by claude:1."));
    assert_eq!((two.news(), one.news()), (String::new(), String::new()));
    one.edit("src/a.rs", "again\n");
    one.commit(&[]).code(0);
    git_of(&one, &["checkout", "-q", "-b", "topic"]).code(0);
    git_of(&one, &["checkout", "-q", "--", "src/c.rs"]).code(0);
    assert_eq!(two.news(), format!("HEAD moved from {second} to {} (branch topic) by claude:1.", short()));
    world.git_run(&["reset", "-q", "--hard", &first]);
    world.git_run(&["merge", "-q", "--ff-only", "HEAD@{1}"]);
    assert!(two.news().starts_with(&format!("HEAD moved from {first} to ")), "a merge by a person");
    git_of(&one, &["commit", "-q", "--amend", "-m", "amended"]).code(0);
    assert!(two.news().contains(&format!("to {} (branch topic) by claude:1", short())));
}

/// A merge and a rebase take over what is committed already. That is not the uncommitted work of the owner of the file.
#[test]
fn what_is_taken_over_from_another_commit_stops_nobody() {
    let world = guarded();
    world.git_run(&["checkout", "-q", "-b", "side"]);
    write(&world, "src/b.rs", "side\n");
    world.git_run(&["commit", "-q", "-a", "-m", "side"]);
    world.git_run(&["checkout", "-q", "-"]);
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    one.commit(&[]).code(0);
    two.claim("src/b.rs");
    git_of(&one, &["merge", "-q", "--no-edit", "side"]).code(0);
    assert_eq!(git(&world, &["rev-list", "--count", "--merges", "HEAD"]), "1\n");
    world.git_run(&["reset", "-q", "--hard", "HEAD~1"]);
    git_of(&one, &["cherry-pick", "side"]).code(0);
    world.git_run(&["reset", "-q", "--hard", "HEAD~1"]);
    git_of(&one, &["rebase", "-q", "HEAD", "side"]).code(0);
}

#[test]
fn the_own_hooks_of_the_repository_still_refuse() {
    let world = repository();
    hook(&world, "pre-commit", "echo 'the linter says no'; exit 3");
    guard(&world, "install");
    let one = Agent::new(&world, "1");
    one.edit("src/a.rs", "one\n");
    git_of(&one, &["commit", "-a", "-m", "x"]).code(1).says("the linter says no");
    git_of(&one, &["commit", "-q", "-a", "--no-verify", "-m", "x"]).code(0);
}

/// A broken store lets git go on, and the log has a line.
#[test]
fn a_damaged_store_stops_nobody() {
    let world = guarded();
    let (one, two) = (Agent::new(&world, "1"), Agent::new(&world, "2"));
    one.edit("src/a.rs", "one\n");
    two.edit("src/b.rs", "two\n");
    for entry in std::fs::read_dir(world.path(".git/lockkeeper")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && path.file_name().unwrap().to_str().unwrap().contains(".db") {
            std::fs::write(path, "this is not a database").unwrap();
        }
    }
    git_of(&one, &["commit", "-q", "-a", "-m", "x"]).code(0);
    let log = std::fs::read_to_string(world.path(".git/lockkeeper/hooks.log")).unwrap();
    assert!(log.contains("pre-commit"), "{log}");
}

#[test]
fn a_repository_that_takes_no_part_is_left_alone() {
    let world = guarded();
    let one = Agent::new(&world, "1");
    one.edit("src/a.rs", "one\n");
    std::fs::remove_dir_all(world.path(".git/lockkeeper/agents")).unwrap();
    world.git_run(&["commit", "-q", "-a", "-m", "x"]);
    world.run(["git-hook", "a-hook-of-tomorrow"]).code(0);
}
