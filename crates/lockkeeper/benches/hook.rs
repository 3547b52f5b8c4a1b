//! How long agents are held up by the hook, over the bare start of a process; `board` and `commit` beside it.
//!
//! `scripts/bench hook` prints one line for each measurement and exits with 1 if a limit is missed.
#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const AGENTS: usize = 100;
const FILES: usize = 100;
const ROUNDS: usize = 200;

fn main() -> ExitCode {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().unwrap();
    let (busy, stranger) =
        (Repository::new(folder.path(), "busy"), Repository::new(folder.path(), "stranger"));
    busy.fill();
    let bare = measured(ROUNDS, || assert!(Command::new("true").status().unwrap().success()));
    println!("bare start: {:?}", bare.median);
    let mut missed = false;
    let mut row = |what: &str, took: Duration, limit: Duration| {
        let verdict = if took <= limit { "" } else { "  MISSED" };
        missed |= took > limit;
        println!("{what:<58} {:>9.2} ms   limit {:>7.1} ms{verdict}", millis(took), millis(limit));
    };
    let over = |took: Duration| took.saturating_sub(bare.median);
    let ms = |count: f64| Duration::from_secs_f64(count / 1e3);

    let elsewhere = measured(ROUNDS, || drop(stranger.hook(&stranger.edit("a0", "f"))));
    row("hook in a repository that takes no part", over(elsewhere.median), ms(1.5));
    let own = busy.edit("a0", "src0/f0");
    assert_eq!(busy.hook(&own), Value::Null);
    let passes = measured(ROUNDS, || drop(busy.hook(&own)));
    row("hook that passes, 10,000 leases, 100 agents", over(passes.median), ms(5.0));
    row("  p95", over(passes.p95), ms(10.0));
    let held = busy.edit("a1", "src0/f0");
    assert!(busy.hook(&held).to_string().contains("deny"));
    let denies = measured(ROUNDS, || drop(busy.hook(&held)));
    row("hook that denies", over(denies.median), ms(5.0));
    row("  p95", over(denies.p95), ms(10.0));

    let long: String =
        (0..).map(|n| format!("grep -n 'some text {n}' src0/f{n} | head -3; ")).take(100).collect();
    let shell = busy.shell("a0", &format!("{long} echo x > src0/f0"));
    assert!(long.len() >= 4_000);
    let reads = measured(ROUNDS, || drop(busy.hook(&shell)));
    row(
        "the same for a shell command of 4 KB, beyond an edit",
        reads.median.saturating_sub(passes.median),
        ms(1.0),
    );

    let mut unknown = busy.shell("a0", "make");
    let mut after = unknown.clone();
    after["hook_event_name"] = json!("PostToolUse");
    (unknown["tool_use_id"], after["tool_use_id"]) = (json!("t"), json!("t"));
    let status = measured(ROUNDS, || busy.git(&["--no-optional-locks", "status", "--porcelain=v2", "-z"]));
    let looks = measured_after(ROUNDS / 2, || drop(busy.hook(&unknown)), || drop(busy.hook(&after)));
    row(
        "after a shell command, beyond `git status`",
        over(looks.median).saturating_sub(status.median),
        ms(5.0),
    );
    let mut told = after.clone();
    told["tool_response"] = json!({ "bashEditDiff": { "changedFiles": [] } });
    let tells = measured_after(ROUNDS / 2, || drop(busy.hook(&unknown)), || drop(busy.hook(&told)));
    row("after a shell command, if the harness tells what changed", over(tells.median), ms(5.0));

    let board = measured(20, || drop(busy.lockkeeper(&["board"]).output().unwrap()));
    row("board with 100 agents", board.median, ms(100.0));

    let plain = Repository::new(folder.path(), "plain");
    let mut number = 1;
    let mut git = || {
        plain.change(number);
        number += 1;
        let started = Instant::now();
        plain.git(&["add", "src0/f0", "src0/f1", "src0/f2"]);
        plain.git(&["commit", "-q", "-m", "x"]);
        started.elapsed()
    };
    let by_git = Times::of((0..30).map(|_| git()).collect());
    let mut ours = || {
        plain.change(number);
        number += 1;
        let started = Instant::now();
        let mut commit = plain.lockkeeper(&["commit", "-m", "x", "src0/f0", "src0/f1", "src0/f2"]);
        assert!(commit.stderr(Stdio::null()).status().unwrap().success());
        started.elapsed()
    };
    let by_us = Times::of((0..30).map(|_| ours()).collect());
    row("`commit` of three files, against `git add` and `git commit`", by_us.median, by_git.median * 3 / 2);
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Times {
    median: Duration,
    p95: Duration,
}

impl Times {
    fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort();
        Self { median: samples[samples.len() / 2], p95: samples[samples.len() * 95 / 100] }
    }
}

