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
    let line = format!("'{}' exec db --wait=30ms -- true", world.program());
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

#[test]
fn every_error_has_one_shape() {
    let world = world!();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["acquire", ""], 2, "INPUT"),
        (&["acquire"], 2, "INPUT"),
        (&["no-such-command"], 2, "INPUT"),
        (&["release", "L1"], 75, "EXECUTION"),
        (&["fence", "db", "1"], 75, "EXECUTION"),
        (&["--dir", "/proc/none", "acquire", "db", "--ttl", "1m"], 1, "ENVIRONMENT"),
    ];
    for (args, code, category) in cases {
        let done = world.run([args, &["--json"]].concat()).code(code);
        let report = done.json();
        let error = report["error"].as_object().unwrap();
        assert_eq!(
            error.keys().collect::<Vec<_>>(),
            ["category", "reason_code", "message", "hint", "context"]
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
