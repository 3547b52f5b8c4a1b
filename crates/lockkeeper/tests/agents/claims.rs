//! `lockkeeper hook` in real harnesses: edits claim files, and what another agent has is not edited.

use std::fs;
use std::path::PathBuf;

use lockkeeper_testing::{Call, Script, Started, files, skip, until, until_seen};
use serde_json::Value;

use crate::harness::Harness;
use crate::stage::Stage;
use crate::test_hook::LIMIT;

each_harness!([
    two_agents_overwrite_each_other_without_a_hook,
    a_free_file_is_edited_and_claimed_until_the_session_ends,
    an_edit_of_a_held_file_is_not_made_and_the_model_is_told_who_has_it,
    a_shell_write_to_a_held_file_is_not_made,
    two_sub_agents_do_not_edit_one_file,
    who_was_denied_is_told_when_the_file_is_free,
    who_waits_gets_the_file,
    kill_9_frees_what_an_agent_has,
    edits_are_made_when_the_program_is_gone,
    edits_are_made_when_the_store_is_damaged,
]);

/// Sets the harness up, and lets the repository take part.
pub fn set_up(stage: &Stage) {
    take_part(stage);
    stage.harness.set_up(&stage.world, &command_line(stage.world.program()), LIMIT);
}

/// Lets the repository take part.
pub fn take_part(stage: &Stage) {
    fs::create_dir_all(state(stage, "agents")).unwrap();
}

/// The line in the settings of a harness. It passes when the program is gone.
pub fn command_line(program: &str) -> String {
    format!("[ -x '{program}' ] || exit 0; exec '{program}' hook")
}

fn state(stage: &Stage, name: &str) -> PathBuf {
    stage.world.path(".git/lockkeeper").join(name)
}

/// A session that has made `a.txt` with the line `first`, and does not end before the gate `first` is open.
pub fn first_agent(stage: &Stage) -> Started {
    let edit = stage.harness.create(&stage.world.path("a.txt"), "first");
    let session = stage.start(&Script::new().call(edit).gate("first").say("bye"));
    stage.model.until_at("first");
    assert_eq!(stage.text("a.txt"), "first\n", "{:#?}", stage.model.results());
    session
}

/// The calls that replace the line of the first agent.
pub fn second_edit(stage: &Stage) -> Vec<Call> {
    stage.harness.replace(&stage.world.path("a.txt"), "first", "second")
}

/// Runs a second agent to its end.
pub fn second_agent(stage: &Stage, calls: Vec<Call>) {
    let ended = stage.run(&Script::new().then(calls).say("bye"));
    assert!(ended.succeeded(), "{ended:?}");
}

/// Who holds what. The lease of a dead process holds nothing: it is listed until somebody wants the file.
fn leases(stage: &Stage) -> Vec<Value> {
    let listing = stage.world.json(&["locks"]);
    let leases = listing["leases"].as_array().expect("a list of leases").iter();
    leases.filter(|lease| lease["state"] != "dead").cloned().collect()
}

/// The owner of the only lease.
pub fn holder(stage: &Stage) -> String {
    let leases = leases(stage);
    assert_eq!(leases.len(), 1, "{leases:#?}");
    leases[0]["owner"].as_str().expect("a lease has an owner").to_owned()
}

fn two_agents_overwrite_each_other_without_a_hook(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    let _first = first_agent(&stage);
    second_agent(&stage, second_edit(&stage));
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
    second_agent(&stage, vec![harness.shell("echo third > a.txt")]);
    assert_eq!(stage.text("a.txt"), "third\n", "{:#?}", stage.model.results());
}

fn a_free_file_is_edited_and_claimed_until_the_session_ends(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    let session = first_agent(&stage);
    assert!(holder(&stage).starts_with(&format!("{}:", harness.name())), "{:#?}", leases(&stage));
    stage.model.open("first");
    let ended = session.wait();
    assert!(ended.succeeded(), "{ended:?}");
    until_seen("no leases are left", || leases(&stage), Vec::is_empty);
}

fn an_edit_of_a_held_file_is_not_made_and_the_model_is_told_who_has_it(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    let _first = first_agent(&stage);
    let owner = holder(&stage);
    second_agent(&stage, second_edit(&stage));
    assert_eq!(stage.text("a.txt"), "first\n");
    let told = stage.model.results();
    let names_both = |result: &String| result.contains("a.txt") && result.contains(&owner);
    assert!(told.iter().flatten().any(names_both), "{owner}: {told:#?}");
    assert_eq!(holder(&stage), owner);
}

