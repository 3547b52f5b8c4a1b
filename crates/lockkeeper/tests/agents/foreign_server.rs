//! A tool of an MCP server that is not ours writes files: a held one is not written, a free one becomes the agent's.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use lockkeeper_testing::{Script, files, skip};
use serde_json::json;

use crate::claims::{first_agent, holder, second_agent, set_up};
use crate::harness::Harness;
use crate::stage::Stage;

each_harness!([
    a_tool_of_another_server_writes_without_a_hook,
    a_tool_of_another_server_does_not_write_a_held_file
]);

/// A server with one tool, `write_file`.
const SERVER: &str = r#"#!/usr/bin/env python3
import json, sys
tool = {"name": "write_file", "description": "writes a file",
        "inputSchema": {"type": "object", "required": ["path", "content"],
                        "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    method, params = request["method"], request.get("params", {})
    answer = {"jsonrpc": "2.0", "id": request["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                            "serverInfo": {"name": "files", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [tool]}
    elif method == "tools/call":
        with open(params["arguments"]["path"], "w") as file:
            file.write(params["arguments"]["content"])
        answer["result"] = {"content": [{"type": "text", "text": "written"}]}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "method not found"}
    print(json.dumps(answer), flush=True)
"#;

/// A stage whose harness knows the server. None, and a visible note, if that is not possible here.
fn with_server(harness: &'static dyn Harness) -> Option<Stage> {
    let stage = Stage::of(harness)?;
    if Command::new("python3").arg("--version").output().is_err() {
        skip("python3, in which the server is written");
        return None;
    }
    let program: PathBuf = stage.world.beside("files-server");
    files::write(&program, SERVER);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    if !harness.add_server(&stage.world, "files", &program) {
        skip(&format!("{}: settings for an MCP server", harness.name()));
        return None;
    }
    Some(stage)
}

fn write_file(stage: &Stage, file: &str, line: &str) -> lockkeeper_testing::Call {
    let input = json!({ "path": stage.world.path(file), "content": format!("{line}\n") });
    stage.harness.mcp_tool("files", "write_file", &input)
}

/// The control: the tool really writes.
fn a_tool_of_another_server_writes_without_a_hook(harness: &'static dyn Harness) {
    let Some(stage) = with_server(harness) else { return };
    let _first = first_agent(&stage);
    second_agent(&stage, vec![write_file(&stage, "a.txt", "second")]);
    assert_eq!(stage.text("a.txt"), "second\n", "{:#?}", stage.model.results());
}

fn a_tool_of_another_server_does_not_write_a_held_file(harness: &'static dyn Harness) {
    let Some(stage) = with_server(harness) else { return };
    set_up(&stage);
    let first = first_agent(&stage);
    let owner = holder(&stage);
    second_agent(&stage, vec![write_file(&stage, "a.txt", "second")]);
    assert_eq!(stage.text("a.txt"), "first\n", "{:#?}", stage.model.results());
    assert!(stage.model.was_told(&owner), "{owner}: {:#?}", stage.model.results());
    stage.model.open("first");
    let ended = first.wait();
    assert!(ended.succeeded(), "{ended:?}");
    let script = Script::new().call(write_file(&stage, "b.txt", "third")).gate("third").say("bye");
    let third = stage.start(&script);
    stage.model.until_at("third");
    assert_eq!(stage.text("b.txt"), "third\n", "{:#?}", stage.model.results());
    assert!(holder(&stage).starts_with(&format!("{}:", harness.name())));
    stage.model.open("third");
    let ended = third.wait();
    assert!(ended.succeeded(), "{ended:?}");
}
