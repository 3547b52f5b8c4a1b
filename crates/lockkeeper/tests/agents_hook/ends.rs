//! How claims end: the turn, the process, the session, time.

use lockkeeper_testing::until;
use serde_json::json;

use crate::agents::{Agent, holders, repository};

/// Files as committed are let go; uncommitted work stays for a while.
#[test]
fn at_the_end_of_a_turn_only_uncommitted_work_is_kept() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    for path in ["src/a.rs", "src/b.rs", "src/new.rs", "src/never.rs"] {
        claude.edit(path).passes();
    }
    std::fs::write(world.path("src/b.rs"), "changed\n").unwrap();
    std::fs::write(world.path("src/new.rs"), "new\n").unwrap();
    claude.event("Stop");
    assert!(holders(&world, "src/a.rs").is_empty() && holders(&world, "src/never.rs").is_empty());
    for path in ["src/b.rs", "src/new.rs"] {
        assert_eq!(holders(&world, path), ["claude:c"], "{path}");
    }
    let answer = Agent::claude(&world, "d").edit("src/b.rs");
    assert!(answer.is_denied().contains("at the latest in 9m"), "{answer:?}");
    claude.edit("src/b.rs").passes();
    let answer = Agent::claude(&world, "d").edit("src/b.rs");
    assert!(answer.is_denied().contains("at the latest in 29m"), "a new turn renews: {answer:?}");
}

/// Invariant 4.
#[test]
fn kill_9_of_the_agent_frees_at_once() {
    let world = repository();
    let mut claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    claude.sub("one").edit("src/b.rs").passes();
    claude.kill();
    let other = Agent::claude(&world, "d");
    other.edit("src/a.rs").passes();
    other.edit("src/b.rs").passes();
    let board = world.json(&["board"]);
    assert_eq!(board["agents"].as_array().unwrap().len(), 1, "records of the dead are removed: {board}");
}

/// Interrupts fire no event, and daemons outlive their sessions: then time ends the claims.
#[test]
fn time_ends_the_claims_of_a_silent_agent() {
    let world = repository().write("lockkeeper.toml", "[agents]\nworking = \"200ms\"\n");
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    let other = Agent::claude(&world, "d");
    until("the claim has ended", || other.edit("src/a.rs").denied().is_none());
}

/// The hook's own process group and shell do not count: the harness does.
#[test]
fn without_a_variable_the_process_that_started_the_shell_counts() {
    let world = repository();
    let input = Agent::claude(&world, "c").edit_input("src/a.rs").to_string();
    let script = format!(
        "import subprocess\nsubprocess.run(['sh', '-c', '[ -x {0} ] || exit 0; exec {0} hook'], input={input:?}, text=True)\nprint('up', flush=True)\ninput()\n",
        world.program()
    );
    let mut harness = lockkeeper_testing::Started::of(
        world
            .command("python3")
            .args(["-c", &script])
            .env("CLAUDE_CODE_SESSION_ID", "c")
            .env("CLAUDE_PID", "1"),
    );
    assert_eq!(harness.line(), "up");
    let leases = world.json(&["locks"]);
    assert_eq!(leases["leases"][0]["pid"], json!(harness.pid()), "{leases}");
    harness.kill();
    Agent::claude(&world, "d").edit("src/a.rs").passes();
}

/// An agent that works in one repository and edits in another one: both are renewed and both end.
#[test]
fn a_session_ends_in_all_its_repositories() {
    let (world, other) = (repository(), repository());
    let claude = Agent::claude(&world, "c");
    claude.tool("Write", json!({ "file_path": other.path("src/a.rs"), "content": "" })).passes();
    assert_eq!(holders(&other, "src/a.rs"), ["claude:c"]);
    assert!(holders(&world, "src/a.rs").is_empty());
    claude.event("Stop");
    assert!(holders(&other, "src/a.rs").is_empty(), "it is as committed");
    claude.tool("Write", json!({ "file_path": other.path("src/b.rs"), "content": "" })).passes();
    claude.event("SessionEnd");
    assert!(holders(&other, "src/b.rs").is_empty());
}

/// A session that is resumed in a second terminal has two processes. The claims hold as long as the one that called last.
#[test]
fn a_session_in_two_processes_goes_on_when_the_first_one_ends() {
    for is_killed in [true, false] {
        let world = repository();
        let (mut first, second) = (Agent::claude(&world, "c"), Agent::claude(&world, "c"));
        first.edit("src/a.rs").passes();
        second.edit("src/b.rs").passes();
        if is_killed {
            first.kill();
        } else {
            first.event("SessionEnd");
        }
        for path in ["src/a.rs", "src/b.rs"] {
            Agent::claude(&world, "other").edit(path).is_denied();
            assert_eq!(holders(&world, path), ["claude:c"], "{path}, killed: {is_killed}");
        }
        second.event("SessionEnd");
        assert!(holders(&world, "src/a.rs").is_empty() && holders(&world, "src/b.rs").is_empty());
    }
}
