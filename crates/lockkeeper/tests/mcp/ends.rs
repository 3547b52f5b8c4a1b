//! Ends: what a server held is free when its input ends, or when it is killed.

use lockkeeper_testing::until;
use serde_json::json;

use crate::peer::{Harness, Peer, holders, repository};

#[test]
fn the_end_of_the_input_ends_what_only_this_server_held() {
    let world = repository();
    let mut peer = Peer::new(&world);
    assert_eq!(peer.call("claim", &json!({ "paths": ["src/a.rs"], "names": ["db"] }))["granted"], true);
    peer.finish();
    assert_eq!(world.json(&["locks"])["leases"], json!([]));
    assert_eq!(world.json(&["board"])["agents"], json!([]));
}

/// The server does not wait for the wait.
#[test]
fn the_end_of_the_input_ends_a_wait_and_its_place() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &json!({ "paths": ["src/a.rs"] }));
    two.ask("tools/call", &json!({ "name": "wait", "arguments": { "paths": ["src/a.rs"] } }));
    until("it waits", || !one.call("board", &json!({}))["waiting"].as_array().unwrap().is_empty());
    two.finish();
    assert_eq!(one.call("board", &json!({}))["waiting"], json!([]));
    assert_eq!(holders(&world, "src/a.rs").len(), 1);
    one.finish();
}

#[test]
fn a_killed_server_holds_nothing() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    one.call("claim", &json!({ "paths": ["src/a.rs"] }));
    one.kill();
    assert_eq!(two.call("claim", &json!({ "paths": ["src/a.rs"] }))["granted"], true);
    two.finish();
}

/// The agent goes on without its server.
#[test]
fn an_agent_with_a_hook_keeps_its_claims() {
    let world = repository();
    let harness = Harness::new(&world, "claude");
    let mut peer = harness.server();
    let call = json!({ "tool_name": "mcp__lockkeeper__claim", "tool_input": { "paths": ["src/a.rs"] }, "tool_use_id": "t1" });
    harness.hook("PreToolUse", "s", &call);
    peer.call_with("claim", &json!({ "paths": ["src/a.rs"] }), &json!({ "claudecode/toolUseId": "t1" }));
    peer.finish();
    assert_eq!(holders(&world, "src/a.rs"), ["claude:s"]);
    assert_eq!(harness.edit("s", "src/a.rs"), "", "its edit passes");
    assert!(harness.edit("other", "src/a.rs").contains("deny"));
}
