//! Where `work`, `queue`, `stages` and `serve` write the status log.

use std::fs;
use std::path::Path;

use lockkeeper_testing::{ServerProcess, World, stages, until, world};

/// A command line that nobody else should see.
const SECRET: &str = "--password=hunter2-of-the-status-test";

/// A world in which nobody names a swarm.
fn alone() -> World {
    world!().with_state().set("AI_SWARM_DIR", "")
}

fn submit(world: &World) {
    world.run(["submit", "--id", "RQ-1", "--", "echo", SECRET]).code(0);
}

fn lines(folder: &Path) -> usize {
    fs::read_to_string(folder.join("status.log")).unwrap_or_default().lines().count()
}

/// The log that all repositories of the machine share has nothing of ours.
#[track_caller]
fn nothing_is_shared() {
    let shared = fs::read_to_string("/tmp/ai_swarm/status.log").unwrap_or_default();
    assert!(!shared.contains("hunter2-of-the-status-test") && !shared.contains("group-of-the-status-test"));
}

/// Requirement 57.
#[test]
fn a_worker_keeps_its_status_log_in_the_state_folder() {
    let world = alone();
    submit(&world);
    world.run(["work", "--drain", "--quiet"]).code(0);
    assert_eq!(lines(&world.path("state")), 2, "START and DONE");
    nothing_is_shared();
}

/// Requirement 57.
#[test]
fn the_queue_keeps_its_status_log_in_the_state_folder() {
    let world = alone();
    submit(&world);
    world.run(["queue", "run-next"]).code(0);
    assert_eq!(lines(&world.path("state")), 2, "START and DONE");
    nothing_is_shared();
}

/// Requirement 57.
#[test]
fn stages_keep_their_status_log_in_the_state_folder() {
    let world = alone();
    let file = "parallel_groups:\n  P1:\n    - {group_id: group-of-the-status-test, agents: [a]}\n";
    stages::execute(&world, file, "P1").code(0);
    assert!(lines(&world.path("state")) >= 2);
    nothing_is_shared();
}

/// Requirement 57.
#[test]
fn a_server_keeps_its_status_log_in_the_state_folder() {
    let world = alone();
    submit(&world);
    let _server = ServerProcess::start(&world, &["--work", "1"]);
    until("START and DONE are in the state folder", || lines(&world.path("state")) == 2);
    nothing_is_shared();
}

/// Requirement 57.
#[test]
fn a_swarm_that_is_named_gets_the_log_by_flag_variable_or_setting() {
    let named = world!().with_state();
    submit(&named);
    named.run(["work", "--drain", "--quiet"]).code(0);
    assert_eq!((lines(&named.beside("swarm")), lines(&named.path("state"))), (2, 0), "by AI_SWARM_DIR");

    let flagged = world!().with_state();
    submit(&flagged);
    flagged.run(["work", "--drain", "--quiet", "--status-dir", "mine"]).code(0);
    assert_eq!((lines(&flagged.path("mine")), lines(&flagged.beside("swarm"))), (2, 0), "by --status-dir");

    let project = alone().git().write("lockkeeper.toml", "swarm_dir = \"mine\"\n");
    submit(&project);
    let project = project.at("below");
    project.run(["work", "--drain", "--quiet"]).code(0);
    let folder = project.path("../mine");
    assert_eq!(lines(&folder), 2, "by the setting, relative to the project");
}
