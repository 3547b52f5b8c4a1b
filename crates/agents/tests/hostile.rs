//! Hostile texts: no input, patch or command line makes a reader panic, overflow its stack or run without end.

#[path = "fuzz/readers.rs"]
mod readers;

use std::path::Path;

use lockkeeper_agents::{
    Action, Answer, Entry, Event, Harness, HookInput, Marks, Place, Unread, Writes, patch_paths, quoted,
    shell_writes, writes,
};
use proptest::prelude::*;

fn shell(command: &str) -> Writes {
    let entry = |path: &Path| path.ends_with("src").then_some(Entry::Folder);
    shell_writes(
        command,
        &Place {
            cwd: Path::new("/repo"),
            home: Some(Path::new("/home/ann")),
            entry: &entry,
            names: &|_: &Path| Vec::new(),
            text: &|_: &Path| None,
        },
    )
}

fn marks() -> Marks {
    Marks { copilot: false, gemini_session: None, claude_session: Some("s-1".to_owned()) }
}

const CLAUDE: &str = r#"{"session_id":"s-1","transcript_path":"/home/ann/.claude/projects/x/s-1.jsonl","cwd":"/repo",
    "hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"echo x > a"},"tool_use_id":"t"}"#;

#[test]
fn every_truncated_input_is_unread() {
    assert!(HookInput::read(CLAUDE.as_bytes(), &marks()).is_ok());
    for end in 0..CLAUDE.len() {
        let read = HookInput::read(&CLAUDE.as_bytes()[..end], &marks());
        assert!(matches!(read, Err(Unread::NotJson(_))), "{end}: {read:?}");
    }
}

#[test]
fn deep_huge_and_foreign_inputs_are_unread() {
    let deep = "[".repeat(1_000_000);
    let deep_object = r#"{"a":"#.repeat(1_000_000);
    let inputs: [&[u8]; 8] = [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe{}",
        b"{\"session_id\":\"\xff\"}",
        deep.as_bytes(),
        deep_object.as_bytes(),
        b"{}",
    ];
    for input in inputs {
        assert!(HookInput::read(input, &marks()).is_err());
    }
    let huge = vec![b' '; lockkeeper_agents::MAX_BYTES + 1];
    assert_eq!(HookInput::read(&huge, &marks()), Err(Unread::TooLong(huge.len())));
}

/// JavaScript writes a text that was cut within an emoji with half of its code.
#[test]
fn halves_of_characters_are_replaced() {
    let with = |text: &str| CLAUDE.replace("echo x > a", text);
    for half in
        [r"\ud800", r"\uDC00", r"\ud83d\ud83d", r"\ude00\ud83d", r"\ud83dx", r"\ud83d\n", r"\ud83d\\udc00"]
    {
        let input = HookInput::read(with(&format!("echo '{half}' > a")).as_bytes(), &marks()).unwrap();
        let Some(Action::Runs { command, .. }) = input.tool.map(|tool| tool.action) else { panic!("{half}") };
        assert!(command.contains('\u{fffd}') && command.ends_with("' > a"), "{half}: {command}");
    }
    let whole = HookInput::read(with(r"echo \ud83d\ude00 \\ud800 > a").as_bytes(), &marks()).unwrap();
    let Some(Action::Runs { command, .. }) = whole.tool.map(|tool| tool.action) else { panic!() };
    assert_eq!(command, "echo \u{1f600} \\ud800 > a");
    for junk in [r#"{"a":"\ud8"}"#, r#"{"a":"\ud800"#, r#"\ud800"#, r#"{"a":"\uzzzz\ud800"}"#] {
        assert!(matches!(HookInput::read(junk.as_bytes(), &marks()), Err(Unread::NotJson(_))), "{junk}");
    }
}

/// Each field once missing, and once of every other type: the input is unread, or the owner is still the same.
#[test]
fn a_wrong_field_never_makes_another_owner() {
    let whole: serde_json::Map<String, serde_json::Value> = serde_json::from_str(CLAUDE).unwrap();
    let values =
        ["null", "true", "-1", "1e400", "\"\"", "\"a:b\"", "\"\\u0000\"", "[]", "{}", "[[1]]", "\"é\""];
    for key in whole.keys().map(String::as_str).chain(["agent_id", "parent_id", "turn_id", "sessionId"]) {
        for value in values.into_iter().map(Some).chain([None]) {
            let mut input = whole.clone();
            match value.map(serde_json::from_str) {
                Some(Ok(value)) => drop(input.insert(key.to_owned(), value)),
                Some(Err(_)) => continue,
                None => drop(input.remove(key)),
            }
            let bytes = serde_json::to_vec(&input).unwrap();
            if let Ok(input) = HookInput::read(&bytes, &marks()) {
                let owner = input.owner();
                assert!(matches!(owner.as_str(), "claude:s-1" | "codex:s-1"), "{key} {value:?}: {owner}");
            }
        }
    }
}