fn measured(rounds: usize, mut run: impl FnMut()) -> Times {
    measured_after(rounds, || {}, &mut run)
}

fn measured_after(rounds: usize, mut before: impl FnMut(), mut run: impl FnMut()) -> Times {
    let sample = |_| {
        before();
        let started = Instant::now();
        run();
        started.elapsed()
    };
    Times::of((0..rounds).map(sample).collect())
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// A repository with some committed files.
struct Repository {
    root: PathBuf,
}

impl Repository {
    fn new(folder: &Path, name: &str) -> Self {
        let this = Self { root: folder.join(name) };
        std::fs::create_dir_all(this.root.join("src0")).unwrap();
        this.git(&["init", "-q"]);
        this.change(0);
        this.git(&["add", "-A"]);
        this.git(&["commit", "-q", "-m", "first"]);
        if name != "stranger" {
            std::fs::create_dir_all(this.root.join(".git/lockkeeper/agents")).unwrap();
        }
        this
    }

    fn change(&self, number: usize) {
        for file in 0..FILES {
            let text = if file < 3 { format!("{number}\n") } else { "same\n".to_owned() };
            std::fs::write(self.root.join(format!("src0/f{file}")), text).unwrap();
        }
    }

    /// Each agent claims its files.
    fn fill(&self) {
        for agent in 0..AGENTS {
            let files: String =
                (0..FILES).map(|file| format!("*** Update File: src{agent}/f{file}\n@@\n-a\n+b\n")).collect();
            let patch = format!("*** Begin Patch\n{files}*** End Patch\n");
            let answer =
                self.hook(&self.tool(&format!("a{agent}"), "apply_patch", &json!({ "command": patch })));
            assert_eq!(answer, Value::Null);
        }
    }

    fn git(&self, args: &[&str]) {
        let mut git = Command::new("git");
        git.current_dir(&self.root).args(["-c", "user.name=b", "-c", "user.email=b@b"]).args(args);
        assert!(git.stdout(Stdio::null()).status().unwrap().success());
    }

    fn lockkeeper(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.current_dir(&self.root).args(args).env("LOCKKEEPER_PID", std::process::id().to_string());
        command.env_remove("LOCKKEEPER_OWNER").envs([("GIT_AUTHOR_NAME", "b"), ("GIT_AUTHOR_EMAIL", "b@b")]);
        command.envs([("GIT_COMMITTER_NAME", "b"), ("GIT_COMMITTER_EMAIL", "b@b")]).stdout(Stdio::null());
        command
    }

    fn tool(&self, session: &str, tool: &str, arguments: &Value) -> Value {
        json!({
            "session_id": session, "turn_id": "t", "cwd": self.root, "hook_event_name": "PreToolUse",
            "transcript_path": "/home/u/.codex/sessions/x.jsonl", "tool_name": tool, "tool_input": arguments,
        })
    }

    fn edit(&self, session: &str, file: &str) -> Value {
        let patch = format!("*** Begin Patch\n*** Update File: {file}\n@@\n-a\n+b\n*** End Patch\n");
        self.tool(session, "apply_patch", &json!({ "command": patch }))
    }

    fn shell(&self, session: &str, command: &str) -> Value {
        self.tool(session, "Bash", &json!({ "command": command }))
    }

    fn hook(&self, input: &Value) -> Value {
        let mut hook =
            self.lockkeeper(&["hook"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        hook.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        let output = hook.wait_with_output().unwrap();
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}
