//! Different harnesses in one repository.

use lockkeeper_testing::{Script, files};
use serde_json::json;

use crate::claims::{command_line, first_agent, holder, second_agent, second_edit, set_up, take_part};
use crate::harness::{Claude, Codex, Copilot, Gemini, Harness, OpenCode, Qwen};
use crate::stage::Stage;
use crate::test_hook::LIMIT;

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

/// A stage for Copilot where Claude's settings have the hook, in the home folder and in the project.
fn copilot_with_hooks_of_claude() -> Option<Stage> {
    let stage = Stage::of(&Copilot)?;
    take_part(&stage);
    Claude.set_up(&stage.world, &command_line(stage.world.program()), LIMIT);
    let settings = std::fs::read_to_string(stage.world.home().join(".claude/settings.json")).unwrap();
    files::write(&stage.world.path(".claude/settings.json"), settings);
    let folder = stage.world.cwd().to_str().expect("a path of a test is text");
    let trusted = json!({ "trustedFolders": [folder] });
    files::write(&stage.world.home().join(".copilot/config.json"), trusted.to_string());
    Some(stage)
}

/// The hook says who it is by its input, not by the file in which it is configured.
#[test]
fn copilot_runs_the_hooks_of_claude_and_is_copilot() {
    let Some(stage) = copilot_with_hooks_of_claude() else { return };
    let _session = first_agent(&stage);
    assert!(holder(&stage).starts_with("copilot:"));
}

/// Both hooks are called before each edit, with the same owner: Copilot does not deny itself.
#[test]
fn copilot_with_its_own_hooks_and_those_of_claude_is_one_owner() {
    let Some(stage) = copilot_with_hooks_of_claude() else { return };
    set_up(&stage);
    let file = stage.world.path("a.txt");
    let script = Script::new().call(stage.harness.create(&file, "first"));
    let script = script.then(stage.harness.replace(&file, "first", "second")).gate("edited").say("bye");
    let _session = stage.start(&script);
    stage.model.until_at("edited");
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
    assert!(holder(&stage).starts_with("copilot:"));
}
