//! The packages for Claude Code and Gemini CLI, installed by the real programs.

use std::path::{Path, PathBuf};

use lockkeeper_testing::files;
use serde_json::json;

use crate::claims::{first_agent, holder, second_agent, second_edit, take_part};
use crate::harness::{Claude, Gemini};
use crate::stage::Stage;

fn packages() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packages").canonicalize().unwrap()
}

/// With the package alone, a held file is not edited.
fn protects(stage: &Stage) {
    take_part(stage);
    let _first = first_agent(stage);
    let owner = holder(stage);
    assert!(owner.starts_with(&format!("{}:", stage.harness.name())), "{owner}");
    second_agent(stage, second_edit(stage));
    assert_eq!(stage.text("a.txt"), "first\n", "{:#?}", stage.model.results());
    assert!(stage.model.was_told(&owner), "{:#?}", stage.model.results());
}

#[test]
fn the_plugin_is_valid_and_protects() {
    let Some(stage) = Stage::of(&Claude) else { return };
    let folder = packages();
    for path in [folder.clone(), folder.join("claude")] {
        stage.manage(&["plugin", "validate", path.to_str().unwrap()]).code(0);
    }
    stage.manage(&["plugin", "marketplace", "add", folder.to_str().unwrap()]).code(0);
    stage.manage(&["plugin", "install", "lockkeeper@lockkeeper"]).code(0);
    protects(&stage);
}

#[test]
fn the_extension_is_valid_and_protects() {
    let Some(stage) = Stage::of(&Gemini) else { return };
    let folder = packages().join("gemini");
    let folder = folder.to_str().unwrap();
    stage.manage(&["extensions", "validate", folder]).code(0);
    // It asks the user whether it may trust the folder from which it installs.
    let trusted = json!({ folder: "TRUST_FOLDER" });
    files::write(&stage.world.home().join(".gemini/trustedFolders.json"), trusted.to_string());
    stage.manage(&["extensions", "install", "--consent", folder]).code(0);
    protects(&stage);
}
