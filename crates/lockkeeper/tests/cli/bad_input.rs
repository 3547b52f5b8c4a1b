//! Bad input: exit code 2, one sentence, a hint, and no change to any file.

use lockkeeper_testing::{World, world};

/// Asserts that a command is refused as text and as JSON, and that no file changes.
fn refused(world: &World, args: &[&str], sentence: &str) {
    let before = world.tree();
    let done = world.run(args).code(2);
    let text = done.stderr();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("error: ") && lines[0].contains(sentence), "{args:?}: {text}");
    assert!(lines.last().unwrap().starts_with("hint: "), "{args:?}: {text}");
    assert!(lines[1..lines.len() - 1].iter().all(|line| line.starts_with("  ")), "{args:?}: {text}");
    assert_eq!(done.stdout(), "", "{args:?}");
    let json = match args.iter().position(|arg| *arg == "--") {
        Some(place) => [&args[..place], &["--json"], &args[place..]].concat(),
        None => [args, &["--json"]].concat(),
    };
    let report = world.run(&json).code(2).json();
    let (message, hint) = (report["error"]["message"].as_str().unwrap(), report["error"]["hint"].as_str());
    assert!(message.contains(sentence) && !message.contains('\n'), "{args:?}: {report}");
    assert!(hint.is_some_and(|hint| !hint.is_empty()), "{args:?}: {report}");
    assert_eq!(world.tree(), before, "{args:?}");
}

/// Runs a check in an empty repository, and in one with a store and a lease.
fn everywhere(check: impl Fn(&World)) {
    let world = world!().git();
    check(&world);
    world.acquire(&["held"]);
    check(&world);
}

/// Requirement 204.
#[test]
fn names() {
    let long = "x".repeat(256);
    everywhere(|world| {
        for (name, sentence) in [
            ("", "empty"),
            ("/", "part"),
            ("a//b", "part"),
            ("../a", "part"),
            ("a/./b", "part"),
            ("a\nb", "contains"),
            (" a", "contains"),
            ("src/**", "looks like a pattern"),
            (&long, "256 bytes"),
        ] {
            refused(world, &["acquire", name], sentence);
            refused(world, &["exec", name, "--", "touch", "ran"], sentence);
            refused(world, &["fence", name, "1"], sentence);
        }
    });
}

#[test]
fn patterns() {
    everywhere(|world| {
        for pattern in ["", "a/../b", "[", "a{b", "../x", "/etc/x", "a\\"] {
            refused(world, &["acquire", "--path", pattern], "");
            refused(world, &["exec", "--path", pattern, "--", "touch", "ran"], "");
        }
    });
}

#[test]
fn spans() {
    everywhere(|world| {
        for (text, sentence) in [
            ("0", "out of range"),
            ("0ms", "out of range"),
            ("-1", "not a duration"),
            ("NaN", "not a duration"),
            ("inf", "not a duration"),
            ("1e9", "not a duration"),
            ("", "not a duration"),
            ("5 m", "not a duration"),
            ("99999999999999999999", "too long"),
            ("9999999d", "out of range"),
            ("18446744073709551615d", "too long"),
        ] {
            let ttl = format!("--ttl={text}");
            refused(world, &["acquire", "db", &ttl], sentence);
            refused(world, &["exec", "db", &ttl, "--", "touch", "ran"], sentence);
            refused(world, &["renew", "L1", &ttl], sentence);
        }
        refused(world, &["acquire", "db", "--wait=-1"], "not a duration");
        refused(world, &["exec", "db", "--wait=soon", "--", "touch", "ran"], "not a duration");
        refused(world, &["exec", "db", "--wait=", "--", "touch", "ran"], "not a duration");
        refused(world, &["acquire", "db", "--wait="], "not a duration");
        refused(world, &["upgrade", "L1", "--wait="], "not a duration");
    });
}

#[test]
fn processes() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let dead = child.id().to_string();
    child.wait().unwrap();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let other_thread = std::thread::spawn(move || told.recv());
    let own = std::process::id().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let mut threads = tasks.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let thread = threads.find(|number| *number != own).unwrap();
    everywhere(|world| {
        for pid in ["0", "-1", "-5", "4194305", "4294967296", "x", "", "1.5", &dead, &thread] {
            refused(world, &["acquire", "db", "--pid", pid], "");
        }
    });
    for pid in ["0", "-1", "x", &dead, &thread] {
        refused(&world!().set("LOCKKEEPER_PID", pid), &["acquire", "db"], "LOCKKEEPER_PID");
    }
    drop(tell);
    assert!(other_thread.join().unwrap().is_err());
}

#[test]
fn owners_priorities_ids_and_tokens() {
    everywhere(|world| {
        for owner in ["", "me", "Me:x", ":x", "worker:", "worker:a\u{7}"] {
            refused(world, &["acquire", "db", "--owner", owner], "owner");
        }
        for priority in ["101", "-101", "high", "", "1.5"] {
            refused(world, &["acquire", "db", "--priority", priority], "priority");
        }
        for command in [&["release", "--"][..], &["locks", "break", "--yes", "--"]] {
            refused(world, &[command, &[""]].concat(), "is not the id of a lease");
            // They could be names, so the store is read.
            for id in ["L", "L0", "L-1", "X1", "L99999999999999999999", "unheld"] {
                world.run([command, &[id]].concat()).code(2).says("is not the id of a lease").says("hint: ");
            }
        }
        for token in ["", "0", "x", "99999999999999999999", "1.5"] {
            refused(world, &["fence", "db", token], "is not a token");
            refused(world, &["release", "L1", "--token", token], "is not a token");
        }
        refused(world, &["acquire", "db", "--reason", &"x".repeat(1001)], "reason");
        refused(world, &["acquire", "db", "--slots", "0"], "0");
        refused(world, &["acquire", "--path", "a", "--slots", "2"], "slots are for names");
        refused(world, &["acquire", "db", "--contract", "kill"], "needs a TTL");
        refused(world, &["acquire"], "nothing to lock");
    });
}

