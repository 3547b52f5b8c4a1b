//! Where the state lives, and what paths are relative to.

use lockkeeper_testing::{Finished, Started, World, skip, world};

#[test]
fn work_trees_of_one_repository_share_one_store() {
    let world = world!().git();
    world.git_run(&["worktree", "add", "-q", "../tree"]);
    world.acquire(&["db", "--path", "src/**"]);
    let tree = world.at("../tree");
    tree.run(["acquire", "db"]).code(75);
    tree.run(["acquire", "--path", "src/main.rs"]).code(75);
    tree.run(["config"]).code(0).prints(".git/lockkeeper");
    assert!(!tree.cwd().join(".lockkeeper").exists());
}

#[test]
fn the_state_is_never_seen_by_git() {
    let world = world!().git();
    world.acquire(&["db"]);
    let status = world.command("git").args(["status", "--porcelain", "--ignored"]).output().unwrap();
    assert_eq!(String::from_utf8(status.stdout).unwrap(), "");
}

#[test]
fn patterns_are_relative_to_the_folder_that_one_is_in() {
    let world = world!().git().at("src/api");
    let lease = world.acquire(&["--path", "*.rs"]);
    let listing = world.run(["locks", "--json"]).code(0).json();
    assert_eq!(listing["leases"][0]["resources"][0]["path"], "src/api/*.rs", "{lease}");
    let world = world.at("..");
    world.run(["acquire", "--path", "api/x.rs"]).code(75);
    world.run(["acquire", "--path", "x.rs", "--ttl", "1m"]).code(0);
    world.run(["acquire", "--path", "/etc/passwd"]).code(2).says("outside").says("hint: ");
    world.run(["acquire", "--path", "../../x"]).code(2).says("hint: ");
}

/// As in a container that mounts only the work tree. Another store would let a second holder in.
#[test]
fn a_work_tree_without_its_repository_is_refused() {
    let world = world!().git();
    world.git_run(&["worktree", "add", "-q", "../tree"]);
    std::fs::rename(world.path(".git"), world.path("hidden")).unwrap();
    let state = world.path("hidden/lockkeeper");
    let tree = world.at("../tree");
    let commands: [&[&str]; 7] = [
        &["acquire", "db", "--ttl", "1m"],
        &["exec", "db", "--", "true"],
        &["locks"],
        &["why", "db"],
        &["submit", "--", "true"],
        &["runs"],
        &["doctor"],
    ];
    for command in commands {
        tree.run(command)
            .code(69)
            .says("not visible here")
            .says("mount")
            .says("--dir")
            .says("LOCKKEEPER_DIR");
    }
    let report = tree.run(["locks", "--json"]).code(69).json();
    assert_eq!(report["error"]["reason_code"], "REPOSITORY_UNREADABLE");
    assert!(!tree.path(".lockkeeper").exists());
    tree.run(["sprint", "check", "--project-root", "."]).code(0);
    tree.run(["conflicts", "check", "a", "b"]).code(0);
    let tree = tree.set("LOCKKEEPER_DIR", &state);
    tree.run(["acquire", "db", "--ttl", "1m"]).code(0);
    assert!(state.join("leases.db").is_file());
}

#[test]
fn a_git_folder_that_cannot_be_looked_at_is_refused() {
    let world = world!();
    std::os::unix::fs::symlink(".git", world.path(".git")).unwrap();
    world.run(["acquire", "db", "--ttl", "1m"]).code(69).says("cannot look at").says("hint: ");
    // A disk that fails: the kernel's answer is changed on its way to the command.
    let world = world!().git();
    let (git, log) = (world.path(".git"), world.home().join("strace.log"));
    let strace = ["strace", "-qq", "-o", log.to_str().unwrap(), "-P", git.to_str().unwrap()];
    let strace = [&strace[..], &["-e", "trace=statx", "-e", "inject=statx:error=EIO"]].concat();
    let mut command = world.lockkeeper_under(&strace, &["acquire", "db", "--ttl", "1m"]);
    Finished::of(&mut command).code(69).says("Input/output error").says("hint: ");
    assert!(!world.path(".lockkeeper").exists());
    let world = world!().git().set("GIT_DIR", "/nope");
    world.run(["acquire", "db", "--ttl", "1m"]).code(2).says("GIT_DIR").says("unset it");
    assert!(!world.path(".lockkeeper").exists());
}

#[test]
fn a_store_that_cannot_be_looked_at_is_not_taken_for_an_empty_one() {
    let world = world!();
    std::os::unix::fs::symlink("loop", world.cwd().join("loop")).unwrap();
    for words in [vec!["locks"], vec!["why", "db"], vec!["fence", "db", "1"], vec!["release", "L1"]] {
        world.run([vec!["--dir", "loop"], words].concat()).code(69).says("loop").says("hint: ");
    }
}

