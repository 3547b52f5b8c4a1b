//! Output: pipes, terminals, colour, and the layout of errors.

use lockkeeper_testing::world;

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let world = world!();
    let done = world.shell("set -o pipefail; lockkeeper completions bash | head -n 1").code(0);
    assert_eq!((done.stdout().lines().count(), done.stderr()), (1, String::new()));
    let pairs = "set -o pipefail; yes \"$(printf 'a\\tb/c')\" | lockkeeper conflicts check --pairs - | head -n 1; echo ${PIPESTATUS[1]}";
    world.shell(pairs).prints("NONE").prints("\n0\n");
}

#[test]
fn closed_streams_do_not_matter() {
    let world = world!();
    world.shell("lockkeeper acquire db --ttl 1m 2>&-").code(0).prints("L");
    world.shell("lockkeeper acquire log --ttl 1m >&-").code(0);
    world.shell("lockkeeper acquire db 2>&- >&-").code(75);
}

/// A script that reads the id of its lease, or what it submitted, must not go on without it.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let world = world!();
    world
        .shell("lockkeeper acquire db --ttl 1m >/dev/full")
        .code(1)
        .says("No space left")
        .says("L1 was released");
    world.shell("lockkeeper acquire db --ttl 1m --json >/dev/full").code(1).says("L2 was released");
    world
        .shell("lockkeeper acquire db --ttl 1m --lang ja >/dev/full")
        .code(1)
        .says("出力を書き込めませんでした");
    world.run(["locks", "--json"]).code(0).prints("\"leases\":[]");
    // What was held before stays.
    world.run(["acquire", "db", "--ttl", "1m", "--owner", "worker:one"]).code(0);
    let again = "lockkeeper acquire db --ttl 1m --owner worker:one >/dev/full";
    world.shell(again).code(1).says("was yours before, and stays");
    world.run(["acquire", "db", "--ttl", "1m"]).code(75);
    for words in [
        "submit --id a -- true",
        "locks",
        "runs --json",
        "run show a",
        "why db",
        "completions bash",
        "conflicts check --pairs <(printf 'a\\tb\\n')",
        "conflicts match a --paths <(echo a)",
    ] {
        world.shell(&format!("lockkeeper {words} >/dev/full")).code(1).says("could not be written");
    }
    // The refusal is the more important answer.
    world.shell("lockkeeper acquire db --json >/dev/full").code(75);
    for words in ["--help", "--version", "exec --help"] {
        world.shell(&format!("lockkeeper {words} >/dev/full")).code(1).says("could not be written");
    }
}

/// Somebody who forgets the shell.
#[test]
fn a_variable_in_place_of_the_program_is_not_shown() {
    let world = world!();
    let refused = world.run(["exec", "db", "--", "API_TOKEN=SEKRIT", "make"]).code(127);
    assert!(!refused.says("cannot find the program `API_TOKEN=***`").stderr().contains("SEKRIT"));
    world.run(["submit", "--id", "a", "--", "API_TOKEN=SEKRIT", "make"]).code(0);
    world.run(["work", "--drain"]).code(1);
    for words in [&["run", "show", "a"][..], &["run", "events", "a"], &["--json", "runs"]] {
        assert!(!world.run(words.iter().copied()).code(0).stdout().contains("SEKRIT"), "{words:?}");
    }
}

#[test]
fn a_sprint_whose_answer_cannot_be_written_leaves_no_lock() {
    let world = world!();
    let acquire = "lockkeeper sprint acquire --project-root . --session-id s1 --epic-spec e1";
    world.shell(&format!("{acquire} >/dev/full")).code(1).says("the lock was released");
    world.shell("lockkeeper sprint check --project-root .").code(0).prints("clean");
}

#[test]
fn a_claim_whose_number_cannot_be_written_says_how_to_end_it() {
    let world = world!().with_state();
    world.run(["submit", "--id", "a", "--", "true"]).code(0);
    let refused = world.shell("lockkeeper run claim a --worker w >/dev/full").code(1);
    refused.says("is claimed: `lockkeeper run mark RUN-").says("canceled --claim 1` ends it");
}

#[test]
fn colour_is_for_terminals_only_unless_told() {
    let world = world!();
    let line = format!("'{}' release L1", world.program());
    let escape = "\u{1b}[";
    assert!(!world.run(["release", "L1"]).code(75).stderr().contains(escape));
    world.run(["release", "L1", "--color", "always"]).code(75).says(escape);
    assert!(!world.on_terminal(&line).code(75).stdout().contains(escape), "TERM=dumb");
    let world = world.set("TERM", "xterm");
    world.on_terminal(&line).code(75).prints(escape);
    world.on_terminal(&format!("{line} --color never")).code(75);
    let world = world.set("NO_COLOR", "1");
    assert!(!world.on_terminal(&line).code(75).stdout().contains(escape), "NO_COLOR");
}

#[test]
fn a_person_at_a_terminal_sees_a_line_with_a_clock() {
    let world = world!().set("TERM", "xterm");
    let holder = world.hold(&["db", "--owner", "worker:one"]);
    let line = format!("'{}' exec db --wait=1100ms -- true", world.program());
    let shown = world.on_terminal(&line).code(75).stdout();
    // How long it waited by the first line depends on how busy the machine is.
    let waited = shown.split("\r\u{1b}[Kwaiting ").nth(1).and_then(|line| line.split_once(' '));
    assert!(
        waited.is_some_and(|(span, rest)| {
            span.starts_with(|c: char| c.is_ascii_digit()) && rest.starts_with("for db, held by worker:one")
        }),
        "{shown:?}"
    );
    let quiet =
        world.on_terminal(&format!("{line} --quiet").replace("-- true --quiet", "--quiet -- true")).code(75);
    assert!(!quiet.stdout().contains("waiting "));
    holder.finish().code(0);
}

