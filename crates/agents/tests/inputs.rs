//! Sample inputs of each harness, made after its documentation and runs of it: who calls, what happens, what the tool would write.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_agents::{Event, Harness, HookInput, Marks, Place, Target, Unread, Writes, writes};

const CLAUDE: &str = "claude:9f2c1b7e-0d51-4d53-9a51-2f0c7a8b1c3d";
const CODEX: &str = "codex:01a1b2c3-d4e5-7f60-8123-456789abcdef";
const GEMINI: &str = "gemini:6a1d7f6e-7d43-4a0c-8a57-1c2b3d4e5f60";
const COPILOT: &str = "copilot:c0b1d2e3-f405-4617-9829-3a4b5c6d7e8f";
const COPILOT_CHILD: &str =
    "copilot:c0b1d2e3-f405-4617-9829-3a4b5c6d7e8f:11111111-2222-4333-8444-555555555555";
const OPENCODE: &str = "opencode:ses_5b1c2d3e4f";
const QWEN: &str = "qwen:77f2e0aa-1b2c-4d3e-8f40-5a6b7c8d9e0f";
const CURSOR: &str = "cursor:5f0e1d2c-3b4a-4596-8778-695a4b3c2d1e";

/// What is written: files below the repository, and whether more may be.
enum Does {
    Writes(&'static [&'static str]),
    WritesAndMore(&'static [&'static str]),
    Nothing,
    Unknown,
    /// No tool is called.
    NoTool,
}
use Does::{NoTool, Nothing, Unknown, Writes as Files, WritesAndMore as FilesAndMore};

