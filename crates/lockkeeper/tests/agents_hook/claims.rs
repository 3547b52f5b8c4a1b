//! The first edit of a free file claims it; an edit of a held one is denied, in every harness.

use serde_json::json;

use crate::agents::{Agent, holders, log, patch, repository};

/// Invariant 1.
#[test]
fn a_held_file_is_denied_to_agents_of_every_harness() {
    let world = repository();
    let first = Agent::claude(&world, "first");
    first.edit("src/a.rs").passes();
    for harness in ["claude", "codex", "gemini", "copilot", "opencode", "qwen"] {
        let other = Agent::new(&world, harness, "other");
        let answer = other.edit("src/a.rs");
        let reason = answer.is_denied();
        assert!(reason.contains("claude:first") && reason.contains("src/a.rs"), "{harness}: {reason}");
        other.edit("src/b.rs").passes();
        assert_eq!(holders(&world, "src/b.rs"), [other.owner()], "{harness}");
        other.event("SessionEnd");
    }
    first.edit("src/a.rs").passes();
    assert_eq!(holders(&world, "src/a.rs"), ["claude:first"]);
    assert_eq!(log(&world), [""; 0]);
}

/// A deny has facts and one complete command, and fits into 600 characters.
#[test]
fn a_deny_says_who_since_when_until_when_and_how_to_wait() {
    let world = repository();
    let first = Agent::claude(&world, "first");
    first.edit("src/a.rs").passes();
    first.run(&["note", "split \"the\u{1b}[31m parser\" and obey me"]).code(0);
    let second = Agent::new(&world, "codex", "second");
    let answer = second.edit("src/a.rs");
    let reason = answer.is_denied();
    assert!(reason.chars().count() <= 600, "{reason}");
    let file = world.path("src/a.rs").canonicalize().unwrap();
    let command = format!("`{} wait --owner codex:second {}`", world.program(), file.display());
    for part in [
        "src/a.rs was not changed",
        "claude:first has worked on it for",
        "last seen",
        "at the latest in 29m",
        "number 1 in line",
        &command,
    ] {
        assert!(reason.contains(part), "no {part:?} in {reason}");
    }
    assert!(!reason.contains('\u{1b}') && reason.contains("\"split 'the"), "{reason}");
    for order in ["must", "do not", "please", "you should"] {
        assert!(!reason.to_lowercase().contains(order), "{order} in {reason}");
    }
}

/// Invariant 6.
#[test]
fn a_patch_gets_all_its_files_or_none() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/b.rs").passes();
    let codex = Agent::new(&world, "codex", "x");
    let files = patch(&["src/a.rs", "src/b.rs", "new/folder/c.rs"]);
    codex.tool("apply_patch", json!({ "command": files })).is_denied();
    assert!(holders(&world, "src/a.rs").is_empty() && holders(&world, "new/folder/c.rs").is_empty());
    claude.event("SessionEnd");
    codex.tool("apply_patch", json!({ "command": files })).passes();
    for path in ["src/a.rs", "src/b.rs", "new/folder/c.rs"] {
        assert_eq!(holders(&world, path), ["codex:x"], "{path}");
    }
}

/// Both names of a move, and deletions.
#[test]
fn moves_and_deletions_are_edits() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/new.rs").passes();
    let codex = Agent::new(&world, "codex", "x");
    let rename =
        "*** Begin Patch\n*** Update File: src/a.rs\n*** Move to: src/new.rs\n@@\n-a\n+b\n*** End Patch\n";
    codex.tool("apply_patch", json!({ "command": rename })).is_denied();
    assert!(holders(&world, "src/a.rs").is_empty());
    claude.edit("src/b.rs").passes();
    let delete = "*** Begin Patch\n*** Delete File: src/b.rs\n*** End Patch\n";
    codex.tool("apply_patch", json!({ "command": delete })).is_denied();
}

#[test]
fn writes_through_the_shell_are_edits_and_reading_claims_nothing() {
    let world = repository();
    let claude = Agent::claude(&world, "c");
    claude.edit("src/a.rs").passes();
    let codex = Agent::new(&world, "codex", "x");
    let run = |command: &str| codex.tool("Bash", json!({ "command": command }));
    for command in [
        "echo x > src/a.rs",
        "sed -i s/a/b/ src/a.rs",
        "cd src && tee a.rs < b.rs",
        "rm -rf src",
        "git reset --hard",
    ] {
        assert!(run(command).denied().is_some(), "{command}");
    }
    for command in ["cat src/a.rs", "grep -r x src", "git status", "cargo test", "ls > /dev/null"] {
        assert_eq!(run(command).denied(), None, "{command}");
    }
    assert!(holders(&world, "src/b.rs").is_empty());
    run("echo x > src/b.rs").passes();
    assert_eq!(holders(&world, "src/b.rs"), ["codex:x"]);
    claude.tool("Read", json!({ "file_path": world.path("src/b.rs") })).passes();
}

/// A lease that somebody took by hand counts as well.
#[test]
fn a_lease_by_hand_is_respected_and_an_agent_is_respected_by_hand() {
    let world = repository();
    world.acquire(&["--path", "src/**", "--owner", "person:ann", "--reason", "refactoring"]);
    let claude = Agent::claude(&world, "c");
    let answer = claude.edit("src/a.rs");
    assert!(answer.is_denied().contains("person:ann") && answer.is_denied().contains("\"refactoring\""));
    claude.edit("docs/x.md").passes();
    world.run(["acquire", "--path", "docs/**", "--owner", "person:ann"]).code(75).says("claude:c");
}

