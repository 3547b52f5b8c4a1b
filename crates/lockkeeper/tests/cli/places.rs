//! Where the state lives, and what paths are relative to.

use crate::env::Env;

#[test]
fn work_trees_of_one_repository_share_one_store() {
    let env = Env::new().git();
    env.git_run(&["worktree", "add", "-q", "../tree"]);
    env.acquire(&["db", "--path", "src/**"]);
    let tree = env.at("../tree");
    tree.run(["acquire", "db"]).code(75);
    tree.run(["acquire", "--path", "src/main.rs"]).code(75);
    tree.run(["config"]).code(0).prints(".git/lockkeeper");
    assert!(!tree.cwd().join(".lockkeeper").exists());
}

#[test]
fn the_state_is_never_seen_by_git() {
    let env = Env::new().git();
    env.acquire(&["db"]);
    let status = env.command("git").args(["status", "--porcelain", "--ignored"]).output().unwrap();
    assert_eq!(String::from_utf8(status.stdout).unwrap(), "");
}

#[test]
fn patterns_are_relative_to_the_folder_that_one_is_in() {
    let env = Env::new().git().at("src/api");
    let lease = env.acquire(&["--path", "*.rs"]);
    let listing = env.run(["locks", "--json"]).code(0).json();
    assert_eq!(listing["leases"][0]["resources"][0]["path"], "src/api/*.rs", "{lease}");
    let env = env.at("..");
    env.run(["acquire", "--path", "api/x.rs"]).code(75);
    env.run(["acquire", "--path", "x.rs", "--ttl", "1m"]).code(0);
    env.run(["acquire", "--path", "/etc/passwd"]).code(2).says("outside").says("hint: ");
    env.run(["acquire", "--path", "../../x"]).code(2).says("hint: ");
}

#[test]
fn a_store_that_cannot_be_looked_at_is_not_taken_for_an_empty_one() {
    let env = Env::new();
    std::os::unix::fs::symlink("loop", env.cwd().join("loop")).unwrap();
    for words in [vec!["locks"], vec!["why", "db"], vec!["fence", "db", "1"], vec!["release", "L1"]] {
        env.run([vec!["--dir", "loop"], words].concat()).code(1).says("loop").says("hint: ");
    }
}

#[test]
fn a_named_folder_counts_first() {
    let env = Env::new().git();
    env.run(["--dir", "one", "acquire", "db", "--ttl", "1m"]).code(0);
    env.run(["acquire", "db", "--ttl", "1m"]).code(0);
    let env = env.set("LOCKKEEPER_DIR", "one");
    env.run(["acquire", "db"]).code(75);
    env.run(["acquire", "db", "--store", "sqlite:two", "--ttl", "1m"]).code(0);
    assert!(env.cwd().join("two/leases.db").is_file());
    env.run(["locks", "--dir", "two"]).code(0).prints("db");
}

#[test]
fn outside_of_git_the_nearest_folder_above_counts() {
    let env = Env::new();
    env.acquire(&["db", "--path", "a/**"]);
    let env = env.at("a/b");
    env.run(["acquire", "db"]).code(75);
    env.run(["acquire", "--path", "x"]).code(75);
    assert!(!env.cwd().join(".lockkeeper").exists());
}

/// Invariant 12.
#[test]
fn a_damaged_store_is_refused_and_left_as_it_is() {
    let env = Env::new();
    env.acquire(&["db"]);
    for file in ["tokens", "leases.db"] {
        let path = env.cwd().join(".lockkeeper").join(file);
        let sound = std::fs::read(&path).unwrap();
        let wal = env.cwd().join(".lockkeeper/leases.db-wal");
        let log = std::fs::read(&wal).unwrap();
        if file == "leases.db" {
            std::fs::remove_file(&wal).unwrap();
        }
        std::fs::write(&path, "not what it was").unwrap();
        env.run(["acquire", "other", "--ttl", "1m"]).code(1).says(file).says("hint: ");
        let report = env.run(["acquire", "other", "--ttl", "1m", "--json"]).code(1).json();
        assert_eq!(report["error"]["reason_code"], "STORE_DAMAGED", "{report}");
        assert_eq!(std::fs::read(&path).unwrap(), b"not what it was");
        std::fs::write(&path, sound).unwrap();
        std::fs::write(&wal, log).unwrap();
    }
}