/// Exit 69 means: the store could not be used, and nothing was done. It is never the exit code of a command that `exec` ran.
#[test]
fn a_store_that_cannot_be_used_is_exit_69_for_every_command() {
    let world = world!();
    std::os::unix::fs::symlink("loop", world.cwd().join("loop")).unwrap();
    for file in ["damaged/leases.db", "damaged/runs.db", "file"] {
        let file = world.cwd().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "not a database").unwrap();
    }
    let commands = [
        "exec db -- touch executed",
        "acquire db --ttl 1m",
        "release L1",
        "release T1",
        "renew L1",
        "upgrade L1",
        "downgrade L1",
        "fence db 1",
        "locks",
        "locks check-deadlock",
        "locks cleanup",
        "locks break L1 --yes",
        "locks force-release-all --yes",
        "why db",
        "submit -- touch executed",
        "requests",
        "runs",
        "run show x",
        "run cancel x",
        "run retry x",
        "run wait x",
        "work --drain",
        "queue list",
        "queue run-next",
        "serve --listen 127.0.0.1:0",
    ];
    for folder in ["/dev/null", "loop", "file/below", "damaged"] {
        for command in commands {
            let words = ["--json", "--dir", folder].into_iter().chain(command.split(' '));
            let report = world.run(words.collect::<Vec<_>>()).code(69).json();
            assert_eq!(report["error"]["category"], "ENVIRONMENT", "{folder} {command}: {report}");
            assert!(report["error"]["hint"].is_string(), "{folder} {command}: {report}");
        }
    }
    // What cannot be created is only needed by what writes.
    for command in ["exec db -- touch executed", "acquire db --ttl 1m", "submit -- touch executed"] {
        let words = ["--dir", "/proc/none"].into_iter().chain(command.split(' '));
        world.run(words.collect::<Vec<_>>()).code(69).says("hint: ");
    }
    assert!(!world.cwd().join("executed").exists());
    // Bad input comes first.
    world.run(["--dir", "/dev/null", "exec", "db", "--ttl", "soon", "--", "true"]).code(2);
}

#[test]
fn a_named_folder_counts_first() {
    let world = world!().git();
    world.run(["--dir", "one", "acquire", "db", "--ttl", "1m"]).code(0);
    world.run(["acquire", "db", "--ttl", "1m"]).code(0);
    let world = world.set("LOCKKEEPER_DIR", "one");
    world.run(["acquire", "db"]).code(75);
    world.run(["acquire", "db", "--store", "sqlite:two", "--ttl", "1m"]).code(0);
    assert!(world.cwd().join("two/leases.db").is_file());
    world.run(["locks", "--dir", "two"]).code(0).prints("db");
}

/// A misspelt folder is not taken for an empty one without a word.
#[test]
fn a_named_folder_that_does_not_exist_is_warned_of() {
    let world = world!().git();
    for read in [&["locks"][..], &["why", "db"], &["runs"], &["requests"], &[]] {
        let named = world.run([&["--dir", "nope"], read].concat()).code(0);
        let warnings = named.stderr().matches("warning: there is no state folder ").count();
        assert_eq!(warnings, 1, "{named:?}");
        assert!(!world.path("nope").exists());
        let unnamed = world.run(read).code(0);
        assert!(!unnamed.stderr().contains("warning"), "{unnamed:?}");
    }
    let taken = world.run(["--dir", "nope", "acquire", "db", "--ttl", "1m"]).code(0);
    assert!(!taken.stderr().contains("warning"), "{taken:?}");
    let read = world.run(["--dir", "nope", "runs"]).code(0);
    assert!(!read.stderr().contains("warning"), "{read:?}");
}

#[test]
fn outside_of_git_the_nearest_folder_above_counts() {
    let world = world!();
    world.acquire(&["db", "--path", "a/**"]);
    let world = world.at("a/b");
    world.run(["acquire", "db"]).code(75);
    world.run(["acquire", "--path", "x"]).code(75);
    assert!(!world.cwd().join(".lockkeeper").exists());
}

/// Invariant 12.
#[test]
fn a_damaged_store_is_refused_and_left_as_it_is() {
    let world = world!();
    world.acquire(&["db"]);
    for file in ["tokens", "leases.db"] {
        let path = world.cwd().join(".lockkeeper").join(file);
        let sound = std::fs::read(&path).unwrap();
        let wal = world.cwd().join(".lockkeeper/leases.db-wal");
        let log = std::fs::read(&wal).unwrap();
        if file == "leases.db" {
            std::fs::remove_file(&wal).unwrap();
        }
        std::fs::write(&path, "not what it was").unwrap();
        world.run(["acquire", "other", "--ttl", "1m"]).code(69).says(file).says("hint: ");
        let report = world.run(["acquire", "other", "--ttl", "1m", "--json"]).code(69).json();
        assert_eq!(report["error"]["reason_code"], "STORE_DAMAGED", "{report}");
        assert_eq!(std::fs::read(&path).unwrap(), b"not what it was");
        std::fs::write(&path, sound).unwrap();
        std::fs::write(&wal, log).unwrap();
    }
}

