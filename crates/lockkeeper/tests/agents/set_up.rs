//! `lockkeeper init` in real harnesses: after it a held file is not edited; after `--remove` the same edit is made.

use std::fs;
use std::path::Path;

use lockkeeper_testing::Script;
use serde_json::json;

use crate::claims::{first_agent, holder, second_agent, second_edit};
use crate::harness::Harness;
use crate::stage::Stage;

each_harness!([init_protects_until_it_is_undone, the_tools_that_init_sets_up_know_who_calls]);

fn init_protects_until_it_is_undone(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let done = stage.world.json(&["init", harness.name()]);
    let file = done["harnesses"][0]["file"].as_str().expect("the file of the harness").to_owned();
    let file = Path::new(&file);
    let written = fs::read_to_string(file).unwrap();
    stage.world.run(["init", harness.name()]).code(0);
    assert_eq!(fs::read_to_string(file).unwrap(), written);
    be_patient(file, &written);

    let _first = first_agent(&stage);
    assert!(holder(&stage).starts_with(&format!("{}:", harness.name())));
    second_agent(&stage, second_edit(&stage));
    assert_eq!(stage.text("a.txt"), "first\n", "{:#?}", stage.model.results());
    assert!(stage.model.was_told(&holder(&stage)), "{:#?}", stage.model.results());
    second_agent(&stage, vec![harness.shell("echo second > a.txt")]);
    assert_eq!(stage.text("a.txt"), "first\n", "{:#?}", stage.model.results());

    stage.world.run(["init", "--remove", harness.name()]).code(0);
    assert!(!fs::read_to_string(file).unwrap_or_default().contains("lockkeeper"));
    second_agent(&stage, second_edit(&stage));
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
}

/// The server claims in the name of the agent that its hook has registered.
fn the_tools_that_init_sets_up_know_who_calls(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let done = stage.world.json(&["init", harness.name()]);
    let file = done["harnesses"][0]["file"].as_str().expect("the file of the harness").to_owned();
    be_patient(Path::new(&file), &fs::read_to_string(&file).unwrap());
    let claim = json!({ "paths": ["b.txt"], "note": "split the parser" });
    let script =
        Script::new().call(harness.mcp_tool("lockkeeper", "claim", &claim)).gate("claimed").say("bye");
    let mut session = stage.start(&script);
    stage.model.until_at("claimed");
    assert!(stage.model.was_told("\"granted\""), "{:#?}", stage.model.results());
    let owner = holder(&stage);
    assert!(owner.starts_with(&format!("{}:", harness.name())), "{owner}: {:#?}", stage.model.results());
    let board = stage.world.json(&["board"]);
    let agents = board["agents"].as_array().expect("a list of agents");
    assert_eq!(agents.len(), 1, "{board}");
    assert_eq!((&agents[0]["note"], &agents[0]["claims"]), (&json!("split the parser"), &json!(["b.txt"])));
    stage.model.open("claimed");
    session.end();
    stage.world.run(["init", "--remove"]).code(0);
}

/// Harnesses let an edit pass when its hook takes too long, as it may on a loaded machine.
fn be_patient(file: &Path, written: &str) {
    let patient =
        written.replace("10000", "60000").replace("\": 10,", "\": 60,").replace("\": 10\n", "\": 60\n");
    assert_ne!(patient, written);
    fs::write(file, patient).unwrap();
}
