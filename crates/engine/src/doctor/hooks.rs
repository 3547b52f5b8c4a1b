//! Check of hooks: every hook of an agent or of git that calls this program must be able to call it.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Context;
use super::finding::{Finding, Status};
use crate::messages::{Sentence, said};

const PROGRAM: &str = "lockkeeper";
/// The settings in which agents configure hooks, relative to the project's root.
const SETTINGS: [&str; 5] = [
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex/hooks.json",
    ".gemini/settings.json",
    ".cursor/hooks.json",
];
/// The hooks of git that can stop a commit.
const GIT_HOOKS: [&str; 4] = ["pre-commit", "prepare-commit-msg", "commit-msg", "pre-push"];
/// Reads at most this much of a file. Settings and hooks are much smaller.
const MOST_BYTES: u64 = 4 * 1024 * 1024;
/// How long `--help` may take. A slower program would delay every edit.
const HELP_TIMEOUT: Duration = Duration::from_secs(5);

/// A hook that calls this program.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    program: String,
    verb: String,
}

pub(super) fn hooks(context: &Context<'_>) -> Finding {
    let root = &context.inputs.location.root;
    let (mut calls, mut problems) = (Vec::new(), Vec::new());
    for name in SETTINGS {
        let settings = read(&root.join(name)).and_then(|text| {
            text.map(|text| serde_json::from_str::<Value>(&text).map_err(io::Error::from)).transpose()
        });
        match settings {
            Ok(settings) => {
                let mut found = Vec::new();
                settings.iter().for_each(|settings| calls_in_settings(settings, &mut found));
                calls.extend(found.into_iter().map(|call| (name.to_owned(), call)));
            }
            Err(error) => {
                let detail = said("seen.hooks_unreadable").with("file", name).with("error", error);
                problems.push((Status::Warn, detail, said("fix.correct").with("file", name)));
            }
        }
    }
    for path in git_hooks(root) {
        let Ok(Some(text)) = read(&path) else { continue };
        let Some(call) = call_in_script(&text) else { continue };
        let shown = path.display().to_string();
        if !is_executable(&path) {
            let detail = said("seen.hook_not_executable").with("file", &shown);
            problems.push((Status::Fail, detail, Sentence::Literal(format!("chmod +x {shown}"))));
        }
        calls.push((shown, call));
    }
    let count = calls.len();
    for (source, call) in calls {
        if let Err(why) = works(&call) {
            let line = format!("{} {}", call.program, call.verb);
            let detail = said("seen.hook_broken").with("source", &source).with("call", line);
            let detail = detail.with_list("why", [why]);
            let fix = said("fix.hook").with("verb", call.verb).with("source", source);
            problems.push((Status::Fail, detail, fix));
        }
    }
    let passed = match count {
        0 => {
            "no hook of an agent or of git calls lockkeeper: locks are respected only by programs that ask for them"
        }
        _ => "every hook that calls lockkeeper works",
    };
    let add = |finding: Finding, (status, detail, fix)| finding.and(status, detail, fix);
    problems.into_iter().fold(Finding::pass(passed), add)
}

/// Reads a text file; none if it does not exist.
fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(facts) if !facts.is_file() => return Err(io::Error::other("it is not a file")),
        Ok(_) => {}
    }
    let mut text = String::new();
    fs::File::open(path)?.take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Finds calls in settings. A command is one line, or a program with a list of arguments.
