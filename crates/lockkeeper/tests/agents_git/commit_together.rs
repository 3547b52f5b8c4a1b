//! Agents that commit at the same time.

use std::collections::BTreeSet;

use lockkeeper_testing::Started;

use crate::repository::{Agent, git, repository, write};

#[test]
fn ten_agents_commit_at_once_and_each_commit_has_its_own_files_only() {
    let world = repository();
    let agents: Vec<Agent<'_>> = (0..10).map(|number| Agent::new(&world, &number.to_string())).collect();
    for (number, agent) in agents.iter().enumerate() {
        agent.edit(&format!("f{number}/one.rs"), "1\n");
        agent.edit(&format!("f{number}/two.rs"), "2\n");
    }
    write(&world, "src/b.rs", "staged by nobody\n");
    world.git_run(&["add", "src/b.rs"]);
    let start = |(number, agent): (usize, &Agent<'_>)| {
        let message = format!("work of {number}");
        Started::of(&mut agent.command(world.program(), &["commit", "-m", &message]))
    };
    let started: Vec<Started> = agents.iter().enumerate().map(start).collect();
    for commit in started {
        commit.wait().code(0);
    }
    let log = git(&world, &["log", "-10", "--format=@%s", "--name-only"]);
    let commits: BTreeSet<String> = log
        .split('@')
        .skip(1)
        .map(|commit| commit.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let expected: BTreeSet<String> =
        (0..10).map(|number| format!("work of {number} f{number}/one.rs f{number}/two.rs")).collect();
    assert_eq!(commits, expected);
    assert_eq!(git(&world, &["status", "--porcelain"]), "M  src/b.rs\n");
}

/// Another git command has the common index locked. The commit is made when the lock is gone.
#[test]
fn a_locked_index_is_waited_for() {
    let world = repository();
    write(&world, "src/a.rs", "1\n");
    let lock = world.path(".git/index.lock");
    std::fs::write(&lock, "").unwrap();
    let commit = world.start(["commit", "-m", "x", "src/a.rs"]);
    let is_held = || world.json(&["locks"])["leases"].as_array().is_some_and(|leases| !leases.is_empty());
    lockkeeper_testing::until("it holds git/index", is_held);
    assert_ne!(git(&world, &["log", "-1", "--format=%s"]), "x\n");
    std::fs::remove_file(&lock).unwrap();
    commit.wait().code(0);
    assert_eq!(git(&world, &["status", "--porcelain"]), "");
}

/// The editor of a `git commit` is open, which has read the index and writes it back later.
#[test]
fn a_commit_beside_an_open_editor_is_refused_before_it_is_made() {
    let world = repository();
    write(&world, "src/a.rs", "1\n");
    write(&world, "src/b.rs", "staged\n");
    git(&world, &["add", "src/b.rs"]);
    let mut command = world.command("git");
    command.args([
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@t",
        "commit",
        "-e",
        "-m",
        "theirs",
        "-i",
        "src/b.rs",
    ]);
    command.env("GIT_EDITOR", "read x <go #");
    assert!(world.command("mkfifo").arg("go").status().unwrap().success());
    let editor = lockkeeper_testing::Started::of(&mut command);
    lockkeeper_testing::until("git has locked the index", || world.path(".git/index.lock").exists());
    world.run(["commit", "-m", "ours", "src/a.rs"]).code(75).says("index.lock");
    assert_ne!(git(&world, &["log", "-1", "--format=%s"]), "ours\n");
    std::fs::write(world.path("go"), "x\n").unwrap();
    editor.wait().code(0);
    std::fs::remove_file(world.path("go")).unwrap();
    world.run(["commit", "-m", "ours", "src/a.rs"]).code(0);
    assert_eq!(git(&world, &["log", "-2", "--format=%s"]), "ours\ntheirs\n");
    assert_eq!(git(&world, &["status", "--porcelain"]), "");
}
