//! Bad input: exit 2, one sentence, a hint, and nothing made or changed.

use crate::env::Env;

/// Refused as text and as JSON, with nothing touched.
fn refused(env: &Env, args: &[&str], sentence: &str) {
    let before = env.tree();
    let done = env.run(args).code(2);
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
    let report = env.run(&json).code(2).json();
    let (message, hint) = (report["error"]["message"].as_str().unwrap(), report["error"]["hint"].as_str());
    assert!(message.contains(sentence) && !message.contains('\n'), "{args:?}: {report}");
    assert!(hint.is_some_and(|hint| !hint.is_empty()), "{args:?}: {report}");
    assert_eq!(env.tree(), before, "{args:?}");
}

/// In an empty repository, and in one with a store and a lease.
fn everywhere(check: impl Fn(&Env)) {
    let env = Env::new().git();
    check(&env);
    env.acquire(&["held"]);
    check(&env);
}

/// Requirement 204.
#[test]
fn names() {
    let long = "x".repeat(256);
    everywhere(|env| {
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
            refused(env, &["acquire", name], sentence);
            refused(env, &["exec", name, "--", "touch", "ran"], sentence);
            refused(env, &["fence", name, "1"], sentence);
        }
    });
}

#[test]
fn patterns() {
    everywhere(|env| {
        for pattern in ["", "a/../b", "[", "a{b", "../x", "/etc/x", "a\\"] {
            refused(env, &["acquire", "--path", pattern], "");
            refused(env, &["exec", "--path", pattern, "--", "touch", "ran"], "");
        }
    });
}

#[test]
fn spans() {
    everywhere(|env| {
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
            refused(env, &["acquire", "db", &ttl], sentence);
            refused(env, &["exec", "db", &ttl, "--", "touch", "ran"], sentence);
            refused(env, &["renew", "L1", &ttl], sentence);
        }
        refused(env, &["acquire", "db", "--wait=-1"], "not a duration");
        refused(env, &["exec", "db", "--wait=soon", "--", "touch", "ran"], "not a duration");
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
    everywhere(|env| {
        for pid in ["0", "-1", "-5", "4194305", "4294967296", "x", "", "1.5", &dead, &thread] {
            refused(env, &["acquire", "db", "--pid", pid], "");
        }
    });
    for pid in ["0", "-1", "x", &dead, &thread] {
        refused(&Env::new().set("LOCKKEEPER_PID", pid), &["acquire", "db"], "LOCKKEEPER_PID");
    }
    drop(tell);
    assert!(other_thread.join().unwrap().is_err());
}

#[test]
fn owners_priorities_ids_and_tokens() {
    everywhere(|env| {
        for owner in ["", "me", "Me:x", ":x", "worker:", "worker:a\u{7}"] {
            refused(env, &["acquire", "db", "--owner", owner], "owner");
        }
        for priority in ["101", "-101", "high", "", "1.5"] {
            refused(env, &["acquire", "db", "--priority", priority], "priority");
        }
        for id in ["", "L", "L0", "L-1", "X1", "L99999999999999999999", "db"] {
            refused(env, &["release", "--", id], "is not the id of a lease");
            refused(env, &["locks", "break", "--yes", "--", id], "is not the id of a lease");
        }
        for token in ["", "0", "x", "99999999999999999999", "1.5"] {
            refused(env, &["fence", "db", token], "is not a token");
            refused(env, &["release", "L1", "--token", token], "is not a token");
        }
        refused(env, &["acquire", "db", "--reason", &"x".repeat(1001)], "reason");
        refused(env, &["acquire", "db", "--slots", "0"], "0");
        refused(env, &["acquire", "--path", "a", "--slots", "2"], "slots are for names");
        refused(env, &["acquire", "db", "--contract", "kill"], "needs a TTL");
        refused(env, &["acquire"], "nothing to hold");
    });
}

#[test]
fn flags_and_commands() {
    everywhere(|env| {
        refused(env, &["aquire", "db"], "aquire");
        refused(env, &["acquire", "db", "--tll", "5m"], "--tll");
        refused(env, &["locks", "brake", "L1"], "brake");
        refused(env, &["release"], "<LEASE>");
        refused(env, &["acquire", "db", "--color", "pink"], "pink");
        refused(env, &["acquire", "db", "--store", "mysql://x"], "mysql");
        refused(env, &["exec", "db", "touch", "ran"], "CMD");
        refused(env, &["exec", "db", "--no-wait", "--wait", "--", "touch", "ran"], "--no-wait");
        refused(env, &["conflicts", "check", "a"], "nothing to be compared");
    });
}

#[test]
fn a_slip_is_answered_with_what_was_meant() {
    let env = Env::new();
    env.run(["aquire", "db"]).code(2).says("acquire");
    env.run(["acquire", "db", "--tll", "5m"]).code(2).says("--ttl");
    env.run(["exec", "db", "make", "test"])
        .code(2)
        .says("hint: put `--` before the command: lockkeeper exec db -- make test");
    env.run(["acquire", "db", "--color", "pink"]).code(2).says("auto, always, never");
    env.run(["release"]).code(2).says("lockkeeper release --help");
}

#[test]
fn settings() {
    for text in ["ttl = 0\n", "tl = 1\n", "ttl = [1]\n", "ttl = \n", "owner = \"me\"\n", "lang = \"fr\"\n"] {
        let env = Env::new().git().write("lockkeeper.toml", text);
        refused(&env, &["acquire", "db"], "lockkeeper.toml");
        refused(&env, &["locks"], "lockkeeper.toml");
    }
    refused(&Env::new().set("LOCKKEEPER_TTL", "0"), &["acquire", "db"], "LOCKKEEPER_TTL");
}

/// Requirement 204.
#[test]
fn requests_and_runs() {
    let env = Env::new().git().write("bad.json", r#"[{"command":[]}]"#).write("tasks.json", "{}");
    for id in ["", "..", "a/b", "a\nb", "-x"] {
        refused(&env, &["submit", &format!("--id={id}"), "--", "true"], "a request id");
        refused(&env, &["submit", &format!("--after={id}"), "--", "true"], "a request id");
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
        refused(&env, args, "");
    }
    let hint = "hint: put `--` before the command: lockkeeper submit -- CMD";
    env.run(["submit", "make", "test"]).code(2).says(hint);
}