#[test]
fn nesting_without_end_is_refused() {
    let openings = [
        "$(",
        "(",
        "((",
        "$((",
        "{ ",
        "`",
        "${a:-",
        "\"$(",
        "if ",
        "while ",
        "case x in a) ",
        "f() ",
        "@(",
        "[[ ( ",
        "echo $(",
        "<(",
        "{a,",
        "! ",
        "time ",
        "coproc ",
        "a=(",
        "cat <<A\n",
        "$(cat <<A\n",
        "for i in a; do ",
        "bash -c '",
        "function f ",
        "\\`",
        "'\"",
        "a[",
        "[",
        "*",
        "~",
        "#",
        "&&",
        "|",
        ";;",
        "\\",
        "$",
        "${",
        "{1..",
        "~9",
        "$'",
        "eval ",
        "x=$x$x;",
    ];
    for opening in openings {
        for count in [30, 300, 4_000] {
            let text = opening.repeat(count);
            shell(&text);
            shell(&format!("echo {text}"));
            let close = text.replace("$(", ")").replace('(', ")").replace('{', "}");
            shell(&format!("{text}x{close} > a"));
        }
    }
}

/// Programs that run the rest of their arguments, one within the other.
#[test]
fn wrappers_within_wrappers_are_given_up() {
    let wrappers = [
        "env ",
        "sudo ",
        "doas ",
        "nice ",
        "ionice ",
        "nohup ",
        "setsid ",
        "stdbuf -o0 ",
        "timeout 1 ",
        "flock x ",
        "busybox ",
        "chroot / ",
        "unshare ",
        "strace ",
        "xargs ",
        "watch -x ",
        "find . -exec ",
        "command ",
        "builtin ",
        "exec ",
        "npx ",
        "uv run ",
        "lockkeeper exec x -- ",
    ];
    for wrapper in wrappers {
        for count in [120, 500, 5_000] {
            let found = shell(&format!("{}tee a.txt", wrapper.repeat(count)));
            assert!(!found.unknown.is_empty(), "{count} times {wrapper:?}: {found:?}");
        }
    }
    assert!(!shell(&format!("env {} tee a.txt", "-S".repeat(50_000))).unknown.is_empty());
    for wrapper in &wrappers[..20] {
        let found = shell(&format!("{}tee /repo/a.txt", wrapper.repeat(10)));
        assert!(
            found.paths.iter().any(|target| target.covers(Path::new("/repo/a.txt"))),
            "{wrapper}: {found:?}"
        );
    }
    // Each of these runs the next one twice.
    assert!(!shell(&format!("{}tee a.txt", "find a b -exec ".repeat(60))).unknown.is_empty());
}

#[test]
fn scripts_that_grow_are_given_up() {
    let doubling = "x=aaaaaaaa; for i in {1..60}; do x=$x$x; done; echo > $x";
    assert!(!shell(doubling).unknown.is_empty());
    let loops = "for a in {1..60}; do ".repeat(8) + "echo > $a" + &"; done".repeat(8);
    assert!(!shell(&loops).unknown.is_empty());
    assert!(!shell("f() { f; f; }; f; echo > $x").unknown.is_empty());
    assert!(!shell("echo {1..99999999999999999999} > {1..1000000}").unknown.is_empty());
    assert!(!shell(&format!("rm {}", "{a,b}".repeat(30))).unknown.is_empty());
    let variables: String = (0..20_000).map(|n| format!("v{n}=1;")).collect();
    assert!(!shell(&variables).unknown.is_empty());
    let long = format!("x='{}'; echo {} > a", "y".repeat(60_000), "$x".repeat(20_000));
    shell(&long);
    let document = format!(
        "for i in {{1..60}}; do for j in {{1..60}}; do cat <<'A' > a\n{}\nA\ndone; done",
        "z\n".repeat(400_000)
    );
    assert!(!shell(&document).unknown.is_empty());
    assert!(!shell(&"x".repeat(2 << 20)).unknown.is_empty(), "longer than what is read");
}

/// Programs in other languages as long as a command line may be. Each is read once from its beginning to its end.
#[test]
fn long_programs_of_other_languages_are_read_in_time() {
    let programs = [
        ("sed", "s/", "["),
        ("sed", "", "/[a]/,"),
        ("sed", "", "w a\n"),
        ("awk", "{", "print > "),
        ("awk", "", "a "),
        ("awk", "", "x | getline | "),
        ("awk", "", "system("),
        ("python3 -c", "", "open("),
        ("python3 -c", "", "x=\"a\";"),
        ("node -e", "", "writeFileSync(\"a\", "),
        ("perl -e", "", "open F, "),
        ("env -S", "", "\"a\" "),
    ];
    for (program, start, part) in programs {
        shell(&format!("{program} '{start}{}'", part.repeat(900_000 / part.len())));
    }
    shell(&"cd s*; ".repeat(100_000));
    shell(&format!("{}echo > x", "ln -s a x; ".repeat(4_000)));
    shell(&format!("echo '{}' | xargs rm", "a ".repeat(400_000)));
}

