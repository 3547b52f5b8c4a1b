//! A repository that takes part, and agents that claim files by their hooks.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use lockkeeper_testing::{Finished, Started, World, world};
use serde_json::{Value, json};

/// A repository that takes part, with three committed files and a committer.
pub fn repository() -> World {
    let world = world!().set("GIT_CONFIG_NOSYSTEM", "1").set("LOCKKEEPER_AGENTS_LIMIT", "60s");
    let world = ["GIT_AUTHOR", "GIT_COMMITTER"]
        .iter()
        .fold(world, |world, who| world.set(&format!("{who}_NAME"), "t").set(&format!("{who}_EMAIL"), "t@t"));
    let world = world.git().write("src/a.rs", "a\n").write("src/b.rs", "b\n").write("src/c.rs", "c\n");
    world.git_run(&["add", "-A"]);
    world.git_run(&["commit", "-q", "-m", "files"]);
    std::fs::create_dir_all(world.path(".git/lockkeeper/agents")).unwrap();
    world
}

/// What git prints.
#[track_caller]
pub fn git(world: &World, args: &[&str]) -> String {
    Finished::of(world.command("git").args(args)).code(0).stdout()
}

pub fn write(world: &World, path: &str, text: impl AsRef<[u8]>) {
    let path = world.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The names and states of the files in the last commit.
#[track_caller]
pub fn last(world: &World) -> Vec<String> {
    let text = git(world, &["show", "--format=", "--name-status", "--no-renames", "HEAD"]);
    text.lines().map(|line| line.replace('\t', " ")).collect()
}

/// What is staged, and what the index has, without what git remembers of the files.
#[track_caller]
pub fn staged(world: &World) -> String {
    git(world, &["diff", "--cached", "--raw", "--no-abbrev"])
}

/// Writes a hook of the repository.
pub fn hook(world: &World, event: &str, script: &str) {
    let path = world.path(&format!(".git/hooks/{event}"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    executable(&path);
}

pub fn executable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The world with another `git` in front of the real one: a shell script in which `$git` is the real one.
pub fn with_git(world: World, script: &str) -> World {
    let real = Finished::of(world.command("sh").args(["-c", "command -v git"])).code(0).stdout();
    let folder = world.beside("bin");
    std::fs::create_dir(&folder).unwrap();
    let text = format!("#!/bin/sh\ngit='{}'\n{script}\nexec \"$git\" \"$@\"\n", real.trim_end());
    std::fs::write(folder.join("git"), text).unwrap();
    executable(&folder.join("git"));
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    world.set("PATH", path)
}

/// One session of Claude Code with a process of its own.
pub struct Agent<'w> {
    world: &'w World,
    session: String,
    process: Started,
    pub cwd: std::path::PathBuf,
}

impl<'w> Agent<'w> {
    pub fn new(world: &'w World, session: &str) -> Self {
        let process = Started::of(&mut world.command("cat"));
        Self { world, session: session.to_owned(), process, cwd: world.cwd().to_owned() }
    }

    pub fn owner(&self) -> String {
        format!("claude:{}", self.session)
    }

    /// Sends an event, and returns what the hook prints.
    #[track_caller]
    pub fn event(&self, event: &str, tool: Option<(&str, Value)>) -> Value {
        let transcript = format!("/home/u/.claude/projects/x/{}.jsonl", self.session);
        let mut input = json!({ "session_id": self.session, "cwd": self.cwd, "hook_event_name": event,
            "transcript_path": transcript });
        if let Some((name, arguments)) = tool {
            input["tool_name"] = json!(name);
            input["tool_input"] = arguments;
        }
        let mut command = self.world.lockkeeper(["hook"]);
        command.current_dir(&self.cwd).env("LOCKKEEPER_PID", self.process.pid().to_string());
        command.env("CLAUDE_CODE_SESSION_ID", &self.session).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut hook = command.spawn().unwrap();
        hook.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        let output = hook.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Claims a file, as the harness does before an edit.
    #[track_caller]
    pub fn claim(&self, path: &str) {
        let answer = self.event("PreToolUse", Some(("Edit", json!({ "file_path": self.cwd.join(path) }))));
        assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], Value::Null, "{answer}");
    }

    /// Claims a file and writes it.
    #[track_caller]
    pub fn edit(&self, path: &str, text: impl AsRef<[u8]>) {
        self.claim(path);
        let path = self.cwd.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Claims a file and removes it.
    #[track_caller]
    pub fn delete(&self, path: &str) {
        self.claim(path);
        std::fs::remove_file(self.cwd.join(path)).unwrap();
    }

    /// What the hook tells the model at the next tool call.
    #[track_caller]
    pub fn news(&self) -> String {
        let answer = self.event("PreToolUse", Some(("Read", json!({}))));
        answer["hookSpecificOutput"]["additionalContext"].as_str().unwrap_or_default().to_owned()
    }

    /// A command in the agent's name.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.world.command(program);
        command.args(args).current_dir(&self.cwd).env("LOCKKEEPER_OWNER", self.owner());
        command
    }

    /// `lockkeeper commit` with more arguments.
    pub fn commit(&self, args: &[&str]) -> Finished {
        let all = [&["commit", "-m", "work"], args].concat();
        Finished::of(&mut self.command(self.world.program(), &all))
    }

    /// `lockkeeper commit --json`, which succeeds.
    #[track_caller]
    pub fn commit_json(&self, args: &[&str]) -> Value {
        let all = [&["--json", "commit", "-m", "work"], args].concat();
        Finished::of(&mut self.command(self.world.program(), &all)).code(0).json()
    }
}

/// Who holds a file now.
pub fn holders(world: &World, path: &str) -> Vec<String> {
    let listing = world.json(&["locks"]);
    let holds = |lease: &&Value| {
        lease["resources"].as_array().unwrap().iter().any(|resource| resource["path"] == path)
            && !matches!(lease["state"].as_str(), Some("dead" | "expired"))
    };
    let leases = listing["leases"].as_array().unwrap();
    leases.iter().filter(holds).map(|lease| lease["owner"].as_str().unwrap().to_owned()).collect()
}