#[test]
fn flags_and_commands() {
    everywhere(|world| {
        refused(world, &["aquire", "db"], "aquire");
        refused(world, &["acquire", "db", "--tll", "5m"], "--tll");
        refused(world, &["locks", "brake", "L1"], "brake");
        refused(world, &["release"], "<LEASE>");
        refused(world, &["acquire", "db", "--color", "pink"], "pink");
        refused(world, &["acquire", "db", "--store", "mysql://x"], "mysql");
        refused(world, &["exec", "db", "touch", "ran"], "CMD");
        refused(world, &["exec", "db", "--no-wait", "--wait", "--", "touch", "ran"], "--no-wait");
        refused(world, &["conflicts", "check", "a"], "nothing to be compared");
    });
}

#[test]
fn a_slip_is_answered_with_what_was_meant() {
    let world = world!();
    world.run(["aquire", "db"]).code(2).says("acquire");
    world.run(["acquire", "db", "--tll", "5m"]).code(2).says("--ttl");
    world
        .run(["exec", "db", "make", "test"])
        .code(2)
        .says("hint: put `--` before the command: lockkeeper exec db -- make test");
    world.run(["acquire", "db", "--color", "pink"]).code(2).says("auto, always, never");
    world.run(["release"]).code(2).says("lockkeeper release --help");
}

#[test]
fn settings() {
    for text in ["ttl = 0\n", "tl = 1\n", "ttl = [1]\n", "ttl = \n", "owner = \"me\"\n", "lang = \"fr\"\n"] {
        let world = world!().git().write("lockkeeper.toml", text);
        refused(&world, &["acquire", "db"], "lockkeeper.toml");
        refused(&world, &["locks"], "lockkeeper.toml");
    }
    refused(&world!().set("LOCKKEEPER_TTL", "0"), &["acquire", "db"], "LOCKKEEPER_TTL");
}

/// Requirement 204.
#[test]
fn requests_and_runs() {
    let world = world!().git().write("bad.json", r#"[{"command":[]}]"#).write("tasks.json", "{}");
    for id in ["", "..", "a/b", "a\nb", "-x"] {
        refused(&world, &["submit", &format!("--id={id}"), "--", "true"], "a request id");
        refused(&world, &["submit", &format!("--after={id}"), "--", "true"], "a request id");
    }
    for args in [
        &["submit", "--lock", "a//b", "--", "true"][..],
        &["submit", "--path", "[", "--", "true"],
        &["submit", "--path", "../x", "--", "true"],
        &["submit", "--timeout", "soon", "--", "true"],
        &["submit", "--queue-timeout=-1", "--", "true"],
        &["submit", "--backoff", "1e9", "--", "true"],
        &["submit", "--retries", "1001", "--", "true"],
        &["submit", "--retries", "x", "--", "true"],
        &["submit", "--retry-on", "256", "--", "true"],
        &["submit", "--retry-on", "9-1", "--", "true"],
        &["submit", "--success", "", "--", "true"],
        &["submit", "--priority", "101", "--", "true"],
        &["submit", "--env", "=x", "--", "true"],
        &["submit", "--cwd", "nowhere", "--", "true"],
        &["submit", "--", ""],
        &["submit"],
        &["submit", "make", "test"],
        &["submit", "--from", "nowhere.json"],
        &["submit", "--from", "bad.json"],
        &["submit", "--from", "bad.json", "--", "true"],
        &["submit", "--from-swarm", "tasks.json", "--agent-command", "x {prompt}"],
        &["submit", "--from-swarm", "tasks.json", "--agent-command", "x 'y"],
        &["requests", "--status", "odd"],
        &["requests", "show", "nothing"],
        &["runs", "--status", "QUEUED"],
        &["runs", "stats", "--since", "x"],
        &["runs", "prune"],
        &["runs", "prune", "--older-than", "x"],
        &["run", "show", "nothing"],
        &["run", "logs", "nothing"],
        &["run", "wait", "nothing"],
        &["run", "claim", "nothing", "--worker", "a/b"],
        &["run", "mark", "nothing", "paused"],
    ] {
        refused(&world, args, "");
    }
    let hint = "hint: put `--` before the command: lockkeeper submit -- CMD";
    world.run(["submit", "make", "test"]).code(2).says(hint);
}

#[test]
fn names_that_are_meant_as_something_else_are_refused_or_warned_of() {
    let world = world!().write("src/main.rs", "");
    world.run(["acquire", "db,log", "--ttl", "1m"]).code(2).says("comma").says("db log");
    world.run(["exec", "db,log", "--", "true"]).code(2).says("comma");
    world.run(["submit", "--lock", "db,log", "--", "true"]).code(2).says("comma");
    for path in ["!src/**", "!x"] {
        world.run(["acquire", "--path", path, "--ttl", "1m"]).code(2).says("cannot exclude").says("hint: ");
        world.run(["exec", "--path", path, "--", "true"]).code(2).says("cannot exclude");
    }
    assert!(!world.path(".lockkeeper").exists());
    world.run(["acquire", "--path", "\\!x", "--ttl", "1m"]).code(0);
    world
        .run(["acquire", "src/main.rs", "--ttl", "1m"])
        .code(0)
        .says("warning: ")
        .says("--path 'src/main.rs'");
    world.run(["exec", "src", "--", "true"]).code(0).says("--path 'src'");
    world.run(["exec", "src", "--quiet", "--", "true"]).code(0).silent();
    world.run(["exec", "source", "--", "true"]).code(0).silent();
}
