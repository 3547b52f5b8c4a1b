//! What a command changed that could not be known before: free files become the agent's, files of others are incidents.

use std::fs;
use std::os::unix::fs::MetadataExt;

use lockkeeper_testing::World;
use serde_json::{Value, json};

use crate::agents::{Agent, holders, log, repository};

fn incidents(world: &World) -> Vec<String> {
    let text = fs::read_to_string(world.path(".git/lockkeeper/incidents.log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until files get another time than before: the kernel's clock for them ticks a few hundred times a second.
fn tick(world: &World) {
    let file = world.beside("tick");
    let touched_at = || {
        fs::write(&file, "").unwrap();
        let meta = fs::metadata(&file).unwrap();
        (meta.ctime(), meta.ctime_nsec())
    };
    let before = touched_at();
    while touched_at() == before {
        std::thread::yield_now();
    }
}

fn write(world: &World, path: &str, text: &str) {
    fs::write(world.path(path), text).unwrap();
}

#[test]
fn free_files_become_the_agents_own() {
    let world = repository();
    write(&world, ".gitignore", "out/\n");
    fs::create_dir(world.path("out")).unwrap();
    let agent = Agent::new(&world, "codex", "x");
    for (number, (command, tool)) in
        [("python3 gen.py", "Bash"), ("", "mcp__files__generate")].iter().enumerate()
    {
        let path = format!("src/made{number}.rs");
        let arguments = json!({ "command": command });
        agent.tool(tool, arguments.clone()).passes();
        assert!(holders(&world, &path).is_empty());
        write(&world, &path, "made\n");
        write(&world, "out/ignored", "made\n");
        agent.after(tool, arguments, Value::Null).passes();
        assert_eq!(holders(&world, &path), ["codex:x"], "{tool}");
        assert!(holders(&world, "out/ignored").is_empty());
    }
    assert!(holders(&world, "src/b.rs").is_empty());
    Agent::claude(&world, "c").edit("src/made0.rs").is_denied();
    assert_eq!((log(&world), incidents(&world)), (vec![], vec![]));
}

/// What was dirty before the command, and what a reading command happens to run beside, is nobody's.
#[test]
fn only_what_changed_while_the_command_ran_counts() {
    let world = repository();
    write(&world, "src/old.rs", "a person's\n");
    fs::remove_file(world.path("src/b.rs")).unwrap();
    tick(&world);
    let agent = Agent::claude(&world, "c");
    agent.runs("make").passes();
    agent.has_run("make").passes();
    agent.runs("cat src/a.rs").passes();
    write(&world, "src/other.rs", "a person's\n");
    agent.has_run("cat src/a.rs").passes();
    for path in ["src/old.rs", "src/b.rs", "src/other.rs"] {
        assert!(holders(&world, path).is_empty(), "{path}");
    }
}

#[test]
fn a_changed_file_of_another_is_an_incident_that_both_are_told() {
    let world = repository();
    let (holder, other) = (Agent::claude(&world, "h"), Agent::claude(&world, "o"));
    holder.edit("src/a.rs").passes();
    write(&world, "src/a.rs", "work of the holder\n");
    holder
        .after(
            "Edit",
            json!({ "file_path": world.path("src/a.rs"), "old_string": "a", "new_string": "b" }),
            Value::Null,
        )
        .passes();
    tick(&world);
    other.runs("python3 fix.py").passes();
    write(&world, "src/a.rs", "overwritten\n");
    let told = other.has_run("python3 fix.py");
    assert!(told.told().unwrap().contains("src/a.rs was changed while your command ran"), "{told:?}");
    let told = holder.runs("ls");
    let text = told.told().unwrap();
    assert!(
        text.contains("src/a.rs, which you have claimed, was changed while a command of claude:o ran"),
        "{text}"
    );
    assert_eq!(holders(&world, "src/a.rs"), ["claude:h"]);
    assert!(
        incidents(&world)[0].contains("claude:o src/a.rs, which claude:h has claimed"),
        "{:?}",
        incidents(&world)
    );
    let board = world.json(&["board"]);
    assert_eq!(board["incidents"].as_array().unwrap().len(), 1);
    world.run(["board"]).code(0).says("were changed; the last time");
    assert_eq!(log(&world), [""; 0]);
}

/// Uncommitted work that is reverted or removed leaves no trace in `git status`.
#[test]
fn lost_work_is_an_incident_as_well() {
    let world = repository();
    let (holder, other) = (Agent::new(&world, "codex", "h"), Agent::new(&world, "codex", "o"));
    for path in ["src/a.rs", "src/new.rs"] {
        let arguments = json!({ "command": crate::agents::patch(&[path]) });
        holder.tool("apply_patch", arguments.clone()).passes();
        write(&world, path, "work\n");
        holder.after("apply_patch", arguments, Value::Null).passes();
    }
    tick(&world);
    other.runs("./reset.sh").passes();
    write(&world, "src/a.rs", "a\n");
    fs::remove_file(world.path("src/new.rs")).unwrap();
    other.has_run("./reset.sh").passes();
    let lines = incidents(&world);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("src/a.rs, which codex:h has claimed, was changed"), "{lines:?}");
    assert!(lines[1].contains("src/new.rs, which codex:h has claimed, was removed"), "{lines:?}");
}

/// The holder edits its own file while another's long command runs: nobody is accused.
#[test]
fn what_the_holder_may_have_written_itself_is_no_incident() {
    let world = repository();
    let (holder, other) = (Agent::claude(&world, "h"), Agent::claude(&world, "o"));
    other.runs("make").passes();
    holder.edit("src/a.rs").passes();
    write(&world, "src/a.rs", "work\n");
    let arguments = json!({ "file_path": world.path("src/a.rs"), "old_string": "a", "new_string": "b" });
    holder.after("Edit", arguments, Value::Null).passes();
    holder.edit("src/b.rs").passes();
    write(&world, "src/b.rs", "work that goes on\n");
    assert_eq!(other.has_run("make").told(), None);
    assert_eq!(incidents(&world), [""; 0]);
}

/// Two unknown commands at once: nobody can tell which of them made a file.
#[test]
fn a_new_file_of_two_commands_at_once_stays_free() {
    let world = repository();
    let (one, two) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    one.runs("make a").passes();
    two.runs("make b").passes();
    write(&world, "src/new.rs", "made\n");
    one.has_run("make a").passes();
    assert!(holders(&world, "src/new.rs").is_empty());
    two.has_run("make b").passes();
    assert_eq!(holders(&world, "src/new.rs"), ["claude:2"], "the last one has it");
}

/// Claude Code tells what changed: git is not asked.
#[test]
fn what_the_harness_tells_is_believed() {
    let world = repository();
    let agent = Agent::claude(&world, "c");
    let arguments = json!({ "command": "make" });
    agent.tool("Bash", arguments.clone()).passes();
    write(&world, "src/told.rs", "made\n");
    write(&world, "src/untold.rs", "made\n");
    let told = json!({ "tool_response": { "bashEditDiff": { "changedFiles": [world.path("src/told.rs")], "moreFiles": 0 } } });
    agent.after("Bash", arguments, told).passes();
    assert_eq!(holders(&world, "src/told.rs"), ["claude:c"]);
    assert!(holders(&world, "src/untold.rs").is_empty());
}

/// Also of a command whose writes seemed to be known, or that seemed to read only.
#[test]
fn what_the_harness_tells_counts_after_commands_that_were_taken_for_known() {
    let world = repository();
    let (agent, other) = (Agent::claude(&world, "c"), Agent::claude(&world, "o"));
    other.edit("src/b.rs").passes();
    let edit = json!({ "file_path": world.path("src/b.rs"), "old_string": "b", "new_string": "c" });
    other.after("Edit", edit, Value::Null).passes();
    tick(&world);
    for (command, path) in [("echo x > src/a.rs", "src/one.rs"), ("cat src/a.rs", "src/two.rs")] {
        let arguments = json!({ "command": command });
        agent.tool("Bash", arguments.clone()).passes();
        write(&world, path, "made\n");
        let changed = json!([world.path("src/a.rs"), world.path(path), world.path("src/b.rs")]);
        let told =
            json!({ "tool_response": { "bashEditDiff": { "changedFiles": changed, "moreFiles": 0 } } });
        agent.after("Bash", arguments, told).passes();
        assert_eq!(holders(&world, path), ["claude:c"], "{command}");
        assert!(incidents(&world)[0].contains("src/b.rs, which claude:o has claimed"), "{command}");
    }
}

/// The end of a call may never be told: the next call looks.
#[test]
fn the_next_call_looks_if_the_end_was_never_told() {
    let world = repository();
    let agent = Agent::new(&world, "codex", "x");
    for (number, next) in ["ls", "Stop"].iter().enumerate() {
        let path = format!("src/made{number}.rs");
        agent.runs("./gen.sh").passes();
        write(&world, &path, "made\n");
        match *next {
            "Stop" => drop(agent.event("Stop")),
            command => agent.runs(command).passes(),
        }
        assert_eq!(holders(&world, &path), ["codex:x"], "{next}");
    }
}

/// Very many new files are nobody's edit.
#[test]
fn hundreds_of_new_files_are_not_claimed() {
    let world = repository();
    let agent = Agent::claude(&world, "c");
    agent.runs("./gen.sh").passes();
    for number in 0..301 {
        write(&world, &format!("src/made{number}"), "made\n");
    }
    agent.has_run("./gen.sh").passes();
    assert_eq!(world.json(&["locks"])["leases"], json!([]));
}
