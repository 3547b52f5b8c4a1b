//! README.md: its commands work as they are written, in a repository that has the scripts they name.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lockkeeper_testing::World;

use crate::docs;
use crate::examples::{blocks, run, steps};
use crate::guide::{home_with_agents, without_expected};

/// The first two build from a checkout. The demo takes 20 seconds, and has a test of its own.
const NOT_HERE: [&str; 4] = ["cargo ", "scripts/test", "scripts/deb", "lockkeeper demo"];

/// A repository with the scripts that the README names, in the home of somebody who has two agents.
fn site() -> World {
    let world = home_with_agents()
        .write("Makefile", "test:\n\ttrue\n")
        .write("src/parser.rs", "1\n")
        .write("src/lex.rs", "2\n")
        .write("src/api/user.rs", "3\n");
    for name in ["migrate.sh", "rename-user.sh", "import.sh", "deploy.sh"] {
        fs::write(world.path(name), "#!/bin/sh\n").unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    world
}

/// Two agents: one edits two files, the other one wants one of them, twice. Their processes are the shell's.
const AGENTS: &str = r#"
sleep 1000 & claude=$!
sleep 1000 & codex=$!
trap 'kill $claude $codex' EXIT
edit() {
    printf '{"session_id":"9f2c","hook_event_name":"PreToolUse","tool_name":"Edit","tool_input":{"file_path":"%s"},"cwd":"%s","transcript_path":"/home/u/.claude/projects/x/9f2c.jsonl"}' "$PWD/$1" "$PWD" |
        LOCKKEEPER_PID=$claude CLAUDE_CODE_SESSION_ID=9f2c lockkeeper hook >/dev/null
}
patch() {
    printf '{"session_id":"01a1","hook_event_name":"PreToolUse","turn_id":"1","tool_name":"apply_patch","tool_input":{"command":"*** Begin Patch\\n*** Update File: %s\\n@@\\n-1\\n+2\\n*** End Patch\\n"},"cwd":"%s","transcript_path":"/home/u/.codex/sessions/x.jsonl"}' "$1" "$PWD" |
        LOCKKEEPER_PID=$codex lockkeeper hook >/dev/null
}
edit src/parser.rs; edit src/lex.rs
lockkeeper note --owner claude:9f2c 'split the parser' 2>/dev/null
patch src/parser.rs; patch src/parser.rs
"#;

#[test]
fn the_commands_of_the_readme_work_as_written() {
    let text = fs::read_to_string(docs().join("../README.md")).unwrap();
    let steps: Vec<_> = blocks(&text).iter().flat_map(|block| steps(block)).collect();
    assert!(steps.len() > 10, "{steps:?}");
    let world = site();
    for (command, expected) in steps {
        if NOT_HERE.iter().any(|start| command.starts_with(start)) {
            continue;
        }
        if command.starts_with("lockkeeper board") {
            let story = run(&world, &format!("{AGENTS}\n{command}"));
            without_expected(&command, &story, &expected);
            continue;
        }
        let done = world.shell(&command).code(0);
        let story: Vec<String> = done.stdout().lines().map(str::to_owned).collect();
        without_expected(&command, &story, &expected);
    }
}

#[test]
fn the_script_of_the_readme_works_as_written() {
    let text = fs::read_to_string(docs().join("../README.md")).unwrap();
    let (_, script) = text.split_once("```sh\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    assert!(script.starts_with("#!/bin/sh\n"), "{script}");
    let world = site().write("nightly.sh", script);
    world.shell("sh nightly.sh").code(0);
    world.shell("lockkeeper exec db --no-wait -- true").code(0);
}