/// Fragments that mean something to a shell, so that random texts reach all of the parser.
fn fragments() -> impl Strategy<Value = String> {
    let words = [
        " ",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "(",
        ")",
        "{ ",
        "}",
        "<",
        ">",
        ">>",
        "<<EOF\n",
        "<<-'E'\n",
        "EOF\n",
        "<<<",
        "'",
        "\"",
        "`",
        "\\",
        "$",
        "$(",
        "$((",
        "))",
        "${x",
        "}",
        "$x",
        "${x:-y}",
        "x=",
        "x+=",
        "x=(",
        "if ",
        "then ",
        "else ",
        "fi",
        "for x in ",
        "do ",
        "done",
        "case ",
        " in ",
        "esac",
        ";;",
        "while ",
        "sed -n '",
        "w a",
        "s/[",
        "awk '",
        "print > \"a\"",
        " | getline",
        "system(\"",
        "python3 -c '",
        "open(\"a\", \"w\")",
        "Path(\"a\").write_text(",
        "p = ",
        "xargs -I{} ",
        "env -S '",
        "ln -s a b",
        "cd s*",
        "echo ",
        "[[ ",
        " ]]",
        "[",
        "]",
        "*",
        "?",
        "~",
        "{a,b}",
        "{1..3}",
        "#",
        "!",
        "echo ",
        "cat ",
        "sed -i s/a/b/ ",
        "tee ",
        "cp ",
        "mv ",
        "rm -rf ",
        "git checkout ",
        "git commit -m ",
        "bash -c ",
        "eval ",
        "cd ",
        "find . -exec ",
        "xargs ",
        "env ",
        "dd of=",
        "function f ",
        "f() ",
        "export ",
        "trap ",
        "-",
        "--",
        "-e",
        "a",
        "src/a.rs",
        "/",
        "..",
        "é",
        "\u{0}",
        "\t",
        "\r",
        "time ",
        "coproc ",
        "select ",
        "@(",
        "<(",
        ">&2",
        "&>",
        "2>&1",
        "timeout 1 ",
        "perl -pie ",
        "tar cf ",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_command_line_makes_the_reader_panic(text in fragments()) {
        shell(&text);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*") {
        shell(&text);
        quoted(&text);
        let _ = patch_paths(&text);
    }

    /// The fuzz target on some inputs. `scripts/fuzz agents` goes on for longer.
    #[test]
    fn the_fuzz_target_holds(text in fragments(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        readers::check(&[text.as_bytes(), &bytes].concat());
    }

    #[test]
    fn no_bytes_make_an_input_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = HookInput::read(&bytes, &marks());
    }

    #[test]
    fn no_changed_byte_makes_an_input_panic(at in 0..CLAUDE.len(), byte in any::<u8>()) {
        let mut bytes = CLAUDE.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(input) = HookInput::read(&bytes, &marks()) {
            let place = Place { cwd: Path::new("/repo"), home: None, entry: &|_: &Path| None, names: &|_: &Path| Vec::new(), text: &|_: &Path| None };
            input.tool.iter().for_each(|tool| drop(writes(tool, &place)));
        }
    }

    #[test]
    fn a_patch_lists_only_its_headers(lines in prop::collection::vec(prop::sample::select(vec![
        "*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Update File: b", "*** Move to: c", "*** Delete File: d",
        "+*** Add File: x", "-*** Add File: x", "@@ *** Add File: x", "*** Add File:", "***", "\r", ""]), 0..30)) {
        if let Ok(paths) = patch_paths(&lines.join("\n")) {
            prop_assert!(paths.iter().all(|path| ["a", "b", "c", "d"].contains(&path.as_str())));
        }
    }

    /// Whatever is quoted in it, a deny stays one JSON object of the known shape.
    #[test]
    fn a_deny_is_always_json(reason in "\\PC*|[\\x00-\\x7f]*") {
        for harness in Harness::ALL {
            let printed = Answer::Deny(reason.clone()).render(harness, &Event::BeforeTool);
            if harness == Harness::Windsurf {
                prop_assert_eq!(printed.code, 2);
            } else {
                prop_assert_eq!(printed.code, 0);
                let value: serde_json::Value = serde_json::from_str(&printed.stdout).unwrap();
                prop_assert!(value.is_object());
                prop_assert_eq!(printed.stdout.lines().count(), 1);
            }
        }
    }

    /// What stands in single quotes is never run.
    #[test]
    fn quoted_text_writes_nothing(text in "[^'\\x00]*") {
        let found = shell(&format!("echo '{text}'"));
        prop_assert!(found.is_nothing(), "{:?}", found);
    }

    /// A plain redirection is found whatever comes before it, as long as that is a command of its own.
    #[test]
    fn a_plain_write_is_found_after_any_quoted_text(text in "[^'\\x00]*", name in "[a-z]{1,8}") {
        let found = shell(&format!("echo '{text}'; echo x > {name}"));
        prop_assert!(found.paths.iter().any(|target| target.covers(&Path::new("/repo").join(&name))));
    }
}
