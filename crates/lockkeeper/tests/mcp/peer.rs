//! A client that speaks JSON-RPC by itself, and a harness whose hook runs before its calls.

use std::io::Write;
use std::process::{Command, Stdio};

use lockkeeper_testing::{Started, World, world};
use serde_json::{Value, json};

/// A repository that takes part, with two files.
pub fn repository() -> World {
    let world = world!().git().write("src/a.rs", "a\n").write("src/b.rs", "b\n");
    world.git_run(&["config", "user.name", "t"]);
    world.git_run(&["config", "user.email", "t@t"]);
    std::fs::create_dir_all(world.path(".git/lockkeeper/agents")).unwrap();
    world.set("LOCKKEEPER_AGENTS_LIMIT", "60s")
}

/// Who holds a path or name now.
pub fn holders(world: &World, target: &str) -> Vec<String> {
    let listing = world.json(&["locks"]);
    let leases = listing["leases"].as_array().unwrap();
    let holds = |lease: &&Value| {
        let mut resources = lease["resources"].as_array().unwrap().iter();
        resources.any(|resource| resource["path"] == target || resource["name"] == target)
            && !matches!(lease["state"].as_str(), Some("dead" | "expired"))
    };
    leases.iter().filter(holds).map(|lease| lease["owner"].as_str().unwrap().to_owned()).collect()
}

/// A server and its client.
pub struct Peer {
    server: Started,
    last: u64,
    /// What came besides answers.
    pub notifications: Vec<Value>,
}

impl Peer {
    /// Starts a server and says hello.
    pub fn new(world: &World) -> Self {
        Self::greeted(&mut world.lockkeeper(["mcp"]), "2025-06-18").0
    }

    /// Starts a server. Returns what it answers to the greeting, too.
    pub fn greeted(command: &mut Command, version: &str) -> (Self, Value) {
        let mut peer = Self::silent(command);
        let client = json!({ "name": "raw", "version": "1" });
        let hello = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let answer = peer.request("initialize", &hello);
        peer.notify("notifications/initialized", &json!({}));
        (peer, answer["result"].clone())
    }

    /// Starts a server, and says nothing.
    pub fn silent(command: &mut Command) -> Self {
        Self { server: Started::of(command), last: 0, notifications: Vec::new() }
    }

    pub fn send_line(&mut self, line: &str) {
        self.server.send(&format!("{line}\n"));
    }

    pub fn notify(&mut self, method: &str, params: &Value) {
        self.send_line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request. Returns its id.
    pub fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params });
        self.send_line(&request.to_string());
        self.last
    }

    /// The next message. Every line is one.
    pub fn message(&mut self) -> Value {
        let line = self.server.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// The answer to a request.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.message();
            if message["id"] == id {
                return message;
            }
            self.notifications.push(message);
        }
    }

    pub fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Calls a tool. Returns the result as it is.
    pub fn result(&mut self, tool: &str, arguments: &Value, meta: &Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let answer = self.request("tools/call", &params);
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// Calls a tool. Returns what it says, which is the same as text.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.call_with(tool, arguments, &json!({}))
    }

    #[track_caller]
    pub fn call_with(&mut self, tool: &str, arguments: &Value, meta: &Value) -> Value {
        let result = self.result(tool, arguments, meta);
        assert_eq!(result["isError"], false, "{result}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        text
    }

    /// Calls a tool that refuses. Returns why.
    #[track_caller]
    pub fn refused(&mut self, tool: &str, arguments: &Value, meta: &Value) -> String {
        let result = self.result(tool, arguments, meta);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Ends the input. The server ends well.
    pub fn finish(mut self) {
        self.server.close_input();
        assert_eq!(self.server.end().code(), Some(0));
    }

    pub fn kill(&mut self) {
        self.server.kill();
    }
}

/// A process that stands for a harness: it runs hooks, and starts a server.
pub struct Harness<'w> {
    world: &'w World,
    kind: &'static str,
    process: Started,
}

impl<'w> Harness<'w> {
    pub fn new(world: &'w World, kind: &'static str) -> Self {
        Self { world, kind, process: Started::of(&mut world.command("cat")) }
    }

    pub fn server(&self) -> Peer {
        let mut command = self.world.lockkeeper(["mcp"]);
        Peer::greeted(command.env("LOCKKEEPER_PID", self.process.pid().to_string()), "2025-11-25").0
    }

    /// Runs the hook before or after a tool of one session. Returns what it prints.
    pub fn hook(&self, event: &str, session: &str, more: &Value) -> String {
        let cwd = self.world.cwd();
        let mut input = json!({ "session_id": session, "cwd": cwd, "hook_event_name": event });
        match self.kind {
            "claude" => input["transcript_path"] = json!(format!("/u/.claude/projects/x/{session}.jsonl")),
            "codex" => input["turn_id"] = json!("turn-1"),
            _ => {}
        }
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut command = self.world.lockkeeper(["hook"]);
        command.env("LOCKKEEPER_PID", self.process.pid().to_string());
        command.env("CLAUDE_CODE_SESSION_ID", session).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut hook = command.spawn().unwrap();
        hook.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        let output = hook.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The hook before an edit with Claude's tool.
    pub fn edit(&self, session: &str, path: &str) -> String {
        let file = self.world.cwd().join(path);
        self.hook("PreToolUse", session, &json!({ "tool_name": "Edit", "tool_input": { "file_path": file } }))
    }
}