/// Without colours the cursor still moves: the display is drawn in its place.
#[test]
fn the_display_of_a_worker_needs_no_colours() {
    let world = world!();
    world.run(["submit", "--id", "plain", "--", "true"]).code(0);
    let plain = world.on_terminal(&format!("'{}' work --drain", world.program())).code(0).stdout();
    assert!(plain.contains("plain: started") && !plain.contains('\u{1b}'), "TERM=dumb: {plain:?}");
    let world = world.set("TERM", "xterm").set("NO_COLOR", "1");
    world.run(["submit", "--id", "a", "--", "true"]).code(0);
    let shown = world.on_terminal(&format!("'{}' work --drain", world.program())).code(0).stdout();
    assert!(shown.contains("\u{1b}[1A\r\u{1b}[J"), "{shown:?}");
}

#[test]
fn every_error_has_one_shape() {
    let world = world!();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["acquire", ""], 2, "INPUT"),
        (&["acquire"], 2, "INPUT"),
        (&["no-such-command"], 2, "INPUT"),
        (&["release", "L1"], 75, "EXECUTION"),
        (&["fence", "db", "1"], 75, "EXECUTION"),
        (&["--dir", "/proc/none", "acquire", "db", "--ttl", "1m"], 69, "ENVIRONMENT"),
    ];
    for (args, code, category) in cases {
        let done = world.run([args, &["--json"]].concat()).code(code);
        let report = done.json();
        let error = report["error"].as_object().unwrap();
        assert_eq!(
            error.keys().collect::<Vec<_>>(),
            ["category", "reason_code", "message", "hint", "context", "title", "summary", "actions"]
        );
        assert_eq!(error["category"], category, "{args:?}");
        assert!(error["hint"].is_string() && error["context"].is_object(), "{args:?}: {report}");
        assert_eq!(done.stderr(), "", "{args:?}");
    }
}

/// Text from other users must not control the terminal of the reader.
#[test]
fn control_characters_of_others_are_not_printed() {
    let world = world!().set("TERM", "xterm");
    world.acquire(&["db", "--reason", "a\u{1b}[2Jb"]);
    for args in ["locks", "why db", "acquire db", "exec db --no-wait -- true", "exec db --wait=20ms -- true"]
    {
        let shown = world.on_terminal(&format!("'{}' {args}", world.program())).stdout();
        assert!(shown.contains("[2Jb") && !shown.contains("\u{1b}[2J"), "{args}: {shown:?}");
    }
}

/// Such characters let a name look like another one.
#[test]
fn characters_that_turn_text_around_are_printed_escaped() {
    let world = world!().set("TERM", "xterm");
    world.acquire(&["d\u{202e}b", "--reason", "a\u{2066}b", "--owner", "test:x\u{200f}y"]);
    let name = "'d\u{202e}b'";
    let commands = [
        "locks".to_owned(),
        format!("why {name}"),
        format!("acquire {name}"),
        format!("exec {name} --no-wait -- true"),
    ];
    for args in commands {
        let shown = world.on_terminal(&format!("'{}' {args}", world.program())).stdout();
        assert!(shown.contains("\\u{202e}") && shown.contains("x\\u{200f}y"), "{args}: {shown:?}");
        assert!(!shown.contains(['\u{202e}', '\u{2066}', '\u{200f}']), "{args}: {shown:?}");
    }
    assert_eq!(world.json(&["locks"])["leases"][0]["owner"], "test:x\u{200f}y");
}

/// The command itself keeps them: it prints them to its own output.
#[test]
fn secrets_in_commands_are_shown_to_nobody() {
    let world = world!().with_state().git();
    let script = "echo \"$0\" \"$@\"; DB_PASSWORD=hush1 true https://me:hush2@host --token hush3";
    let command = ["sh", "-c", script, "--password=hush4", "Authorization: Bearer hush5"];
    let _ = world.run([&["submit", "--id", "RQ-1", "--"], &command[..]].concat()).code(0);
    let worked = world.run(["work", "--drain"]).code(0);
    let run = world.json(&["runs"])["runs"][0]["id"].as_str().unwrap().to_owned();
    let mut shown = vec![worked.stdout(), worked.stderr()];
    for args in [
        &["requests"][..],
        &["requests", "show", "RQ-1"],
        &["--json", "requests", "show", "RQ-1"],
        &["runs"],
        &["run", "show", &run],
        &["--json", "run", "show", &run],
    ] {
        let said = world.run(args).code(0);
        shown.extend([said.stdout(), said.stderr()]);
    }
    shown.extend(world.tree().into_iter().filter_map(|(path, content)| {
        let is_text = path.extension().is_some_and(|end| end == "json" || end == "jsonl")
            || path.ends_with("status.log");
        is_text.then(|| String::from_utf8_lossy(&content).into_owned())
    }));
    for text in &shown {
        assert!(!text.contains("hush"), "{text}");
    }
    assert!(shown.iter().any(|text| text.contains("--password=***")), "{shown:?}");
    let printed = world.run(["run", "logs", &run]).code(0).stdout();
    assert!(printed.contains("hush4") && printed.contains("hush5"), "{printed}");
}

#[test]
fn a_command_that_cannot_be_run_leaves_the_terminal_to_the_script() {
    let world = world!();
    let listens = "[ $(ps -o tpgid= -p $$) = $(ps -o pgid= -p $$) ] && echo it-listens";
    world
        .on_terminal(&format!("'{}' exec db -- no-such-program; {listens}", world.program()))
        .code(0)
        .prints("cannot find the program")
        .prints("it-listens");
}
