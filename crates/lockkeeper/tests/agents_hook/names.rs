//! `[agents.commands]`: a name is held while a command runs, and others are denied or wait for it.

use lockkeeper_testing::{Started, World, until};
use serde_json::{Value, json};

use crate::agents::{Agent, holders, log, repository};

const SETTINGS: &str =
    "[agents.commands]\n\"cargo *\" = \"build\"\n\"npm run dev\" = \"port/3000\"\n\"*migrate*\" = \"db\"\n";

/// A repository with names for commands, in which nobody waits for them in the hook.
fn named() -> World {
    repository().write("lockkeeper.toml", SETTINGS).set("LOCKKEEPER_AGENTS_PATIENCE", "0s")
}

#[test]
fn a_name_is_held_from_the_hook_before_the_tool_to_the_one_after_it() {
    let world = named();
    let (first, second) = (Agent::claude(&world, "1"), Agent::new(&world, "codex", "2"));
    first.runs("cargo test -p x").passes();
    assert_eq!(holders(&world, "build"), ["claude:1"]);
    let answer = second.runs("cd src && RUST_LOG=x timeout 60 cargo build");
    let reason = answer.is_denied();
    let command = format!("`{} wait --owner codex:2 --name build`", world.program());
    for part in
        ["The command was not run: it needs build, which claude:1 has held for", "number 1 in line", &command]
    {
        assert!(reason.contains(part), "no {part:?} in {reason}");
    }
    assert!(!reason.contains("Other ways"), "{reason}");
    second.runs("cat Cargo.toml").passes();
    second.runs("npm run dev").passes();
    assert_eq!(holders(&world, "port/3000"), ["codex:2"]);
    first.has_run("cargo test -p x").passes();
    assert_eq!(holders(&world, "build"), ["codex:2"], "it is reserved for the one in line");
    assert_eq!(log(&world), [""; 0]);
}

/// Decision 6: who was denied a name is told when it is free, keeps it until its command runs, and loses it afterwards.
#[test]
fn a_denied_agent_is_told_that_a_name_is_free() {
    let world = named();
    let (first, second, third) =
        (Agent::claude(&world, "1"), Agent::claude(&world, "2"), Agent::claude(&world, "3"));
    first.runs("./bin/migrate up").passes();
    second.runs("./bin/migrate down").is_denied();
    first.has_run("./bin/migrate up").passes();
    let told = second.runs("ls");
    assert!(told.told().unwrap().starts_with("db is free now, and reserved for you for 1m"), "{told:?}");
    assert_eq!(second.runs("ls").told(), None, "it is told once");
    third.runs("rake db:migrate").is_denied();
    second.runs("./bin/migrate down").passes();
    assert_eq!(holders(&world, "db"), ["claude:2"]);
    second.has_run("./bin/migrate down").passes();
    assert_eq!(holders(&world, "db"), ["claude:3"]);
}

#[test]
fn wait_gets_a_name_for_the_next_command() {
    let world = named();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.runs("npm run dev").passes();
    second.runs("npm run dev").is_denied();
    let mut waiter =
        Started::of(&mut world.lockkeeper(["wait", "--owner", "claude:2", "--name", "port/3000"]));
    waiter.until_stderr("waiting for port/3000");
    first.has_run("npm run dev").passes();
    waiter.wait().code(0).says("yours now: port/3000");
    second.runs("npm run dev").passes();
    assert_eq!(holders(&world, "port/3000"), ["claude:2"]);
    second.has_run("npm run dev").passes();
    assert!(holders(&world, "port/3000").is_empty(), "the end of the command releases what wait has got");
    second.run(&["wait", "--name", "port/*"]).code(2);
    second.run(&["wait"]).code(2);
}