/// A command that runs a line of shell while the state folder is mounted read-only for it, as in a sandbox.
fn read_only(world: &World, line: &str) -> Option<std::process::Command> {
    if !Finished::of(world.command("unshare").args(["-m", "true"])).succeeded() {
        return None;
    }
    let mount = "mount --bind .lockkeeper .lockkeeper && mount -o remount,bind,ro .lockkeeper";
    let line = format!("{mount} && lk() {{ '{}' \"$@\"; }} && {line}", world.program());
    let mut command = world.command("unshare");
    command.args(["-m", "sh", "-c", &line]);
    Some(command)
}

#[test]
fn what_only_reads_works_in_a_read_only_folder() {
    let world = world!();
    let holder = world.hold(&["db", "--owner", "worker:one"]);
    let lease = world.json(&["locks"])["leases"][0].clone();
    let token = lease["token"].as_u64().unwrap();
    let run = |line: &str| read_only(&world, line).map(|mut command| Finished::of(&mut command));
    let Some(listed) = run("lk locks") else { return skip("a mount namespace: root or CAP_SYS_ADMIN") };
    listed.code(0).prints("worker:one").prints("alive");
    run("lk why db").unwrap().code(0).prints("it lives").prints("read-only here, so do it elsewhere");
    run("lk why log").unwrap().code(0).prints("log is free").prints("read-only here");
    run(&format!("lk fence db {token}")).unwrap().code(0);
    run(&format!("lk fence db {}", token + 1)).unwrap().code(75);
    run("lk locks check-deadlock").unwrap().code(0);
    for line in ["lk acquire log --ttl 1m", "lk exec log -- true"] {
        run(line).unwrap().code(69).says("Read-only").says("outside").says("MCP");
    }
    // It sees what others write meanwhile.
    let mut watcher =
        Started::of(&mut read_only(&world, "lk locks; echo first; read line; lk locks").unwrap());
    watcher.line_with("first");
    holder.finish().code(0);
    world.acquire(&["cache", "--owner", "worker:two"]);
    watcher.send("go\n");
    watcher.wait().code(0).prints("worker:two");
}

/// The same for requests and runs, in a sandbox and for another user who may only read.
#[test]
fn requests_and_runs_can_be_read_in_a_read_only_folder() {
    let world = world!();
    world.run(["submit", "--id", "done", "--", "echo", "written"]).code(0);
    world.run(["work", "--drain"]).code(0);
    world.run(["submit", "--id", "waits", "--queue-timeout", "1ms", "--lock", "db", "--", "true"]).code(0);
    let reading = [
        ("lk runs", "succeeded"),
        ("lk runs stats", "succeeded"),
        ("lk requests", "waits"),
        ("lk queue list", "waits"),
        ("lk run show done", "succeeded"),
        ("lk run events done", "claimed"),
        ("lk run logs done", "written"),
        ("lk run wait done; echo code $?", "code 0"),
    ];
    let run = |line: &str| read_only(&world, line).map(|mut command| Finished::of(&mut command));
    if run("true").is_none() {
        return skip("a mount namespace: root or CAP_SYS_ADMIN");
    }
    for (line, printed) in reading {
        run(line).unwrap().code(0).prints(printed);
    }
    for line in ["lk submit -- true", "lk run cancel waits", "lk runs prune --older-than 0s"] {
        run(line).unwrap().code(69).says("ead-only").says("hint: ");
    }
    // Another user: the folder is open to read, and nothing in it to write.
    Finished::of(world.command("chmod").args(["-R", "a+rX", "."])).code(0);
    let program = world.path("lockkeeper");
    std::fs::copy(world.program(), &program).unwrap();
    for (line, printed) in reading {
        let line = format!("lk() {{ '{}' --dir .lockkeeper \"$@\"; }} && {line}", program.display());
        let mut other = world.command("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &line]);
        Finished::of(&mut other).code(0).prints(printed);
    }
}

/// SQLite itself refuses paths of more than 485 bytes.
#[test]
fn a_folder_may_have_a_long_path() {
    let world = world!();
    let folder = (0..4).fold(world.path("long"), |path, _| path.join("f".repeat(250)));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |args: &[&str]| Finished::of(world.lockkeeper(args).current_dir(&folder));
    run(&["acquire", "db", "--ttl", "1m"]).code(0);
    run(&["acquire", "db"]).code(75);
    run(&["exec", "log", "--", "true"]).code(0);
    run(&["submit", "--", "echo", "ran"]).code(0);
    run(&["work", "--drain"]).code(0);
    run(&["runs"]).code(0).prints("succeeded");
    assert!(folder.join(".lockkeeper/leases.db-wal").is_file());
}

/// Invariant 1. A repository that git does not know any more is still the place of its state folder.
#[test]
fn a_repository_without_its_head_keeps_its_state_folder() {
    let world = world!().git();
    let holder = world.hold(&["db"]);
    std::fs::remove_file(world.path(".git/HEAD")).unwrap();
    world.run(["exec", "db", "--no-wait", "--", "true"]).code(75);
    assert!(!world.path(".lockkeeper").exists());
    holder.finish().code(0);
}
