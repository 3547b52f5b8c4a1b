//! Groups that commit: they take turns on the index of git, without being asked to.

use lockkeeper_testing::{Finished, World, files, until, world};

/// A script that makes commits below a folder of its own, as many as its second argument says.
const COMMITS: &str = r#"
mkdir -p "$1"
i=0
while [ $i -lt $2 ]; do
    i=$((i + 1))
    echo $i > "$1/$i"
    git add "$1" && git status --short > /dev/null && git commit -qm "$1 $i" -- "$1" || exit 1
done
"#;

fn repository() -> World {
    let world = world!().git().write("commits.sh", COMMITS);
    for (key, value) in [("user.name", "t"), ("user.email", "t@t"), ("gc.auto", "0")] {
        world.git_run(&["config", key, value]);
    }
    world
}

/// Eight groups with paths of their own. Each makes this many commits with a command.
fn eight_groups(world: &World, command: &str, commits: usize) {
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in 0..8 {
        text.push_str(&format!(
            "    - {{group_id: g{group}, conflict_paths: [\"g{group}/**\"], command: '{command} g{group} {commits}'}}\n"
        ));
    }
    files::write(&world.path("STAGES.yml"), &text);
}

fn commits(world: &World) -> usize {
    let log = Finished::of(world.command("git").args(["rev-list", "--count", "HEAD"]));
    log.code(0).stdout().trim().parse().unwrap()
}

/// The files that a commit changes.
fn names(world: &World, commit: &str) -> Vec<String> {
    let shown = Finished::of(world.command("git").args(["show", "--format=", "--name-only", commit]));
    shown.code(0).stdout().split_whitespace().map(str::to_owned).collect()
}

