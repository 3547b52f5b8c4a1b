//! `lockkeeper init` in real harnesses: after it a held file is not edited; after `--remove` the same edit is made.

use std::fs;
use std::path::Path;

use crate::claims::{first_agent, holder, second_agent, second_edit};
use crate::harness::Harness;
use crate::stage::Stage;

each_harness!([init_protects_until_it_is_undone]);

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

/// Harnesses let an edit pass when its hook takes too long, as it may on a loaded machine.
fn be_patient(file: &Path, written: &str) {
    let patient =
        written.replace("10000", "60000").replace("\": 10,", "\": 60,").replace("\": 10\n", "\": 60\n");
    assert_ne!(patient, written);
    fs::write(file, patient).unwrap();
}
