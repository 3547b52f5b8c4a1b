//! Broken means open, and is seen: exit 0, nothing on stdout, one line in the log.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use lockkeeper_testing::{Finished, World, is_root, skip};
use serde_json::json;

use crate::agents::{Agent, log, repository};

/// Sends bytes to the hook. It exits with 0 and prints nothing.
#[track_caller]
fn send(mut command: Command, bytes: &[u8]) {
    let mut hook =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = hook.stdin.take().unwrap().write_all(bytes);
    let output = hook.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(output.stdout.is_empty(), "{shown}: {}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn junk_passes_and_is_logged() {
    let world = repository();
    let whole = Agent::claude(&world, "c").edit_input("src/a.rs").to_string();
    let deep = "[".repeat(200_000);
    let huge = format!("{{\"session_id\":\"{}\"}}", "x".repeat(33 << 20));
    let inputs: [&[u8]; 10] = [
        b"",
        b"junk",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b"{\"hook_event_name\":7}",
        b"{\"session_id\":[],\"hook_event_name\":\"PreToolUse\",\"turn_id\":\"t\"}",
        deep.as_bytes(),
        huge.as_bytes(),
        &whole.as_bytes()[..whole.len() / 2],
    ];
    for (count, input) in inputs.iter().enumerate() {
        send(world.lockkeeper(["hook"]), input);
        assert_eq!(log(&world).len(), count + 1, "{:?}", log(&world));
    }
    send(world.lockkeeper(["hook", "--what", "ever", "PreToolUse"]), b"junk");
}

/// Windsurf and others call with a closed stdin or none at all.
#[test]
fn without_standard_input_it_passes() {
    let world = repository();
    let closed = format!("'{}' hook <&-", world.program());
    lockkeeper_testing::Finished::of(world.command("sh").args(["-c", &closed])).code(0).silent();
    world.run(["hook"]).code(0).silent();
}

fn breaks(name: &str, damage: impl Fn(&World)) {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    damage(&world);
    let other = Agent::claude(&world, "d");
    assert_eq!(other.edit("src/a.rs").denied(), None, "{name}");
    assert_eq!(log(&world).len(), 1, "{name}: {:?}", log(&world));
    assert!(log(&world)[0].contains("claude:d"), "{name}: {:?}", log(&world));
}

/// Broken means open, and is seen.
#[test]
fn the_board_shows_calls_that_failed_open() {
    let world = repository();
    send(world.lockkeeper(["hook"]), b"junk");
    world.run(["board"]).code(0).says("not JSON");
    assert_eq!(world.json(&["board"])["failed_open"].as_array().unwrap().len(), 1);
}

#[test]
fn a_damaged_or_foreign_store_lets_edits_pass() {
    let state = |world: &World, name: &str| world.path(&format!(".git/lockkeeper/{name}"));
    breaks("damaged", |world| {
        for name in ["leases.db-wal", "leases.db-shm"] {
            let _ = std::fs::remove_file(state(world, name));
        }
        std::fs::write(state(world, "leases.db"), "this is no database, only text that is long enough")
            .unwrap();
    });
    breaks("a folder", |world| {
        std::fs::remove_file(state(world, "gate")).unwrap();
        std::fs::create_dir(state(world, "gate")).unwrap();
    });
    breaks("newer", |world| {
        let connection = rusqlite::Connection::open(state(world, "leases.db")).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
    });
}

#[test]
fn a_read_only_state_folder_lets_edits_pass() {
    if is_root() {
        return skip("a user other than root");
    }
    let world = repository();
    let folder = world.path(".git/lockkeeper");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o500)).unwrap();
    Agent::claude(&world, "c").edit("src/a.rs").passes();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
}

/// A store that does not answer: the hook gives up within its limit.
#[test]
fn a_gate_that_does_not_open_lets_edits_pass() {
    let world = repository().set("LOCKKEEPER_AGENTS_LIMIT", "300ms");
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    let gate = world.path(".git/lockkeeper/gate");
    let mut holder = lockkeeper_testing::Started::of(world.command("flock").arg(&gate).args([
        "sh",
        "-c",
        "echo up; read -r line",
    ]));
    assert_eq!(holder.line(), "up");
    Agent::claude(&world, "d").edit("src/a.rs").passes();
    assert!(log(&world)[0].contains("limit"), "{:?}", log(&world));
    let _ = holder.finish();
    Agent::claude(&world, "d").edit("src/a.rs").is_denied();
}

/// A harness that keeps stdin open.
#[test]
fn an_input_that_never_ends_lets_the_edit_pass() {
    let world = repository().set("LOCKKEEPER_AGENTS_LIMIT", "300ms");
    let mut hook = lockkeeper_testing::Started::of(&mut world.lockkeeper(["hook"]));
    hook.send("{\"session_id\":");
    assert_eq!(hook.end().code(), Some(0));
    assert!(log(&world)[0].contains("limit"), "{:?}", log(&world));
}

/// Bad settings do not switch the claims off.
#[test]
fn with_bad_settings_the_defaults_hold() {
    let world = repository().write("lockkeeper.toml", "[agents]\nworking = \"soon\"\n");
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    Agent::claude(&world, "d").edit("src/a.rs").is_denied();
}