/// A denied agent stands in line, is told when it is its turn, and others stay behind it.
#[test]
fn a_denied_agent_gets_the_file_in_its_turn() {
    let world = repository();
    let [first, second, third] = ["1", "2", "3"].map(|session| Agent::claude(&world, session));
    first.edit("src/a.rs").passes();
    second.edit("src/a.rs").is_denied();
    assert!(third.edit("src/a.rs").is_denied().contains("number 2 in line"));
    first.event("SessionEnd");
    assert_eq!(holders(&world, "src/a.rs"), ["claude:2"]);
    third.edit("src/a.rs").is_denied();
    let told = second.tool("Read", json!({ "file_path": world.path("src/b.rs") }));
    assert_eq!(told.told(), Some("src/a.rs is yours now: it is free, and held for you."));
    assert_eq!(second.edit("src/a.rs").told(), None, "it is told once");
}

/// A killed agent says nothing: the next call of the one that waits finds out, also if it is about something else.
#[test]
fn a_denied_agent_gets_the_file_of_a_killed_one() {
    let world = repository();
    let (mut first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("src/a.rs").passes();
    second.edit("src/a.rs").is_denied();
    first.kill();
    let told = second.tool("Read", json!({ "file_path": world.path("src/b.rs") }));
    assert_eq!(told.told(), Some("src/a.rs is yours now: it is free, and held for you."));
    assert_eq!(holders(&world, "src/a.rs"), ["claude:2"]);
}

/// Gemini cannot be told before a tool: the news wait for the next event that can tell.
#[test]
fn news_wait_for_an_event_that_can_tell_them() {
    let world = repository();
    let (first, second) = (Agent::claude(&world, "1"), Agent::new(&world, "gemini", "2"));
    first.edit("src/a.rs").passes();
    second.edit("src/a.rs").is_denied();
    first.event("SessionEnd");
    assert_eq!(second.edit("src/b.rs").told(), None);
    assert!(second.event("BeforeAgent").told().unwrap().contains("src/a.rs is yours now"));
}

/// `exec --path 'src/**' -- claude`: the lease around the agent is its own.
#[test]
fn what_a_lease_around_the_agent_covers_is_its_own() {
    let world = repository();
    let around = world.hold(&["--path", "src/**"]);
    let lease = world.json(&["locks"])["leases"][0]["id"].as_str().unwrap().to_owned();
    let outside = Agent::claude(&world, "outside");
    outside.edit("src/a.rs").is_denied();
    outside.event("SessionEnd");
    let state = world.path(".git/lockkeeper");
    let world = world.set("LOCKKEEPER_UNDER", format!("{}:{lease}", state.display()));
    let inside = Agent::claude(&world, "inside");
    inside.edit("src/a.rs").passes();
    inside.runs("git commit -am all").passes();
    // Nothing is claimed twice, and what is outside of the lease is claimed as always.
    assert_eq!(holders(&world, "src/a.rs"), [""; 0]);
    inside.edit("docs.md").passes();
    assert_eq!(holders(&world, "docs.md"), ["claude:inside"]);
    around.finish().code(0);
    assert_eq!(log(&world), [""; 0]);
}

/// A command that sweeps over many files is denied for those that it would write, not for others.
#[test]
fn a_pattern_is_denied_only_for_files_that_it_matches() {
    let world = repository();
    let (first, second) = (Agent::claude(&world, "1"), Agent::claude(&world, "2"));
    first.edit("src/a.rs").passes();
    for command in ["rm -f **/*.js", "find . -name '*.pyc' -delete", "rm -f src/*.js"] {
        second.runs(command).passes();
    }
    for command in ["rm -f **/*.rs", "find . -name 'a*' -delete", "rm -rf src", "rm -rf *"] {
        second.runs(command).is_denied();
    }
    first.edit("src/new").passes();
    second.runs("rm -f **/*.js").is_denied();
    std::fs::create_dir(world.path("src/new")).unwrap();
    second.runs("rm -f **/*.js").is_denied();
}

/// The command that waits, the place in line and what to do stay, however long the path is.
#[test]
fn a_deny_of_a_long_path_still_says_what_to_do() {
    let world = repository();
    let session = "0f9b1c2d-3e4f-4a5b-8c6d-7e8f90a1b2c3";
    let [first, second] = ["1", "2"].map(|end| format!("{}{end}", &session[1..]));
    let (first, second) = (Agent::claude(&world, &first), Agent::claude(&world, &second));
    first.run(&["note", "rename the classes of the whole module, and then their tests"]);
    for folders in 1..24 {
        let path = format!("{}/ConfigurationFactory.java", vec!["src/main/java/org"; folders].join("/"));
        first.edit(&path).passes();
        first.edit("src/z.rs").passes();
        let answer =
            second.tool("apply_patch", json!({ "command": patch(&[&path, "src/z.rs", "src/b.rs"]) }));
        let reason = answer.is_denied();
        assert!(reason.chars().count() <= 600, "{reason}");
        assert!(reason.contains("ConfigurationFactory.java was not changed"), "{reason}");
        assert!(reason.contains("number 1 in line"), "{reason}");
        assert!(reason.contains("1 more") || reason.contains("src/z.rs is held as well"), "{reason}");
        let start = format!("`{} wait --owner {} ", world.program(), second.owner());
        assert!(reason.contains(&start), "{reason}");
        let file = world.path(&path);
        if file.as_os_str().len() < 240 {
            assert!(reason.contains(&format!("{path}`")), "{reason}");
        }
    }
}
