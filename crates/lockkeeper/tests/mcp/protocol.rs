//! The protocol: versions, lists, errors.

use lockkeeper_testing::world;
use serde_json::{Value, json};

use crate::peer::{Peer, holders, repository};

const TOOLS: [&str; 9] = ["board", "check", "claim", "commit", "hand_over", "note", "release", "wait", "why"];

#[test]
fn clients_with_a_greeting_get_the_version_that_they_ask_for() {
    let world = repository();
    for version in ["2025-06-18", "2025-11-25"] {
        let (peer, hello) = Peer::greeted(&mut world.lockkeeper(["mcp"]), version);
        assert_eq!(hello["protocolVersion"], version);
        assert_eq!(hello["serverInfo"]["name"], "lockkeeper");
        assert_eq!(hello["instructions"].as_str().unwrap().lines().count(), 5, "{hello}");
        peer.finish();
    }
}

/// From 2026-07-28 each request says its version, and there is no greeting.
#[test]
fn clients_without_a_greeting_are_answered() {
    let world = repository();
    let mut peer = Peer::silent(&mut world.lockkeeper(["mcp"]));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = peer.request("server/discover", &json!({ "_meta": meta }));
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    for version in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        assert!(versions.contains(&json!(version)), "{found}");
    }
    let listed = peer.request("tools/list", &json!({ "_meta": meta }));
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), TOOLS.len(), "{listed}");
    let claimed = peer.call_with("claim", &json!({ "paths": ["src/a.rs"] }), &meta);
    assert_eq!(claimed["granted"], true);
    peer.finish();
}

/// Codex refuses unattended calls of tools without these annotations.
#[test]
fn every_tool_has_four_annotations_and_both_schemas() {
    let world = repository();
    let mut peer = Peer::new(&world);
    let listed = peer.request("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, TOOLS);
    for tool in tools {
        let (name, hints) = (tool["name"].as_str().unwrap(), &tool["annotations"]);
        assert_eq!(hints["readOnlyHint"], matches!(name, "board" | "check" | "why"), "{tool}");
        assert_eq!(
            (&hints["destructiveHint"], &hints["openWorldHint"]),
            (&json!(false), &json!(false)),
            "{tool}"
        );
        assert!(hints["idempotentHint"].is_boolean(), "{tool}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        assert!(tool["inputSchema"]["properties"]["owner"].is_null(), "{tool}");
    }
    peer.finish();
}

#[test]
fn a_malformed_call_is_an_error_of_the_protocol_and_changes_nothing() {
    let world = repository();
    let mut peer = Peer::new(&world);
    let long = "x".repeat(5000);
    let many = vec!["x"; 101];
    for (tool, arguments, says) in [
        ("break", json!({}), "there is no tool `break`"),
        ("claim", json!({}), "at least one path"),
        ("claim", json!({ "paths": [] }), "at least one path"),
        ("claim", json!({ "paths": many }), "more than 100"),
        ("claim", json!({ "paths": "src/a.rs" }), "invalid type"),
        ("claim", json!({ "paths": ["src/a.rs"], "owner": "claude:x" }), "unknown field `owner`"),
        ("claim", json!({ "paths": [long] }), "more than 4096 bytes"),
        ("claim", json!({ "paths": ["src/a.rs"], "note": "n".repeat(201) }), "more than 200"),
        ("hand_over", json!({ "paths": ["src/a.rs"] }), "missing field `to`"),
        ("note", json!({}), "missing field `text`"),
        ("release", json!({}), "at least one path"),
        ("wait", json!({ "paths": ["src/a.rs"], "seconds": 51 }), "more than 50"),
        ("wait", json!({ "paths": ["src/a.rs"], "seconds": -1 }), "invalid value"),
        ("why", json!({ "target": 1 }), "invalid type"),
    ] {
        let answer = peer.request("tools/call", &json!({ "name": tool, "arguments": arguments }));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{says}: {answer}");
    }
    assert_eq!(holders(&world, "src/a.rs"), [""; 0]);
    assert_eq!(peer.call("board", &json!({}))["agents"], json!([]), "nobody was registered");
    peer.finish();
}

#[test]
fn junk_on_the_input_ends_nothing() {
    let world = repository();
    let mut peer = Peer::new(&world);
    for junk in
        ["junk", "{", "[]", "{}", "null", r#"{"jsonrpc":"2.0","id":"x"}"#, r#"{"jsonrpc":"1.0","id":1}"#]
    {
        peer.send_line(junk);
    }
    assert_eq!(peer.call("claim", &json!({ "paths": ["src/a.rs"] }))["granted"], true);
    peer.finish();
}

#[test]
fn the_board_is_a_resource_and_there_is_a_prompt() {
    let world = repository();
    let mut peer = Peer::new(&world);
    peer.call("claim", &json!({ "paths": ["src/a.rs"] }));
    let listed = peer.request("resources/list", &json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], "lockkeeper://board", "{listed}");
    let read = peer.request("resources/read", &json!({ "uri": "lockkeeper://board" }));
    let board: Value = serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(board["agents"][0]["claims"], json!(["src/a.rs"]), "{read}");
    assert!(peer.request("resources/read", &json!({ "uri": "file:///etc/passwd" }))["error"].is_object());
    let prompt = peer.request("prompts/get", &json!({ "name": "coordinate" }));
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("`hand_over`"), "{prompt}");
    assert!(peer.request("prompts/get", &json!({ "name": "x" }))["error"].is_object());
    peer.finish();
}

#[test]
fn a_repository_that_takes_no_part_is_named_with_the_way_out() {
    let world = world!().git().write("a", "a");
    let mut peer = Peer::new(&world);
    let why = peer.refused("claim", &json!({ "paths": ["a"] }), &json!({}));
    assert!(why.contains("`a` is not a file of a repository") && why.contains("lockkeeper init"), "{why}");
    let why = peer.refused("note", &json!({ "text": "x" }), &json!({}));
    assert!(why.contains("agents are not coordinated") && why.contains("lockkeeper init"), "{why}");
    assert_eq!(peer.call("board", &json!({})), json!({ "agents": [], "waiting": [] }));
    peer.finish();
    assert!(!world.path(".git/lockkeeper").exists());
}
