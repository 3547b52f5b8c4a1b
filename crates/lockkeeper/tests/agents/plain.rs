//! What harnesses do with any hook: it is asked before each edit, and a denied edit is not made. The hook is a script
//! of the tests, so a failure here is a change of the harness.

use lockkeeper_testing::{Script, processes, skip};
use serde_json::Value;

use crate::harness::Harness;
use crate::stage::Stage;
use crate::test_hook::TestHook;

each_harness!([
    edits_are_made_without_a_hook,
    a_free_edit_is_made_and_the_hook_is_asked_before,
    a_denied_edit_is_not_made_and_the_model_is_told,
    the_process_that_the_hook_sees_dies_with_the_agent,
    sub_agents_have_their_own_ids,
]);

/// An edit by the harness's own tool, then one by its shell.
fn two_edits(stage: &Stage) -> Script {
    let file = stage.world.path("a.txt");
    Script::new().call(stage.harness.create(&file, "edit")).call(stage.harness.shell("echo shell > b.txt"))
}

fn edits_are_made_without_a_hook(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let ended = stage.run(&two_edits(&stage).say("bye"));
    assert_eq!((stage.text("a.txt"), stage.text("b.txt")), ("edit\n".into(), "shell\n".into()), "{ended:?}");
}

fn a_free_edit_is_made_and_the_hook_is_asked_before(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let hook = TestHook::set_up(&stage);
    let ended = stage.run(&two_edits(&stage).say("bye"));
    assert_eq!((stage.text("a.txt"), stage.text("b.txt")), ("edit\n".into(), "shell\n".into()), "{ended:?}");
    let before = inputs_of(&hook, harness.before_tool());
    assert_eq!(before.len(), 2, "{before:#?}");
    assert!(before[0]["tool_input"].to_string().contains("a.txt"), "{before:#?}");
    assert!(before[1]["tool_input"].to_string().contains("echo shell > b.txt"), "{before:#?}");
    hook.record(&stage, "edits");
    let session = before[0]["session_id"].as_str().expect("a session has an id");
    assert!(!session.is_empty() && before.iter().all(|input| input["session_id"] == session), "{before:#?}");
}

fn a_denied_edit_is_not_made_and_the_model_is_told(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let hook = TestHook::set_up(&stage);
    hook.deny();
    let ended = stage.run(&two_edits(&stage).say("bye"));
    assert_eq!((stage.text("a.txt"), stage.text("b.txt")), (String::new(), String::new()), "{ended:?}");
    assert_eq!(stage.model.times_told(TestHook::REASON), 2, "{:#?}", stage.model.results());
}

fn the_process_that_the_hook_sees_dies_with_the_agent(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let hook = TestHook::set_up(&stage);
    let mut session = stage.start(&two_edits(&stage).gate("edited").say("bye"));
    stage.model.until_at("edited");
    assert_eq!(hook.agent(), session.pid());
    session.kill();
    assert!(!processes::is_alive(hook.agent()));
}

fn sub_agents_have_their_own_ids(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let hook = TestHook::set_up(&stage);
    let start = |name: &str| {
        let edit = harness.create(&stage.world.path(&format!("{name}.txt")), name);
        harness.sub_agent(name, &Script::new().call(edit).gate(&format!("{name} edited")).say("bye").prompt())
    };
    let (Some(first), Some(second)) = (start("first"), start("second")) else {
        return skip("a harness whose hooks say which sub-agent calls");
    };
    let session = stage.start(&Script::new().together([first, second]).gate("all").say("bye"));
    for name in ["first", "second"] {
        stage.model.until_at(&format!("{name} edited"));
        assert_eq!(stage.text(&format!("{name}.txt")), format!("{name}\n"));
    }
    for gate in ["first edited", "second edited", "all"] {
        stage.model.open(gate);
    }
    let ended = session.wait();
    let edits: Vec<Value> = inputs_of(&hook, harness.before_tool())
        .into_iter()
        .filter(|input| ["first.txt", "second.txt"].iter().any(|name| writes(input, name)))
        .collect();
    assert_eq!(edits.len(), 2, "{edits:#?} {ended:?}");
    hook.record(&stage, "sub-agents");
    let id = |input: &Value| (input["session_id"].clone(), input["agent_id"].clone());
    assert_ne!(id(&edits[0]), id(&edits[1]), "{edits:#?}");
}

fn inputs_of(hook: &TestHook, event: &str) -> Vec<Value> {
    hook.inputs().into_iter().filter(|input| input["hook_event_name"] == event).collect()
}

/// Whether a call edits this file. A call that starts a sub-agent also names the file, within its prompt.
fn writes(input: &Value, file: &str) -> bool {
    let fields = ["file_path", "path", "filePath", "command"];
    fields.iter().any(|field| input["tool_input"][field].as_str().is_some_and(|text| text.contains(file)))
}
