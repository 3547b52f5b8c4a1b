//! Sub-agents: owners of their own, below their parent.

use lockkeeper_testing::Started;
use serde_json::json;

use crate::agents::{Agent, holders, repository};

/// Invariant 1.
#[test]
fn a_sub_agent_takes_what_its_parent_holds_and_siblings_exclude_each_other() {
    let world = repository();
    let parent = Agent::claude(&world, "s");
    let (one, two) = (parent.sub("one"), parent.sub("two"));
    parent.edit("src/a.rs").passes();
    one.edit("src/a.rs").passes();
    two.edit("src/a.rs").is_denied();
    let answer = parent.edit("src/a.rs");
    assert!(
        answer.is_denied().contains("your own sub-agent claude:s:one"),
        "both have it, one works on it: {answer:?}"
    );
    one.edit("src/a.rs").passes();
    two.edit("src/b.rs").passes();
    let answer = parent.edit("src/b.rs");
    assert!(answer.is_denied().contains("your own sub-agent claude:s:two"), "{answer:?}");
}

/// At the end of a sub-agent its claims go up; nobody slips in between.
#[test]
fn what_a_stopped_sub_agent_holds_goes_to_its_parent() {
    let world = repository();
    let parent = Agent::claude(&world, "s");
    let one = parent.sub("one");
    one.edit("src/a.rs").passes();
    let stranger = Agent::claude(&world, "x");
    stranger.edit("src/a.rs").is_denied();
    one.event_with(
        "SubagentStop",
        "background_tasks",
        json!([{ "id": "one", "type": "subagent", "status": "running" }]),
    );
    assert_eq!(holders(&world, "src/a.rs"), ["claude:s"]);
    parent.sub("two").edit("src/a.rs").passes();
}

/// The parent goes on when its sub-agent is done, and `wait` wakes it.
#[test]
fn a_parent_gets_its_file_back_when_its_sub_agent_stops() {
    let world = repository();
    let parent = Agent::claude(&world, "s");
    let one = parent.sub("one");
    parent.edit("src/a.rs").passes();
    one.edit("src/a.rs").passes();
    parent.edit("src/a.rs").is_denied();
    let mut waiter = Started::of(&mut world.lockkeeper(["wait", "--owner", "claude:s", "src/a.rs"]));
    waiter.until_stderr("waiting for src/a.rs");
    one.event("SubagentStop");
    waiter.wait().code(0).says("yours now: src/a.rs");
    assert_eq!(holders(&world, "src/a.rs"), ["claude:s"]);
    parent.edit("src/a.rs").passes();
}

/// A turn has not ended while a sub-agent works in the background.
#[test]
fn a_turn_with_work_in_the_background_goes_on() {
    let world = repository();
    let parent = Agent::claude(&world, "s");
    parent.edit("src/a.rs").passes();
    let running = json!([{ "id": "one", "type": "subagent", "status": "running" }]);
    parent.event_with("Stop", "background_tasks", running);
    assert_eq!(holders(&world, "src/a.rs"), ["claude:s"]);
    parent.event_with("Stop", "background_tasks", json!([]));
    assert!(holders(&world, "src/a.rs").is_empty());
}

/// An owner that only looks like a sub-agent is none.
#[test]
fn leases_by_hand_have_no_families() {
    let world = repository();
    world.acquire(&["--path", "src/a.rs", "--owner", "claude:s"]);
    world.run(["acquire", "--path", "src/a.rs", "--owner", "claude:s:one"]).code(75);
    Agent::claude(&world, "s").sub("one").edit("src/a.rs").is_denied();
}

/// The end of a session ends its sub-agents, too.
#[test]
fn a_session_ends_with_its_whole_family() {
    let world = repository();
    let parent = Agent::claude(&world, "s");
    parent.edit("src/a.rs").passes();
    parent.sub("one").edit("src/b.rs").passes();
    let other = Agent::claude(&world, "s2");
    other.edit("src/c.rs").passes();
    parent.event("SessionEnd");
    assert!(holders(&world, "src/a.rs").is_empty() && holders(&world, "src/b.rs").is_empty());
    assert_eq!(holders(&world, "src/c.rs"), ["claude:s2"]);
    let board = world.json(&["board"]);
    assert_eq!(board["agents"].as_array().unwrap().len(), 1, "{board}");
}
