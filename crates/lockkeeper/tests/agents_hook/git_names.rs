//! Git commands in a hook: what concerns the whole tree, the index and HEAD.

use lockkeeper_testing::World;

use crate::agents::{Agent, holders, repository};

fn impatient() -> World {
    repository().set("LOCKKEEPER_AGENTS_PATIENCE", "0s")
}

#[test]
fn commands_on_the_whole_tree_are_refused_while_another_works_in_it() {
    let world = impatient();
    let (first, second) = (Agent::claude(&world, "1"), Agent::new(&world, "codex", "2"));
    first.edit("src/a.rs").passes();
    let commands = [
        "git switch other",
        "git checkout other",
        "git reset --hard",
        "git stash",
        "git merge x",
        "git rebase main",
        "git pull",
        "git clean -fd",
        "git restore .",
    ];
    for command in commands {
        let answer = second.runs(command);
        assert!(answer.denied().is_some_and(|reason| reason.contains("claude:1")), "{command}: {answer:?}");
    }
    assert!(holders(&world, "git/head").is_empty());
    first.event("SessionEnd");
    for command in commands {
        second.runs(command).passes();
        let name = if command.contains("clean") {
            continue;
        } else if command.contains("stash") || command.contains("restore") {
            "git/index"
        } else {
            "git/head"
        };
        assert_eq!(holders(&world, name), ["codex:2"], "{command}");
        second.has_run(command).passes();
        assert!(holders(&world, name).is_empty(), "{command}");
    }
}

#[test]
fn git_commands_of_two_agents_take_turns() {
    let world = impatient();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("src/a.rs").passes();
    first.runs("git add src/a.rs && git commit -m x").passes();
    let answer = second.runs("git add src/b.rs");
    assert!(answer.is_denied().contains("it needs git/index, which claude:1 has held"), "{answer:?}");
    second.runs("git status; git log; git diff").passes();
    first.has_run("git add src/a.rs && git commit -m x").passes();
    let told = second.runs("ls");
    assert!(told.told().unwrap().contains("git/index is free now"), "{told:?}");
    second.runs("git add src/b.rs").passes();
}

#[test]
fn what_would_take_others_files_along_is_refused() {
    let world = impatient();
    let (first, second) = (Agent::claude(&world, "1"), Agent::new(&world, "codex", "2"));
    first.edit("src/a.rs").passes();
    let commands =
        ["git add -A", "git add .", "git add -u", "git commit -am x", "git add src", "git add src/a.rs"];
    for command in commands {
        second.runs(command).passes();
        second.has_run(command).passes();
    }
    std::fs::write(world.path("src/a.rs"), "changed\n").unwrap();
    std::fs::write(world.path("src/b.rs"), "changed\n").unwrap();
    for command in commands {
        let answer = second.runs(command);
        let reason = answer.is_denied();
        assert!(
            reason.contains("src/a.rs (claude:1)") && reason.contains("commit --owner codex:2 -m"),
            "{command}: {reason}"
        );
        assert!(reason.chars().count() <= 600, "{reason}");
    }
    assert!(holders(&world, "git/index").is_empty());
    second.runs("git add src/b.rs").passes();
    second.has_run("git add src/b.rs").passes();
    second.runs("git commit -m x").passes();
    second.has_run("git commit -m x").passes();
    world.git_run(&["add", "src/a.rs"]);
    second.runs("git commit -m x").is_denied();
    first.runs("git commit -m x").passes();
}

/// A new file is not taken along by `commit -a`, and `add .` takes only what is below the folder.
#[test]
fn what_is_not_taken_along_is_no_reason() {
    let world = impatient();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("docs/new.md").passes();
    std::fs::create_dir_all(world.path("docs")).unwrap();
    std::fs::write(world.path("docs/new.md"), "new\n").unwrap();
    for command in ["git commit -am x", "git add -u", "cd src && git add ."] {
        second.runs(command).passes();
        second.has_run(command).passes();
    }
    second.runs("git add .").is_denied();
    let child = first.sub("a");
    child.runs("git add .").passes();
}

/// `lockkeeper commit` holds the index by itself, and must not wait for its own caller.
#[test]
fn commit_in_the_same_line_finds_the_index_free() {
    let world = impatient();
    let agent = Agent::claude(&world, "1");
    agent.runs("git add -N src/new.rs; lockkeeper commit -m x").passes();
    assert!(holders(&world, "git/index").is_empty());
}

#[test]
fn a_formatter_without_paths_is_refused_where_it_would_change_others_files() {
    let world = impatient();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("src/a.rs").passes();
    second.runs("cargo fmt").passes();
    std::fs::write(world.path("src/a.rs"), "changed\n").unwrap();
    assert!(second.runs("cargo fmt").is_denied().contains("src/a.rs (claude:1)"));
    second.runs("black .").passes();
    first.runs("cargo fmt").passes();
    // A merge takes over commits of others, but it is no reason to format their files.
    std::fs::write(world.path(".git/MERGE_HEAD"), "").unwrap();
    second.runs("cargo fmt").is_denied();
    second.runs("git commit -m x").passes();
}