/// Requirement 153.
#[test]
fn eight_groups_that_commit_by_path_all_succeed() {
    let world = repository();
    eight_groups(&world, "sh commits.sh", 5);
    world.run(["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(0);
    assert_eq!(commits(&world), 1 + 40);
}

/// Requirement 153. A group commits what it has staged itself, whatever others have staged meanwhile.
#[test]
fn commits_without_paths_have_the_files_of_their_own_group() {
    let world = repository();
    let script = COMMITS.replace(" -- \"$1\" ||", " ||");
    files::write(&world.path("commits.sh"), &script);
    eight_groups(&world, "sh commits.sh", 20);
    world.run(["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(0);
    assert_eq!(commits(&world), 1 + 160);
    let log = Finished::of(world.command("git").args(["log", "--format=%x00%s", "--name-only", "-160"]));
    for commit in log.code(0).stdout().split('\0').skip(1) {
        let lines: Vec<&str> = commit.split_whitespace().collect();
        assert!(
            matches!(lines[..], [group, number, file] if file == format!("{group}/{number}")),
            "{lines:?}"
        );
    }
    Finished::of(world.command("git").args(["diff", "--cached", "--exit-code"])).code(0);
}

/// Requirement 153. Before the first commit, what is staged is compared with nothing.
#[test]
fn the_first_commits_of_a_repository_have_the_files_of_their_own_group() {
    let world = world!().write("live", "1").write("own", "1");
    world.git_run(&["init", "-q"]);
    for (key, value) in [("user.name", "t"), ("user.email", "t@t")] {
        world.git_run(&["config", key, value]);
    }
    let line = "git add live; touch staged; until test -e go; do sleep 0.01; done; git commit -qm live";
    let live = world.start(["exec", "live", "--git", "--", "sh", "-c", line]);
    until("it is staged", || world.path("staged").exists());
    world.run(["exec", "own", "--git", "--", "sh", "-c", "git add own && git commit -qm own"]).code(0);
    assert_eq!(names(&world, "HEAD"), ["own"]);
    world.touch("go");
    live.wait().code(0);
    assert_eq!(names(&world, "HEAD"), ["live"]);
    Finished::of(world.command("git").args(["diff", "--cached", "--exit-code"])).code(0);
}

/// Requirement 153. What a person has staged, and what a dead group has, goes along, as with git alone.
#[test]
fn only_what_other_live_groups_have_staged_is_left_out() {
    let world = repository().write("person", "1").write("dead", "1").write("live", "1").write("own", "1");
    world.git_run(&["add", "person"]);
    world.run(["exec", "dead", "--git", "--", "git", "add", "dead"]).code(0);
    let line = "git add live; touch staged; until test -e go; do sleep 0.01; done; git commit -qm live";
    let live = world.start(["exec", "live", "--git", "--", "sh", "-c", line]);
    until("it is staged", || world.path("staged").exists());
    world.run(["exec", "own", "--git", "--", "sh", "-c", "git add own && git commit -qm own"]).code(0);
    assert_eq!(names(&world, "HEAD"), ["dead", "own", "person"]);
    world.touch("go");
    live.wait().code(0);
    assert_eq!(names(&world, "HEAD"), ["live"]);
    Finished::of(world.command("git").args(["diff", "--cached", "--exit-code"])).code(0);
}

/// Requirement 153. This is what happens without the wrapper: git does not wait for the index.
#[test]
fn without_the_wrapper_commits_collide() {
    let world = repository();
    eight_groups(&world, "PATH=${PATH#*:} sh commits.sh", 20);
    world.run(["stages", "run", "STAGES.yml", "P1", "--load", "0"]).code(1);
    assert!(commits(&world) < 161);
}

/// Requirement 153. A command that writes the index waits; one that reads does not. Both find the repository of `-C`.
#[test]
fn only_what_writes_the_index_waits() {
    let world = repository().write("a", "1");
    files::write(&world.path("sub/x"), "1");
    world.git_run(&["config", "alias.ci", "commit -q"]);
    let holder = world.start([
        "exec",
        "git/index",
        "--",
        "sh",
        "-c",
        "touch held; until test -e go; do sleep 0.01; done",
    ]);
    until("the index is held", || world.path("held").exists());
    let reading = "git status --short && git log --oneline && git -C sub diff && git stash list";
    world.run(["exec", "other", "--git", "--", "sh", "-c", reading]).code(0);
    let writers = [
        world.start(["exec", "w1", "--git", "--", "git", "-C", "sub", "add", "x"]),
        world.start(["exec", "w2", "--git", "--", "git", "--git-dir=.git", "--work-tree=.", "add", "a"]),
        world.start(["exec", "w3", "--git", "--", "git", "ci", "--allow-empty", "-m", "by an alias"]),
    ];
    world.until_waiting(3);
    assert_eq!(commits(&world), 1);
    world.touch("go");
    holder.wait().code(0);
    for writer in writers {
        writer.wait().code(0);
    }
    assert_eq!(commits(&world), 2);
}

/// Requirement 153. `lockkeeper commit` has the index itself, and its git sees the wrapper, too.
#[test]
fn lockkeeper_commit_works_below_the_wrapper() {
    let world = repository().write("f", "1");
    let line = format!("git add f && '{}' commit -m mine f", world.program());
    world.run(["exec", "x", "--git", "--", "sh", "-c", &line]).code(0);
    assert_eq!(commits(&world), 2);
}

/// Requirement 153. A hook of a git that has the index, and a command under `exec git/index`, do not wait for themselves.
#[test]
fn git_never_waits_for_itself() {
    let world = repository();
    let hook = "#!/bin/sh\nPATH=$WRAPPED git -c core.hooksPath=/dev/null add -A\n";
    files::write(&world.path(".git/hooks/pre-commit"), hook);
    Finished::of(world.command("chmod").args(["+x", ".git/hooks/pre-commit"])).code(0);
    let line = "export WRAPPED=$PATH; echo 1 > f; git commit -q --allow-empty -m hooked && git commit -q --allow-empty -m more";
    world.run(["exec", "git/index", "--git", "--", "sh", "-c", line]).code(0);
    world
        .run([
            "exec",
            "x",
            "--git",
            "--",
            "sh",
            "-c",
            "export WRAPPED=$PATH; git commit -q --allow-empty -m again",
        ])
        .code(0);
    assert!(commits(&world) >= 3);
}

/// Requirement 153. All work trees share the lock. Another repository, and a program that is gone, are not in the way.
#[test]
fn other_repositories_and_a_missing_program_pass_through() {
    let world = repository();
    let line = "git init -q ../other && cd ../other && git -c user.name=t -c user.email=t@t commit -q --allow-empty -m o \
        && test ! -e .git/lockkeeper";
    world.run(["exec", "git/index", "--git", "--", "sh", "-c", line]).code(0);
    let link = world.path(".git/lockkeeper/bin/git");
    assert_eq!(std::fs::read_link(&link).unwrap(), std::path::Path::new(world.program()));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/nonexistent/lockkeeper", &link).unwrap();
    let line = "PATH=$PWD/.git/lockkeeper/bin:$PATH git commit -q --allow-empty -m alone";
    Finished::of(world.command("sh").args(["-c", line])).code(0);
    world.run(["exec", "x", "--git", "--", "git", "commit", "-q", "--allow-empty", "-m", "repaired"]).code(0);
    assert_eq!(std::fs::read_link(&link).unwrap(), std::path::Path::new(world.program()));
    let line =
        "git worktree add -q ../tree -b side && cd ../tree && git commit -q --allow-empty -m in-a-tree";
    world.run(["exec", "y", "--git", "--", "sh", "-c", line]).code(0);
}
