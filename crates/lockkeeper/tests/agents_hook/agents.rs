//! Agents that are only processes: each sends the inputs of its harness.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use lockkeeper_testing::{Finished, Started, World, world};
use serde_json::{Value, json};

/// A repository that takes part, with two committed files.
pub fn repository() -> World {
    let world = world!().git().write("src/a.rs", "a\n").write("src/b.rs", "b\n");
    world.git_run(&["add", "-A"]);
    world.git_run(&["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "files"]);
    std::fs::create_dir_all(world.path(".git/lockkeeper/agents")).unwrap();
    // A loaded machine must not let a call pass because of its time.
    world.set("LOCKKEEPER_AGENTS_LIMIT", "60s")
}

/// One agent with a process of its own.
pub struct Agent<'w> {
    pub world: &'w World,
    harness: &'static str,
    session: String,
    agent: Option<String>,
    /// The process that stands for the harness.
    process: Option<Started>,
    pid: u32,
    pub cwd: PathBuf,
}

/// What a hook has answered.
#[derive(Debug)]
pub struct Answer(pub Value);

impl Answer {
    /// Why the call was denied.
    pub fn denied(&self) -> Option<&str> {
        let claude = &self.0["hookSpecificOutput"]["permissionDecisionReason"];
        [claude, &self.0["reason"], &self.0["deny"], &self.0["agent_message"]]
            .iter()
            .find_map(|text| text.as_str())
    }

    /// What the model was told.
    pub fn told(&self) -> Option<&str> {
        let claude = &self.0["hookSpecificOutput"]["additionalContext"];
        [claude, &self.0["additionalContext"], &self.0["tell"]].iter().find_map(|text| text.as_str())
    }

    #[track_caller]
    pub fn passes(&self) {
        assert_eq!(self.denied(), None);
    }

    #[track_caller]
    pub fn is_denied(&self) -> &str {
        self.denied().unwrap_or_else(|| panic!("not denied: {self:?}"))
    }
}

impl<'w> Agent<'w> {
    pub fn new(world: &'w World, harness: &'static str, session: &str) -> Self {
        let process = Started::of(&mut world.command("cat"));
        let pid = process.pid();
        let cwd = world.cwd().to_owned();
        Self { world, harness, session: session.to_owned(), agent: None, process: Some(process), pid, cwd }
    }

    pub fn claude(world: &'w World, session: &str) -> Self {
        Self::new(world, "claude", session)
    }

    /// A sub-agent in the same process.
    pub fn sub(&self, agent: &str) -> Self {
        let (session, cwd) = (self.session.clone(), self.cwd.clone());
        let agent = Some(agent.to_owned());
        Self { world: self.world, harness: self.harness, session, agent, process: None, pid: self.pid, cwd }
    }

    pub fn owner(&self) -> String {
        let below = self.agent.iter().map(|agent| format!(":{agent}")).collect::<String>();
        format!("{}:{}{below}", self.harness, self.session)
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.process.as_mut().unwrap().kill();
    }

    fn input(&self, event: &str) -> Value {
        let mut input = json!({ "session_id": self.session, "cwd": self.cwd, "hook_event_name": event });
        let mut set = |key: &str, value: Value| input[key] = value;
        match self.harness {
            "claude" => {
                set("transcript_path", json!(format!("/home/u/.claude/projects/x/{}.jsonl", self.session)));
            }
            "codex" => {
                set("turn_id", json!("turn-1"));
                set("transcript_path", json!("/home/u/.codex/sessions/x.jsonl"));
            }
            "qwen" => set("transcript_path", json!("/home/u/.qwen/tmp/x.jsonl")),
            "opencode" => set("harness", json!("opencode")),
            "gemini" | "copilot" => {}
            other => panic!("no harness {other}"),
        }
        if let Some(agent) = &self.agent {
            set("agent_id", json!(agent));
        }
        input
    }

    fn command(&self) -> std::process::Command {
        let mut command = self.world.lockkeeper(["hook"]);
        command.current_dir(&self.cwd).env("LOCKKEEPER_PID", self.pid.to_string());
        match self.harness {
            "claude" => command.env("CLAUDE_CODE_SESSION_ID", &self.session),
            "copilot" => command.env("COPILOT_CLI", "1"),
            "gemini" => command.env("GEMINI_SESSION_ID", &self.session),
            _ => &mut command,
        };
        command
    }

    /// Starts a hook call, and leaves it alone.
    pub fn start(&self, input: &Value) -> std::process::Child {
        let mut command = self.command();
        let mut hook = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // A hook that was killed does not read its input.
        let _ = hook.stdin.take().unwrap().write_all(input.to_string().as_bytes());
        hook
    }

    /// Sends an input. The hook exits with 0 and says nothing on stderr.
    #[track_caller]
    pub fn send(&self, input: &Value) -> Answer {
        let output = self.start(input).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        Answer(if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
    }

    /// An event without a tool.
    #[track_caller]
    pub fn event(&self, event: &str) -> Answer {
        self.send(&self.input(event))
    }

    /// An event with more fields.
    #[track_caller]
    pub fn event_with(&self, event: &str, key: &str, value: Value) -> Answer {
        let mut input = self.input(event);
        input[key] = value;
        self.send(&input)
    }

    pub fn tool_input(&self, tool: &str, arguments: Value) -> Value {
        let mut input = self.input(if self.harness == "gemini" { "BeforeTool" } else { "PreToolUse" });
        input["tool_name"] = json!(tool);
        input["tool_input"] = arguments;
        input
    }

    #[track_caller]
    pub fn tool(&self, tool: &str, arguments: Value) -> Answer {
        self.send(&self.tool_input(tool, arguments))
    }

    /// The event after a tool, with what else the harness says.
    #[track_caller]
    pub fn after(&self, tool: &str, arguments: Value, more: Value) -> Answer {
        let mut input = self.tool_input(tool, arguments);
        input["hook_event_name"] = json!(if self.harness == "gemini" { "AfterTool" } else { "PostToolUse" });
        if let Value::Object(more) = more {
            more.into_iter().for_each(|(key, value)| input[key] = value);
        }
        self.send(&input)
    }

    /// The hook before a shell command.
    #[track_caller]
    pub fn runs(&self, command: &str) -> Answer {
        self.tool(self.shell(), json!({ "command": command }))
    }

    /// The hook after a shell command.
    #[track_caller]
    pub fn has_run(&self, command: &str) -> Answer {
        self.after(self.shell(), json!({ "command": command }), Value::Null)
    }

    fn shell(&self) -> &'static str {
        if matches!(self.harness, "gemini" | "qwen") { "run_shell_command" } else { "Bash" }
    }

    /// The input of an edit with the harness's own tool.
    pub fn edit_input(&self, path: &str) -> Value {
        let file = self.cwd.join(path);
        match self.harness {
            "claude" => {
                self.tool_input("Edit", json!({ "file_path": file, "old_string": "a", "new_string": "b" }))
            }
            "codex" => self.tool_input("apply_patch", json!({ "command": patch(&[path]) })),
            "gemini" | "qwen" => self.tool_input("write_file", json!({ "file_path": file, "content": "x" })),
            "copilot" => self.tool_input("Edit", json!({ "path": file })),
            "opencode" => self.tool_input("edit", json!({ "filePath": file })),
            other => panic!("no harness {other}"),
        }
    }

    #[track_caller]
    pub fn edit(&self, path: &str) -> Answer {
        self.send(&self.edit_input(path))
    }

    /// Runs a command of this program in the agent's name.
    pub fn run(&self, args: &[&str]) -> Finished {
        Finished::of(self.world.lockkeeper(args).env("LOCKKEEPER_OWNER", self.owner()))
    }
}

/// A patch of Codex that updates these files.
pub fn patch(paths: &[&str]) -> String {
    let parts: String = paths.iter().map(|path| format!("*** Update File: {path}\n@@\n-a\n+b\n")).collect();
    format!("*** Begin Patch\n{parts}*** End Patch\n")
}

/// Who holds a file or name now, as `locks` says; dead holders do not count.
pub fn holders(world: &World, target: &str) -> Vec<String> {
    let listing = world.json(&["locks"]);
    let leases = listing["leases"].as_array().unwrap();
    let is_it = |resource: &Value| resource["path"] == target || resource["name"] == target;
    let holds = |lease: &&Value| {
        lease["resources"].as_array().unwrap().iter().any(is_it)
            && !matches!(lease["state"].as_str(), Some("dead" | "expired"))
    };
    leases.iter().filter(holds).map(|lease| lease["owner"].as_str().unwrap().to_owned()).collect()
}

/// The lines of the log of calls that failed open.
pub fn log(world: &World) -> Vec<String> {
    let text = std::fs::read_to_string(world.path(".git/lockkeeper/hooks.log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