fn a_shell_write_to_a_held_file_is_not_made(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    let _first = first_agent(&stage);
    second_agent(&stage, vec![harness.shell("echo second > a.txt"), harness.shell("echo second > b.txt")]);
    assert_eq!((stage.text("a.txt"), stage.text("b.txt")), ("first\n".into(), "second\n".into()));
    assert!(stage.model.was_told(&holder(&stage)), "{:#?}", stage.model.results());
}

fn two_sub_agents_do_not_edit_one_file(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    let edit = harness.create(&stage.world.path("a.txt"), "first");
    let first = Script::new().call(edit).gate("first").say("bye");
    let second = Script::new().gate("second").then(second_edit(&stage)).gate("denied").say("bye");
    let start = |name, script: &Script| harness.sub_agent(name, &script.prompt());
    let (Some(first), Some(second)) = (start("first", &first), start("second", &second)) else {
        return skip("a harness whose hooks say which sub-agent calls");
    };
    let session = stage.start(&Script::new().together([first, second]).gate("all").say("bye"));
    stage.model.until_at("first");
    stage.model.until_at("second");
    let owner = holder(&stage);
    stage.model.open("second");
    stage.model.until_at("denied");
    assert_eq!(stage.text("a.txt"), "first\n");
    assert!(stage.model.was_told(&owner), "{owner}: {:#?}", stage.model.results());
    for gate in ["first", "denied", "all"] {
        stage.model.open(gate);
    }
    let ended = session.wait();
    assert!(ended.succeeded(), "{ended:?}");
    until_seen("no leases are left", || leases(&stage), Vec::is_empty);
}

fn who_was_denied_is_told_when_the_file_is_free(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    let first = first_agent(&stage);
    let denied = Script::new().then(second_edit(&stage)).gate("denied");
    let second = stage.start(&denied.call(harness.shell("true")).then(second_edit(&stage)).say("bye"));
    stage.model.until_at("denied");
    assert_eq!(stage.text("a.txt"), "first\n");
    let news = "a.txt is yours now";
    assert!(!stage.model.has_read(news));
    stage.model.open("first");
    let ended = first.wait();
    assert!(ended.succeeded(), "{ended:?}");
    stage.model.open("denied");
    let ended = second.wait();
    assert_eq!(stage.text("a.txt"), "second\n", "{ended:?}");
    assert!(stage.model.has_read(news), "{:#?}", stage.model.results());
}

fn who_waits_gets_the_file(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    let first = first_agent(&stage);
    let wait = harness.shell(&format!("'{}' wait a.txt && echo it is mine", stage.world.program()));
    let calls = second_edit(&stage).into_iter().chain([wait]).chain(second_edit(&stage));
    let second = stage.start(&Script::new().then(calls).say("bye"));
    stage.world.until_waiting(1);
    assert_eq!(stage.text("a.txt"), "first\n");
    stage.model.open("first");
    let ended = first.wait();
    assert!(ended.succeeded(), "{ended:?}");
    let ended = second.wait();
    assert_eq!(stage.text("a.txt"), "second\n", "{ended:?} {:#?}", stage.model.results());
    assert!(stage.model.was_told("it is mine"), "{:#?}", stage.model.results());
}

fn kill_9_frees_what_an_agent_has(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    let mut first = first_agent(&stage);
    let owner = holder(&stage);
    first.kill();
    second_agent(&stage, second_edit(&stage));
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
    until("the dead owner holds nothing", || leases(&stage).iter().all(|lease| lease["owner"] != *owner));
}

fn edits_are_made_when_the_program_is_gone(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    take_part(&stage);
    harness.set_up(&stage.world, &command_line("/nowhere/lockkeeper"), LIMIT);
    let _first = first_agent(&stage);
    second_agent(&stage, second_edit(&stage));
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
}

fn edits_are_made_when_the_store_is_damaged(harness: &'static dyn Harness) {
    let Some(stage) = Stage::of(harness) else { return };
    set_up(&stage);
    files::write(&state(&stage, "leases.db"), "this is no database");
    let _first = first_agent(&stage);
    second_agent(&stage, second_edit(&stage));
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
    let log = fs::read_to_string(state(&stage, "hooks.log")).unwrap_or_default();
    assert!(log.contains(harness.name()), "{log:?}");
}
