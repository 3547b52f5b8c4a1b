//! Paths: one file has one claim, by whatever name, in its own repository.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::agents::{Agent, holders, repository};

#[test]
fn every_name_of_a_file_is_the_same_file() {
    let world = repository();
    symlink("src", world.path("link")).unwrap();
    symlink("src/a.rs", world.path("a")).unwrap();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    let other = Agent::claude(&world, "d");
    for path in ["link/a.rs", "a", "src/../src/./a.rs", "./src//a.rs", "none/../src/a.rs"] {
        assert!(other.edit(path).denied().is_some(), "{path}");
    }
    let home = world.home().join("r");
    symlink(world.cwd(), &home).unwrap();
    assert!(other.tool("Write", json!({ "file_path": "~/r/src/a.rs" })).denied().is_some());
    for path in ["src/a.rs2", "src/A.rs", "src/a\\.rs", "src/[a].rs"] {
        assert_eq!(other.edit(path).denied(), None, "{path}");
    }
}

/// A write by one name of a file changes it under all names. A file with two names that nobody has claimed is free.
#[test]
fn another_hard_link_to_a_claimed_file_is_the_same_file() {
    let world = repository();
    std::fs::create_dir_all(world.path("src")).unwrap();
    for file in ["src/a.rs", "src/free.rs"] {
        std::fs::write(world.path(file), "x").unwrap();
        std::fs::hard_link(world.path(file), world.path(&format!("{file}.link"))).unwrap();
    }
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    claude.edit("src/a.rs.link").passes();
    claude.edit("src/a.rs").passes();
    let other = Agent::claude(&world, "d");
    other.edit("src/a.rs.link").is_denied();
    other.tool("Bash", json!({ "command": "echo x > src/a.rs.link" })).is_denied();
    other.tool("Bash", json!({ "command": "cat src/a.rs.link" })).passes();
    other.edit("src/free.rs.link").passes();
    let third = Agent::claude(&world, "e");
    third.edit("src/free.rs").is_denied();
    claude.event("SessionEnd").passes();
    other.edit("src/a.rs.link").passes();
}

#[test]
fn what_is_in_no_repository_that_takes_part_passes_and_leaves_nothing() {
    let world = repository();
    let stranger = lockkeeper_testing::world!().git();
    let claude = Agent::claude(&world, "c");
    for path in [stranger.path("src/x.rs"), world.beside("x"), world.path(".git/config")] {
        claude.tool("Write", json!({ "file_path": path, "content": "" })).passes();
    }
    assert!(!stranger.path(".git/lockkeeper").exists());
    let mut elsewhere = Agent::claude(&stranger, "e");
    elsewhere.cwd = stranger.cwd().to_owned();
    let before = stranger.tree();
    for event in ["SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"] {
        elsewhere.event(event).passes();
    }
    elsewhere.edit("src/x.rs").passes();
    assert!(before == stranger.tree(), "the hook left something behind");
}

#[test]
fn the_repository_of_the_file_decides() {
    let (world, other) = (repository(), repository());
    let there = Agent::claude(&other, "there");
    there.edit("src/a.rs").passes();
    let here = Agent::claude(&world, "here");
    here.edit("src/a.rs").passes();
    here.tool("Write", json!({ "file_path": other.path("src/a.rs"), "content": "" })).is_denied();
    // All or none, over two repositories.
    let both = json!({ "command": format!("tee src/b.rs {}", other.path("src/a.rs").display()) });
    here.tool("Bash", both).is_denied();
    assert!(holders(&world, "src/b.rs").is_empty());
}

/// A name that is not UTF-8 has no pattern, so it cannot be claimed. Two such names must not count as one.
#[test]
fn a_name_that_is_not_utf_8_is_nobodys_and_is_logged() {
    use std::os::unix::ffi::OsStrExt;
    let world = repository();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    let file = |byte: u8| world.path("src").join(std::ffi::OsStr::from_bytes(&[byte, b'.', b't']));
    first.runs(r"printf x > src/$'\xff.t'").passes();
    std::fs::write(file(0xff), "x").unwrap();
    first.has_run(r"printf x > src/$'\xff.t'").passes();
    assert_eq!(world.json(&["locks"])["leases"], json!([]));
    let lines = crate::agents::log(&world);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("not UTF-8") && lines[0].contains("claude:1"), "{lines:?}");
    for command in [r"printf x > src/$'\xfe.t'", r"printf x > src/$'\xff.t'"] {
        second.runs(command).passes();
        second.has_run(command).passes();
    }
    assert_eq!(crate::agents::log(&world).len(), 1, "once for a file that nobody else changed");
}