/// The hook waits for names, since their commands may end soon. It is told to nobody.
#[test]
fn the_hook_waits_a_little_for_a_name() {
    let world = repository().write("lockkeeper.toml", SETTINGS).set("LOCKKEEPER_AGENTS_PATIENCE", "5s");
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.runs("cargo test").passes();
    let waiting = second.start(&second.tool_input("Bash", json!({ "command": "cargo build" })));
    until("it stands in line", || {
        world.json(&["board"])["agents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|agent| agent["waits_for"] == json!(["build"]))
    });
    first.has_run("cargo test").passes();
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    assert_eq!(holders(&world, "build"), ["claude:2"]);
    second.has_run("cargo build").passes();
    assert!(holders(&world, "build").is_empty());
}

/// Two calls of one agent at once: the name is free when the second one has ended.
#[test]
fn calls_of_one_agent_share_a_name() {
    let world = named();
    let first = Agent::claude(&world, "1");
    first.runs("cargo test").passes();
    first.runs("cargo build").passes();
    first.has_run("cargo test").passes();
    assert_eq!(holders(&world, "build"), ["claude:1"]);
    first.has_run("cargo build").passes();
    assert!(holders(&world, "build").is_empty());
}

#[test]
fn a_failed_or_denied_call_holds_nothing() {
    let world = named();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("src/a.rs").passes();
    second.runs("cargo build > src/a.rs").is_denied();
    assert!(holders(&world, "build").is_empty());
    second.runs("cargo build").passes();
    let mut failed = second.tool_input("Bash", json!({ "command": "cargo build" }));
    failed["hook_event_name"] = json!("PostToolUseFailure");
    second.send(&failed).passes();
    assert!(holders(&world, "build").is_empty());
}

#[test]
fn a_command_in_the_background_keeps_its_name_until_the_turn_ends() {
    let world = named();
    for (command, arguments) in [
        ("npm run dev", json!({ "command": "npm run dev", "run_in_background": true })),
        ("npm run dev &", json!({ "command": "npm run dev > log 2>&1 & sleep 1; curl localhost" })),
    ] {
        let first = Agent::claude(&world, "1");
        first.tool("Bash", arguments.clone()).passes();
        first.after("Bash", arguments, json!({ "tool_response": { "backgroundTaskId": "b1" } })).passes();
        assert_eq!(holders(&world, "port/3000"), ["claude:1"], "{command}");
        let running = json!([{ "id": "b1", "type": "shell", "status": "running" }]);
        first.event_with("Stop", "background_tasks", running).passes();
        assert_eq!(holders(&world, "port/3000"), ["claude:1"], "{command}: the harness says that it runs");
        let other = json!([{ "id": "b2", "type": "shell", "status": "running" }]);
        first.event_with("Stop", "background_tasks", other).passes();
        assert!(holders(&world, "port/3000").is_empty(), "{command}: it has ended");
        first.tool("Bash", json!({ "command": "npm run dev &" })).passes();
        first.has_run("npm run dev &").passes();
        assert_eq!(holders(&world, "port/3000"), ["claude:1"], "{command}");
        first.event("Stop").passes();
        assert!(holders(&world, "port/3000").is_empty(), "{command}: the turn has ended");
        first.event("SessionEnd");
    }
}

/// The end of a call may never be told.
#[test]
fn names_end_with_the_turn_the_session_the_sub_agent_and_the_process() {
    let world = named();
    for what in ["Stop", "UserPromptSubmit", "SessionEnd", "kill"] {
        let mut agent = Agent::claude(&world, "1");
        agent.runs("cargo test").passes();
        if what == "kill" {
            agent.kill();
        } else {
            agent.event(what).passes();
        }
        assert!(holders(&world, "build").is_empty(), "{what}");
        agent.event("SessionEnd");
    }
    let parent = Agent::claude(&world, "1");
    let child = parent.sub("a");
    child.runs("cargo test").passes();
    child.edit("src/a.rs").passes();
    child.event("SubagentStop").passes();
    assert!(holders(&world, "build").is_empty(), "a name does not go up");
    assert_eq!(holders(&world, "src/a.rs"), ["claude:1"]);
}

/// `lockkeeper exec` holds its name by itself: the hook must not be in its way.
#[test]
fn commands_under_lockkeeper_hold_their_names_themselves() {
    let world = named();
    let agent = Agent::claude(&world, "1");
    agent.runs("lockkeeper exec build -- cargo test").passes();
    assert!(holders(&world, "build").is_empty());
}

/// A port is one for all work trees.
#[test]
fn names_hold_in_all_work_trees() {
    let world = named();
    world.git_run(&["worktree", "add", "-q", "../other", "-b", "other"]);
    let other = world.cwd().parent().unwrap().join("other");
    std::fs::write(other.join("lockkeeper.toml"), SETTINGS).unwrap();
    let (first, mut second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    second.cwd = other;
    first.runs("npm run dev").passes();
    assert!(second.runs("npm run dev").denied().is_some());
}

#[test]
fn the_board_and_config_show_names() {
    let world = named();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.runs("npm run dev").passes();
    second.runs("npm run dev").is_denied();
    let board = world.json(&["board"]);
    let of = |owner: &str| -> Value {
        board["agents"].as_array().unwrap().iter().find(|agent| agent["owner"] == owner).unwrap().clone()
    };
    assert_eq!(of("claude:1")["claims"], json!(["port/3000"]));
    assert_eq!(
        (&of("claude:2")["waits_for"], &of("claude:2")["denied"]),
        (&json!(["port/3000"]), &json!({ "port/3000": 1 }))
    );
    world.run(["config"]).code(0).prints("agents.commands.\"cargo *\"").prints("port/3000");
    let all = world.json(&["config"]);
    let found = all["settings"].as_array().unwrap().iter().any(|setting| {
        setting["key"] == "agents.commands.\"npm run dev\"" && setting["value"] == "port/3000"
    });
    assert!(found, "{all}");
}

#[test]
fn agents_of_every_harness_hold_names_and_are_seen_afterwards() {
    let world = named();
    for harness in ["claude", "codex", "gemini", "copilot", "opencode", "qwen"] {
        let (agent, other) = (Agent::new(&world, harness, "s"), Agent::new(&world, harness, "o"));
        agent.runs("cargo test").passes();
        assert_eq!(holders(&world, "build"), [agent.owner()], "{harness}");
        assert!(other.runs("cargo build").is_denied().contains(&agent.owner()), "{harness}");
        let made = format!("src/made-by-{harness}.rs");
        std::fs::write(world.path(&made), "made\n").unwrap();
        other.event("SessionEnd").passes();
        agent.has_run("cargo test").passes();
        assert!(holders(&world, "build").is_empty(), "{harness}");
        assert_eq!(holders(&world, &made), [agent.owner()], "{harness}");
        agent.event("SessionEnd").passes();
    }
}
