//! Different harnesses in one repository.

use lockkeeper_testing::{Script, files};
use serde_json::json;

use crate::claims::{command_line, first_agent, holder, second_agent, second_edit, set_up};
use crate::harness::{Claude, Codex, Copilot, Gemini, Harness, OpenCode, Qwen};
use crate::stage::Stage;

/// The first agent has a file; the second one must not edit it, and is told who has it.
fn excludes(first: &'static dyn Harness, second: &'static dyn Harness) {
    let Some(first) = Stage::of(first) else { return };
    let Some(second) = first.shared_with(second) else { return };
    set_up(&first);
    set_up(&second);
    let _session = first_agent(&first);
    let owner = holder(&first);
    second_agent(&second, second_edit(&second));
    assert_eq!(second.text("a.txt"), "first\n");
    assert!(second.model.was_told(&owner), "{owner}: {:#?}", second.model.results());
}

#[test]
fn codex_does_not_edit_what_claude_has() {
    excludes(&Claude, &Codex);
}

#[test]
fn claude_does_not_edit_what_codex_has() {
    excludes(&Codex, &Claude);
}

#[test]
fn copilot_does_not_edit_what_gemini_has() {
    excludes(&Gemini, &Copilot);
}

#[test]
fn opencode_does_not_edit_what_copilot_has() {
    excludes(&Copilot, &OpenCode);
}

#[test]
fn qwen_does_not_edit_what_opencode_has() {
    excludes(&OpenCode, &Qwen);
}

#[test]
fn gemini_does_not_edit_what_qwen_has() {
    excludes(&Qwen, &Gemini);
}

/// Copilot also runs the hooks of Claude's settings. Both calls name the same owner, so it does not deny itself.
#[test]
fn copilot_with_the_hooks_of_claude_is_one_owner() {
    let Some(stage) = Stage::of(&Copilot) else { return };
    set_up(&stage);
    let hook = json!({ "type": "command", "command": command_line(stage.world.program()), "timeout": 60 });
    let settings =
        json!({ "hooks": { "PreToolUse": [{ "hooks": [hook] }], "PostToolUse": [{ "hooks": [hook] }] } });
    files::write(&stage.world.path(".claude/settings.json"), settings.to_string());
    files::write(&stage.world.home().join(".claude/settings.json"), settings.to_string());
    let folder = stage.world.cwd().to_str().expect("a path of a test is text");
    let trusted = json!({ "trustedFolders": [folder] });
    files::write(&stage.world.home().join(".copilot/config.json"), trusted.to_string());
    let file = stage.world.path("a.txt");
    let script = Script::new().call(stage.harness.create(&file, "first"));
    let script = script.then(stage.harness.replace(&file, "first", "second")).gate("edited").say("bye");
    let _session = stage.start(&script);
    stage.model.until_at("edited");
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
    assert!(holder(&stage).starts_with("copilot:"));
}