/// Otherwise nobody would see that names for commands hold no more.
#[test]
fn settings_that_cannot_be_read_are_said_everywhere() {
    let world = repository().write("lockkeeper.toml", "[agents.commands]\n\"make\" = \n");
    let claude = Agent::claude(&world, "c");
    for _ in 0..3 {
        claude.runs("make").passes();
        claude.has_run("make").passes();
    }
    let lines = log(&world);
    assert_eq!(lines.len(), 1, "once, not for each call: {lines:?}");
    assert!(
        lines[0].contains("names for commands are off") && lines[0].contains("lockkeeper.toml"),
        "{lines:?}"
    );
    world.run(["board"]).code(2).says("lockkeeper.toml");
    world.run(["doctor"]).code(2).says("lockkeeper.toml");
}

/// A record of an agent that cannot be read protects nothing, so it is written again.
#[test]
fn a_torn_record_of_an_agent_is_written_again() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    std::fs::write(world.path(".git/lockkeeper/agents/claude:c.json"), "{\"owner\":").unwrap();
    claude.edit("src/a.rs").passes();
    assert_eq!(world.json(&["board"])["agents"][0]["owner"], json!("claude:c"));
    assert_eq!(log(&world).len(), 1, "{:?}", log(&world));
}

/// The log has a bounded size.
#[test]
fn the_log_does_not_grow_for_ever() {
    let world = repository();
    let path = world.path(".git/lockkeeper/hooks.log");
    std::fs::write(&path, "x".repeat(70_000)).unwrap();
    send(world.lockkeeper(["hook"]), b"junk");
    assert!(std::fs::metadata(&path).unwrap().len() < 1_000);
    assert!(world.path(".git/lockkeeper/hooks.log.1").exists());
}

/// A store that is gone takes the claims of live agents with it. Nobody is denied for that, and everybody can see it.
#[test]
fn a_store_that_vanished_under_agents_is_said_everywhere() {
    let damages: [fn(&World); 2] = [
        |world| {
            for name in ["leases.db", "leases.db-wal", "leases.db-shm"] {
                let _ = std::fs::remove_file(world.path(&format!(".git/lockkeeper/{name}")));
            }
        },
        |world| {
            for name in ["leases.db-wal", "leases.db-shm"] {
                let _ = std::fs::remove_file(world.path(&format!(".git/lockkeeper/{name}")));
            }
            std::fs::write(world.path(".git/lockkeeper/leases.db"), "").unwrap();
        },
    ];
    for damage in damages {
        let world = repository();
        Agent::claude(&world, "new").edit("src/a.rs").passes();
        assert_eq!(log(&world), [""; 0], "a new store is no lost one");
        let first = Agent::claude(&world, "c");
        first.edit("src/b.rs").passes();
        damage(&world);
        world.run(["board"]).code(0).says("the lease store is gone");
        let second = Agent::claude(&world, "d");
        second.edit("src/b.rs").passes();
        let lines = log(&world);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("claude:d") && lines[0].contains("the lease store is gone"), "{lines:?}");
        world.run(["board"]).code(0).says("the lease store is gone");
        let doctor = world.run(["doctor"]).stdout();
        assert!(doctor.contains("hook-log") && doctor.contains("the lease store is gone"), "{doctor}");
        first.edit("src/b.rs").is_denied();
        assert_eq!(log(&world).len(), 1);
    }
}

/// Somebody may have put anything where the log is.
#[test]
fn a_log_that_is_a_fifo_holds_nobody_up() {
    let world = repository();
    for name in ["hooks.log", "incidents.log"] {
        Finished::of(world.command("mkfifo").arg(world.path(&format!(".git/lockkeeper/{name}")))).code(0);
    }
    send(world.lockkeeper(["hook"]), b"{");
    // Somebody reads it, who would get the line instead of the log.
    let fifo = world.path(".git/lockkeeper/hooks.log");
    let reader = reader_of(&fifo);
    send(world.lockkeeper(["hook"]), b"{");
    drop(reader);
    world.run(["board"]).code(0);
}

/// Opens a FIFO to read without waiting for a writer.
fn reader_of(fifo: &std::path::Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::File::options().read(true).custom_flags(lockkeeper_platform::fs::NO_WAIT).open(fifo).unwrap()
}

/// Its agent is not on the board then, although others are denied by it.
#[test]
fn a_damaged_record_of_an_agent_is_logged_by_those_who_read_it() {
    let world = repository();
    Agent::claude(&world, "c").edit("src/a.rs").passes();
    let holder = Agent::claude(&world, "h");
    holder.edit("src/b.rs").passes();
    let record = world.path(".git/lockkeeper/agents/claude:h.json");
    std::fs::write(&record, "junk").unwrap();
    Agent::claude(&world, "d").edit("src/b.rs").is_denied();
    let lines = log(&world);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("claude:h.json") && lines[0].contains("damaged"), "{lines:?}");
    world.run(["board"]).code(0).says("claude:h.json");
    holder.edit("src/b.rs").passes();
    assert!(world.run(["board"]).code(0).stdout().contains("claude:h"));
    assert_eq!(log(&world).len(), 1, "once, not for each call");
}