/// File, owner, event, what the tool does.
fn table() -> Vec<(&'static str, String, Event, Does)> {
    let before = || Event::BeforeTool;
    let own = |owner: &str| owner.to_owned();
    let sub = |owner: &str, agent: &str| format!("{owner}:{agent}");
    vec![
        ("claude/write", own(CLAUDE), before(), Files(&["src/a.rs"])),
        ("claude/edit-of-subagent", sub(CLAUDE, "a4f3c0de"), before(), Files(&["src/a.rs"])),
        ("claude/multi-edit", own(CLAUDE), before(), Files(&["src/a.rs"])),
        ("claude/notebook-edit", own(CLAUDE), before(), Files(&["n.ipynb"])),
        ("claude/bash", own(CLAUDE), before(), Files(&["src/a.rs"])),
        ("claude/powershell", own(CLAUDE), before(), Unknown),
        ("claude/read", own(CLAUDE), before(), Nothing),
        ("claude/mcp", own(CLAUDE), before(), FilesAndMore(&["src/a.rs"])),
        ("claude/mcp-of-a-remote-repository", own(CLAUDE), before(), Unknown),
        ("claude/after-bash", own(CLAUDE), Event::AfterTool, Unknown),
        ("claude/tool-failed", own(CLAUDE), Event::ToolFailed, Files(&["src/a.rs"])),
        ("claude/session-start", own(CLAUDE), Event::SessionBegins, NoTool),
        ("claude/prompt", own(CLAUDE), Event::TurnBegins, NoTool),
        ("claude/stop", own(CLAUDE), Event::TurnEnds, NoTool),
        ("claude/subagent-start", sub(CLAUDE, "a4f3c0de"), Event::SubagentBegins, NoTool),
        ("claude/subagent-stop", sub(CLAUDE, "a4f3c0de"), Event::SubagentEnds, NoTool),
        ("claude/session-end", own(CLAUDE), Event::SessionEnds, NoTool),
        (
            "codex/apply-patch",
            own(CODEX),
            before(),
            Files(&["src/old.rs", "src/new.rs", "docs/x.md", "notes.txt"]),
        ),
        ("codex/bash", own(CODEX), before(), Files(&["src/a.rs"])),
        ("codex/shell-words", own(CODEX), before(), Files(&["src/a.rs"])),
        ("codex/apply-patch-in-shell", own(CODEX), before(), Files(&["a.txt"])),
        ("codex/subagent", sub(CODEX, "01a1ffff-0000-7000-8000-000000000001"), before(), Files(&["a.txt"])),
        ("codex/mcp", own(CODEX), before(), FilesAndMore(&["a.txt", "b.txt"])),
        ("codex/session-start", own(CODEX), Event::SessionBegins, NoTool),
        ("codex/stop", own(CODEX), Event::TurnEnds, NoTool),
        ("gemini/write-file", own(GEMINI), before(), Files(&["src/a.rs"])),
        ("gemini/replace", own(GEMINI), before(), Files(&["src/a.rs"])),
        ("gemini/shell", own(GEMINI), before(), Files(&["src/a.txt"])),
        ("gemini/mcp", own(GEMINI), before(), FilesAndMore(&["src/a.rs"])),
        ("gemini/before-agent", own(GEMINI), Event::TurnBegins, NoTool),
        ("gemini/after-agent", own(GEMINI), Event::TurnEnds, NoTool),
        ("gemini/session-start", own(GEMINI), Event::SessionBegins, NoTool),
        ("copilot/write", own(COPILOT), before(), Files(&["src/a.rs"])),
        ("copilot/bash", own(COPILOT), before(), Files(&["src/a.rs"])),
        ("copilot/own-keys", own(COPILOT), before(), Files(&["src/a.rs"])),
        ("copilot/vscode", own(COPILOT), before(), Files(&["a.ts", "b.ts"])),
        ("copilot/vscode-edit-files", own(COPILOT), before(), Files(&["src/a.ts"])),
        ("copilot/subagent", own(COPILOT_CHILD), before(), Files(&["src/a.rs"])),
        ("copilot/mcp", own(COPILOT), before(), FilesAndMore(&["src/a.rs"])),
        ("copilot/stop", own(COPILOT), Event::TurnEnds, NoTool),
        ("opencode/write", own(OPENCODE), before(), Files(&["src/a.rs"])),
        ("opencode/bash", own(OPENCODE), before(), Files(&["docs/new.txt"])),
        ("opencode/apply-patch", own(OPENCODE), before(), Files(&["a.txt"])),
        ("opencode/child-session", sub(OPENCODE, "ses_child"), before(), Files(&["src/a.rs"])),
        ("opencode/mcp", own(OPENCODE), before(), FilesAndMore(&["src/a.rs"])),
        ("opencode/idle", own(OPENCODE), Event::TurnEnds, NoTool),
        ("qwen/write-file", own(QWEN), before(), Files(&["src/a.rs"])),
        ("qwen/edit", own(QWEN), before(), Files(&["src/a.rs"])),
        ("qwen/shell", own(QWEN), before(), Files(&["notes.txt"])),
        ("qwen/stop", own(QWEN), Event::TurnEnds, NoTool),
        ("cursor/write", own(CURSOR), before(), Files(&["src/a.rs"])),
        ("cursor/shell", own(CURSOR), before(), Files(&["a.txt", "b.txt"])),
        ("cursor/before-shell", own(CURSOR), before(), Files(&["docs/a.txt"])),
        ("cursor/mcp", own(CURSOR), before(), FilesAndMore(&["src/a.rs"])),
        ("cursor/stop", own(CURSOR), Event::TurnEnds, NoTool),
        ("windsurf/write", own("windsurf:traj-1"), before(), Files(&["src/a.rs"])),
        ("windsurf/command", own("windsurf:traj-1"), before(), Files(&["build"])),
        ("windsurf/mcp", own("windsurf:traj-1"), before(), FilesAndMore(&["a"])),
    ]
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(data().join(format!("{name}.json"))).unwrap()
}

/// The environment in which the harness starts its hooks.
fn marks(name: &str) -> Marks {
    let session = |owner: &str| owner.split_once(':').map(|(_, session)| session.to_owned());
    Marks {
        copilot: name.starts_with("copilot/") && !name.ends_with("vscode"),
        gemini_session: name.starts_with("gemini/").then(|| session(GEMINI)).flatten(),
        claude_session: (name.starts_with("claude/") || name.starts_with("unread/"))
            .then(|| session(CLAUDE))
            .flatten(),
    }
}

fn written(input: &HookInput) -> Option<Writes> {
    let cwd = input.cwd.clone().unwrap_or_else(|| "/work/repo".into());
    let place = Place {
        cwd: &cwd,
        home: None,
        entry: &|_: &Path| None,
        names: &|_: &Path| Vec::new(),
        text: &|_: &Path| None,
    };
    input.tool.as_ref().map(|tool| writes(tool, &place))
}

