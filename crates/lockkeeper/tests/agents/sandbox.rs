//! Commands inside of Codex' sandbox: its hooks run outside and hold, reading commands work, and writing ones say why they cannot.

use lockkeeper_testing::{Script, skip};

use crate::claims::{first_agent, holder, set_up};
use crate::harness::CodexInSandbox;
use crate::stage::Stage;

/// A session in the sandbox that runs these lines. Returns what the model was told.
fn in_sandbox(stage: &Stage, lines: &[String]) -> Vec<String> {
    let before = stage.model.results().len();
    let calls = lines.iter().map(|line| stage.harness.shell(line));
    let ended = stage.run(&Script::new().then(calls).say("bye"));
    assert!(ended.succeeded(), "{ended:?}");
    stage.model.results().into_iter().skip(before).flatten().collect()
}

#[test]
fn commands_in_the_sandbox_of_codex_read_and_cannot_write_the_store() {
    let Some(stage) = Stage::of(&CodexInSandbox) else { return };
    set_up(&stage);
    let tried = in_sandbox(&stage, &["echo inside > free.txt; touch .git/outside".to_owned()]);
    if stage.text("free.txt").is_empty() {
        return skip(&format!("a machine on which Codex can start its sandbox: {tried:?}"));
    }
    assert!(!stage.world.path(".git/outside").exists(), "the git folder is not read-only: {tried:?}");
    let _first = first_agent(&stage);
    let owner = holder(&stage);
    let program = stage.world.program();
    let lines = [
        "echo second > a.txt".to_owned(),
        format!("'{program}' locks; echo locks ended with $?"),
        format!("'{program}' board; echo board ended with $?"),
        format!("'{program}' acquire db; echo acquire ended with $?"),
        format!("'{program}' commit -m x a.txt; echo commit ended with $?"),
        format!("'{program}' wait --owner {owner} b.txt; echo wait ended with $?"),
    ];
    let told = in_sandbox(&stage, &lines);
    assert_eq!(stage.text("a.txt"), "first\n", "{told:#?}");
    let has = |texts: &[&str]| told.iter().any(|told| texts.iter().all(|text| told.contains(text)));
    assert!(has(&["a.txt", &owner]), "{told:#?}");
    assert!(has(&["locks ended with 0", "a.txt"]), "{told:#?}");
    assert!(has(&["board ended with 0", "a.txt"]), "{told:#?}");
    for verb in ["acquire", "commit", "wait"] {
        assert!(has(&[&format!("{verb} ended with "), "MCP"]), "{verb}: {told:#?}");
        assert!(!has(&[&format!("{verb} ended with 0")]), "{verb}: {told:#?}");
    }
}
