//! `demo`.

use lockkeeper_testing::{files, world};

#[test]
fn the_demo_shows_every_step_and_leaves_nothing_behind() {
    let world = world!();
    let temp = world.path("temp");
    std::fs::create_dir(&temp).unwrap();
    let world = world.set("TMPDIR", temp.as_os_str());
    let shown = world.run(["demo"]).code(0).stdout();
    for part in [
        "held by agent:ann (rename User), both match src/api/user.rs",
        "$ kill -9 ",
        "Ben's command runs within ",
        "agent:ben waits for db of agent:ann, and agent:ann waits for cache of agent:ben",
        "4 succeeded, 0 did not",
    ] {
        assert!(shown.contains(part), "{part} is missing in:\n{shown}");
    }
    assert!(files::names(&temp).is_empty());
}

/// Leases around the demo and settings of the user do not change it.
#[test]
fn the_demo_runs_under_a_lease_and_prints_json() {
    let world = world!().with_state();
    let world = world.set("LOCKKEEPER_OWNER", "agent:ann").set("LOCKKEEPER_WAIT", "1ms");
    let program = world.program().to_owned();
    let shown = world.run(["exec", "db", "--", &program, "--json", "demo"]).code(0).json();
    assert_eq!(shown["status"], "done");
    assert_eq!(shown["steps"].as_array().unwrap().len(), 4);
    assert_eq!(shown["steps"][0]["commands"][0]["exit_code"], 75);
}