#[test]
fn every_sample_has_its_owner_event_and_writes() {
    for (name, owner, event, does) in table() {
        let input = HookInput::read(&bytes(name), &marks(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(input.owner().as_str(), owner, "{name}");
        assert_eq!(input.is_subagent(), owner.matches(':').count() == 2, "{name}");
        assert_eq!(input.event, event, "{name}");
        let found = written(&input);
        let (files, more) = match does {
            NoTool => {
                assert_eq!(found, None, "{name}");
                continue;
            }
            Files(files) => (files, false),
            FilesAndMore(files) => (files, true),
            Nothing => (&[][..], false),
            Unknown => (&[][..], true),
        };
        let found = found.unwrap_or_else(|| panic!("{name} has no tool"));
        let paths: BTreeSet<PathBuf> = found.paths.iter().map(path).collect();
        let expected: BTreeSet<PathBuf> =
            files.iter().map(|file| Path::new("/work/repo").join(file)).collect();
        assert_eq!(paths, expected, "{name}");
        assert_eq!(!found.unknown.is_empty(), more, "{name}: {found:?}");
    }
}

fn path(target: &Target) -> PathBuf {
    match target {
        Target::File(path) | Target::Below(path) => path.clone(),
        Target::Pattern(pattern) => panic!("{pattern}"),
    }
}

#[test]
fn every_sample_is_in_the_table() {
    let listed: BTreeSet<String> = table().into_iter().map(|(name, ..)| name.to_owned()).collect();
    let mut found = BTreeSet::new();
    for harness in Harness::ALL.map(Harness::kind) {
        for entry in fs::read_dir(data().join(harness)).unwrap() {
            let file = entry.unwrap().path();
            found.insert(format!("{harness}/{}", file.file_stem().unwrap().to_str().unwrap()));
        }
    }
    assert_eq!(found, listed);
}

/// Copilot and Cursor run hooks of other harnesses' settings, and harnesses run inside of each other: what the environment adds
/// does not change the owner that the input names.
#[test]
fn marks_of_other_harnesses_do_not_change_the_owner() {
    for (name, owner, ..) in table() {
        let own = marks(name);
        let foreign = Marks {
            copilot: true,
            gemini_session: own.gemini_session.or(Some("outer".to_owned())),
            claude_session: own.claude_session.or(Some("outer".to_owned())),
        };
        let input = HookInput::read(&bytes(name), &foreign).unwrap();
        assert_eq!(input.owner().as_str(), owner, "{name}");
    }
}

#[test]
fn inputs_that_say_too_little_are_unread_with_a_reason() {
    let reasons = [
        ("cline", Unread::Unsupported("cline")),
        ("claude-of-another-session", Unread::UnknownHarness),
        ("no-session", Unread::Missing("the id of the session")),
        ("no-event", Unread::Missing("the name of the event")),
        ("agent-is-a-number", Unread::WrongType("agent_id")),
        ("session-with-a-colon", Unread::BadId("session_id")),
        ("tool-name-is-a-list", Unread::WrongType("tool_name")),
        ("unknown-program", Unread::UnknownHarness),
    ];
    assert_eq!(fs::read_dir(data().join("unread")).unwrap().count(), reasons.len());
    for (name, reason) in reasons {
        let name = format!("unread/{name}");
        assert_eq!(HookInput::read(&bytes(&name), &marks(&name)), Err(reason), "{name}");
    }
}

#[test]
fn what_claude_says_of_changes_and_background_work_is_kept() {
    let read = |name: &str| HookInput::read(&bytes(name), &marks(name)).unwrap();
    let changed = ["/work/repo/src/a.rs", "/work/repo/b.txt"].map(str::to_owned);
    assert_eq!(read("claude/after-bash").changed, Some(changed.to_vec()));
    assert_eq!(read("claude/bash").changed, None);
    let background = read("claude/stop").background;
    assert_eq!(background.len(), 1, "what has ended does not count");
    assert_eq!((background[0].id.as_str(), background[0].kind.as_str()), ("a4f3c0de", "subagent"));
    assert_eq!(read("claude/write").call.as_deref(), Some("toolu_01"));
}

#[test]
fn a_child_of_a_child_is_named_below_the_owner_of_its_parent() {
    let child = HookInput::read(&bytes("opencode/child-session"), &Marks::default()).unwrap();
    let above = "opencode:root:ses_5b1c2d3e4f".parse().unwrap();
    assert_eq!(child.owner_below(&above).unwrap().as_str(), "opencode:root:ses_5b1c2d3e4f:ses_child");
    let first = HookInput::read(&bytes("opencode/write"), &Marks::default()).unwrap();
    assert_eq!(first.owner_below(&above), None);
}
