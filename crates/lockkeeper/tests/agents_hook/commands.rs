//! `wait`, `note` and `board`.

use lockkeeper_testing::{Finished, Started, skip};
use serde_json::json;

use crate::agents::{Agent, holders, repository};

#[test]
fn wait_returns_when_the_file_is_free() {
    let world = repository();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("src/a.rs").passes();
    second.edit("src/a.rs").is_denied();
    let waiter = Started::of(&mut world.lockkeeper(["wait", "--owner", "claude:2", "src/a.rs"]));
    let mut waiter = waiter;
    waiter.until_stderr("waiting for src/a.rs");
    first.event("SessionEnd");
    waiter.wait().code(0).says("yours now: src/a.rs");
    assert_eq!(holders(&world, "src/a.rs"), ["claude:2"]);
    second.edit("src/a.rs").passes();
}

/// The place is kept: who came later stays behind.
#[test]
fn wait_gives_up_with_75_and_keeps_the_place() {
    let world = repository();
    let [first, second, third] = ["1", "2", "3"].map(|session| Agent::claude(&world, session));
    first.edit("src/a.rs").passes();
    second.edit("src/b.rs").passes();
    second.run(&["wait", "--for", "10ms", "src/a.rs"]).code(75).says("place in line is kept");
    third.edit("src/a.rs").is_denied();
    first.event("SessionEnd");
    assert_eq!(holders(&world, "src/a.rs"), ["claude:2"]);
    second.run(&["wait", "src/a.rs", "src/b.rs"]).code(0);
}

#[test]
fn two_agents_that_wait_for_each_other_are_told() {
    let world = repository();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("src/a.rs").passes();
    second.edit("src/b.rs").passes();
    first.edit("src/b.rs").is_denied();
    let answer = second.edit("src/a.rs");
    let reason = answer.is_denied();
    let file = world.path("src/b.rs").canonicalize().unwrap();
    let way_out = format!("`{} commit --owner claude:2 -m MSG {}`", world.program(), file.display());
    for part in ["would never end", "claude:1 waits for src/b.rs, which you hold", &way_out] {
        assert!(reason.contains(part), "no {part:?} in {reason}");
    }
    second.run(&["wait", "src/a.rs"]).code(75);
}

#[test]
fn bad_input_is_refused_with_a_way_out() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    world.run(["wait", "src/a.rs"]).code(2).says("--owner");
    world.run(["wait", "--owner", "claude:nobody", "src/a.rs"]).code(2).says("lockkeeper board");
    claude.run(&["wait", "/etc/hosts"]).code(2).says("not a file of");
    claude.run(&["note", &"x".repeat(201)]).code(2).says("shorter");
    let stranger = lockkeeper_testing::world!().git();
    stranger.run(["note", "x"]).code(2).says("not coordinated");
    stranger.run(["board"]).code(0).says("no agents");
    assert!(!stranger.path(".git/lockkeeper").exists());
}

#[test]
fn the_board_shows_what_each_agent_does() {
    let world = repository();
    let (first, second) = (Agent::claude(&world, "1"), Agent::new(&world, "codex", "2"));
    first.edit("src/a.rs").passes();
    first.run(&["note", "split the parser"]).code(0);
    second.edit("src/a.rs").is_denied();
    second.edit("src/a.rs").is_denied();
    let board = world.json(&["board"]);
    let of = |owner: &str| {
        board["agents"].as_array().unwrap().iter().find(|agent| agent["owner"] == owner).unwrap().clone()
    };
    let one = of("claude:1");
    assert_eq!(
        (&one["state"], &one["claims"], &one["note"]),
        (&json!("works"), &json!(["src/a.rs"]), &json!("split the parser"))
    );
    let two = of("codex:2");
    assert_eq!(
        (&two["state"], &two["denied"], &two["waits_for"]),
        (&json!("waits"), &json!({ "src/a.rs": 2 }), &json!(["src/a.rs"]))
    );
    world.run(["board"]).code(0).prints("src/a.rs ×2").prints("split the parser");
    let line = format!("stty rows 40 cols 60; '{}' board; echo that is all", world.program());
    let mut terminal = world.terminal(&line);
    let shown = terminal.sees("that is all");
    assert!(
        shown.contains("OWNER") && shown.lines().all(|line| line.trim_end().chars().count() <= 60),
        "{shown}"
    );
    terminal.wait().code(0);
    first.event("Stop");
    let after = world.json(&["board"]);
    let states: Vec<_> = after["agents"].as_array().unwrap().iter().map(|agent| &agent["state"]).collect();
    assert_eq!(states.iter().filter(|state| **state == "rests").count(), 1, "{after}");
}

/// Notes and file names are texts of strangers.
#[test]
fn the_board_lets_no_control_characters_through() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/\u{1b}[2Jx\n.rs").passes();
    claude.run(&["note", "\u{1b}]0;title\u{7} \u{9b}31m"]).code(0);
    let board = world.run(["board"]).code(0).stdout();
    assert!(!board.contains(|c: char| c.is_control() && c != '\n'), "{board:?}");
    assert_eq!(board.lines().count(), 2, "{board:?}");
    let answer = Agent::claude(&world, "d").edit("src/\u{1b}[2Jx\n.rs");
    assert!(!answer.is_denied().contains(|c: char| c.is_control()), "{answer:?}");
}

/// A notification while an agent rests does not make it work.
#[test]
fn an_unknown_event_changes_nothing() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    claude.event("Stop");
    claude.event("Notification").passes();
    assert_eq!(world.json(&["board"])["agents"][0]["state"], json!("rests"));
}

/// The agent is found by the process that its hook registered.
#[test]
fn an_agent_need_not_name_itself() {
    let world = repository();
    let input = Agent::claude(&world, "c").edit_input("src/a.rs").to_string();
    let script = format!(
        "import subprocess\nsubprocess.run(['sh', '-c', '{0} hook'], input={input:?}, text=True)\nprint(subprocess.run(['sh', '-c', '{0} note busy'], text=True).returncode, flush=True)\n",
        world.program()
    );
    let ran = lockkeeper_testing::Finished::of(
        world.command("python3").args(["-c", &script]).env("CLAUDE_CODE_SESSION_ID", "c"),
    );
    ran.code(0).prints("0\n").says("noted for claude:c");
}

/// The folder of git is often read-only in a sandbox.
#[test]
fn a_note_in_a_read_only_repository_names_the_mcp_tool() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    let in_own_mounts = |line: &str| {
        let line = format!("mount --bind .git .git && mount -o remount,bind,ro .git && {line}");
        Finished::of(world.command("unshare").args(["-rm", "sh", "-c", &line]))
    };
    if !in_own_mounts("true").succeeded() {
        return skip("mounts of its own");
    }
    let line = format!("exec '{}' note hi --owner claude:c", world.program());
    in_own_mounts(&line).code(1).says("MCP tool `note`");
}