fn calls_in_settings(value: &Value, found: &mut Vec<Call>) {
    match value {
        Value::Object(entries) => {
            if let Some(command) = entries.get("command").and_then(Value::as_str) {
                let args = entries.get("args").and_then(Value::as_array).into_iter().flatten();
                let words = command.split_whitespace().chain(args.filter_map(Value::as_str));
                found.extend(call(&words.collect::<Vec<_>>()));
            }
            entries.values().for_each(|value| calls_in_settings(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| calls_in_settings(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The first call of this program. A test whether the program is there, as in `[ -x lockkeeper ]`, is no call.
fn call_in_script(text: &str) -> Option<Call> {
    text.lines().find_map(|line| {
        let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let words: Vec<&str> = words.map(|word| word.trim_matches(['\'', '"'])).collect();
        (0..words.len()).filter_map(|first| call(&words[first..])).find(|call| call.verb != "]")
    })
}

fn call(words: &[&str]) -> Option<Call> {
    let (program, rest) = words.split_first().filter(|(program, _)| is_program(program))?;
    let verb = rest.first().copied().unwrap_or_default();
    Some(Call { program: (*program).to_owned(), verb: verb.to_owned() })
}

fn is_program(word: &str) -> bool {
    Path::new(word).file_name().is_some_and(|name| name == PROGRAM)
}

/// The paths of the git hooks that can stop a commit or push; none outside of a repository.
fn git_hooks(root: &Path) -> Vec<PathBuf> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(["rev-parse", "--git-path", "hooks"]).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success());
    let folder = output.and_then(|output| String::from_utf8(output.stdout).ok());
    let folder = folder.map(|folder| root.join(folder.trim_end()));
    folder.iter().flat_map(|folder| GIT_HOOKS.map(|name| folder.join(name))).collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// Runs `lockkeeper VERB --help` from PATH. A program at a path inside the project is never run, only checked to be
/// executable.
fn works(call: &Call) -> Result<(), Sentence> {
    if call.program != PROGRAM {
        let exists = is_executable(Path::new(&call.program));
        return if exists { Ok(()) } else { Err(said("hook.not_a_program")) };
    }
    let mut command = Command::new(PROGRAM);
    command.arg(&call.verb).arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => said("hook.not_in_path"),
        _ => said("hook.no_start"),
    })?;
    let until = Instant::now() + HELP_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(_)) => return Err(said("hook.unknown")),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(said("hook.silent").with("seconds", HELP_TIMEOUT.as_secs()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_settings(text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        calls_in_settings(&serde_json::from_str(text).unwrap(), &mut found);
        found.into_iter().map(|call| (call.program, call.verb)).collect()
    }

    #[test]
    fn calls_are_found_in_every_form_of_settings() {
        let (program, hook) = ("lockkeeper".to_owned(), "hook".to_owned());
        let lines = [
            r#"{"hooks":{"PreToolUse":[{"matcher":"x","hooks":[{"type":"command","command":"lockkeeper","args":["hook","claude"]}]}]}}"#,
            r#"{"hooks":{"PreToolUse":[{"hooks":[{"command":"lockkeeper hook codex","timeout":10}]}]}}"#,
            r#"{"version":1,"hooks":{"preToolUse":[{"command":"lockkeeper hook cursor"},{"command":"other lockkeeper"}]}}"#,
        ];
        for line in lines {
            assert_eq!(in_settings(line), [(program.clone(), hook.clone())], "{line}");
        }
        assert_eq!(in_settings(r#"{"command":"mylockkeeper hook","x":[1,null]}"#), []);
    }

    #[test]
    fn a_script_calls_where_it_is_not_a_comment() {
        let verb = |text: &str| call_in_script(text).map(|call| call.verb);
        assert_eq!(
            verb("#!/bin/sh\n# lockkeeper guard\nexec lockkeeper guard pre-commit \"$@\"\n"),
            Some("guard".into())
        );
        assert_eq!(verb("#!/bin/sh\nmake test\n"), None);
        assert_eq!(verb("lockkeeper"), Some(String::new()));
        // The line that `lockkeeper init` writes.
        let guard = "{ [ ! -x '/opt/a/lockkeeper' ] || '/opt/a/lockkeeper' git-hook pre-commit \"$@\" || [ $? -ne 1 ]; } \
            </dev/null || exit 1 # lockkeeper git guard";
        let call = call_in_script(guard).unwrap();
        assert_eq!((call.program.as_str(), call.verb.as_str()), ("/opt/a/lockkeeper", "git-hook"));
    }
}
