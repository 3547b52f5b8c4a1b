//! Who calls: found out from the harness and its hook.

use lockkeeper_testing::{World, files};
use serde_json::{Value, json};

use crate::peer::{Harness, Peer, holders, repository};

fn file() -> Value {
    json!({ "paths": ["src/a.rs"] })
}

/// What a hook reads before a call of our tool `claim`.
fn before(name: &str, arguments: &Value) -> Value {
    json!({ "tool_name": name, "tool_input": arguments })
}

fn announced(world: &World) -> usize {
    let folder = world.path(".git/lockkeeper/agents/calls");
    if folder.is_dir() { files::names(&folder).len() } else { 0 }
}

fn claims(peer: &mut Peer, meta: &Value) {
    assert_eq!(peer.call_with("claim", &file(), meta)["granted"], true);
}

/// Claude sends the id of the call, which the hook of the sub-agent has seen.
#[test]
fn the_id_of_a_call_names_the_sub_agent_of_claude() {
    let world = repository();
    let harness = Harness::new(&world, "claude");
    let mut peer = harness.server();
    for (id, agent) in [("t1", json!({})), ("t2", json!({ "agent_id": "sub" }))] {
        let mut call = before("mcp__lockkeeper__claim", &file());
        call["tool_use_id"] = json!(id);
        call.as_object_mut().unwrap().extend(agent.as_object().unwrap().clone());
        harness.hook("PreToolUse", "s", &call);
    }
    claims(&mut peer, &json!({ "claudecode/toolUseId": "t2" }));
    assert_eq!(holders(&world, "src/a.rs"), ["claude:s:sub"]);
    let held = peer.call_with("claim", &file(), &json!({ "claudecode/toolUseId": "t1" }));
    assert!(held["next"].as_str().unwrap().contains("Your own sub-agent"), "{held}");
    peer.finish();
}

/// One process of Codex serves many sessions, so the process alone says nothing.
#[test]
fn codex_names_its_session_and_thread() {
    let world = repository();
    let harness = Harness::new(&world, "codex");
    let mut peer = harness.server();
    let call = before("mcp__lockkeeper__claim", &file());
    harness.hook("PreToolUse", "s1", &call);
    harness.hook("PreToolUse", "s2", &call);
    claims(&mut peer, &json!({ "sessionId": "s2", "threadId": "s2", "callId": "c1" }));
    assert_eq!(holders(&world, "src/a.rs"), ["codex:s2"]);
    let mut of_agent = call;
    of_agent["agent_id"] = json!("t9");
    harness.hook("PreToolUse", "s2", &of_agent);
    claims(&mut peer, &json!({ "sessionId": "s2", "threadId": "t9", "callId": "c2" }));
    assert_eq!(holders(&world, "src/a.rs"), ["codex:s2", "codex:s2:t9"]);
    let held = peer.call_with("claim", &file(), &json!({ "sessionId": "s1", "threadId": "s1" }));
    assert_eq!(held["granted"], false, "another session of the same process");
    peer.finish();
}

/// Without a trusted hook, Codex still says which session calls, and the claims end with the server.
#[test]
fn a_session_of_codex_without_a_hook_ends_with_the_server() {
    let world = repository();
    let mut peer = Peer::new(&world);
    claims(&mut peer, &json!({ "sessionId": "s", "threadId": "s" }));
    assert_eq!(holders(&world, "src/a.rs"), ["codex:s"]);
    peer.finish();
    assert_eq!(holders(&world, "src/a.rs"), [""; 0]);
}

/// Gemini sends nothing: the announcement of its hook fits the process that started the server.
#[test]
fn an_announcement_of_the_same_process_names_the_caller() {
    let world = repository();
    let (harness, other) = (Harness::new(&world, "gemini"), Harness::new(&world, "gemini"));
    let mut peer = harness.server();
    let call = before("mcp_lockkeeper_claim", &file());
    harness.hook("BeforeTool", "s", &call);
    other.hook("BeforeTool", "x", &call);
    claims(&mut peer, &json!({}));
    assert_eq!(holders(&world, "src/a.rs"), ["gemini:s"]);
    assert_eq!(announced(&world), 2);
    harness.hook("AfterTool", "s", &call);
    assert_eq!(announced(&world), 1, "the call has ended");
    peer.finish();
}

#[test]
fn two_sessions_that_make_the_same_call_are_refused_with_the_way_out() {
    let world = repository();
    let harness = Harness::new(&world, "gemini");
    let mut peer = harness.server();
    let call = before("mcp_lockkeeper_claim", &file());
    harness.hook("BeforeTool", "one", &call);
    harness.hook("BeforeTool", "two", &call);
    let why = peer.refused("claim", &file(), &json!({}));
    assert!(why.contains("gemini:one and gemini:two") && why.contains("Called again"), "{why}");
    assert_eq!(holders(&world, "src/a.rs"), [""; 0]);
    harness.hook("AfterTool", "one", &call);
    claims(&mut peer, &json!({}));
    assert_eq!(holders(&world, "src/a.rs"), ["gemini:two"]);
    peer.finish();
}

/// The process has agents with hooks, and none of them makes this call.
#[test]
fn a_call_that_no_hook_has_announced_is_refused() {
    let world = repository();
    let harness = Harness::new(&world, "gemini");
    let mut peer = harness.server();
    harness.hook("BeforeTool", "s", &before("mcp_lockkeeper_claim", &json!({ "paths": ["src/b.rs"] })));
    let why = peer.refused("claim", &file(), &json!({}));
    assert!(why.contains("has not announced this call") && why.contains("lockkeeper doctor"), "{why}");
    assert_eq!(holders(&world, "src/a.rs"), [""; 0]);
    assert_eq!(peer.call("board", &json!({}))["agents"][0]["owner"], "gemini:s", "reading needs no name");
    peer.finish();
}

#[test]
fn without_a_hook_every_server_has_an_owner_of_its_own() {
    let world = repository();
    let (mut one, mut two) = (Peer::new(&world), Peer::new(&world));
    claims(&mut one, &json!({}));
    assert_eq!(two.call("claim", &file())["granted"], false);
    assert!(holders(&world, "src/a.rs")[0].starts_with("mcp:"));
    // The owner that the environment names belongs to the shell of another agent.
    let mut command = world.lockkeeper(["mcp"]);
    let (mut three, _) =
        Peer::greeted(command.env("LOCKKEEPER_OWNER", holders(&world, "src/a.rs")[0].clone()), "2025-11-25");
    assert_eq!(three.call("claim", &file())["granted"], false);
    for peer in [one, two, three] {
        peer.finish();
    }
}

/// Announcements of calls that were never made do not pile up.
#[test]
fn old_announcements_are_removed_and_do_not_count() {
    let world = repository();
    let harness = Harness::new(&world, "gemini");
    let mut peer = harness.server();
    harness.hook("BeforeTool", "old", &before("mcp_lockkeeper_claim", &file()));
    let folder = world.path(".git/lockkeeper/agents/calls");
    for name in files::names(&folder) {
        let path = folder.join(name);
        let mut call: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        call["at"] = json!(call["at"].as_i64().unwrap() - 7200);
        files::write(&path, call.to_string());
    }
    peer.refused("claim", &file(), &json!({}));
    files::write(&folder.join("junk.json"), "junk");
    harness.hook("BeforeTool", "new", &before("mcp_lockkeeper_claim", &file()));
    assert_eq!(announced(&world), 1);
    claims(&mut peer, &json!({}));
    assert_eq!(holders(&world, "src/a.rs"), ["gemini:new"]);
    peer.finish();
}
