//! The examples of a document, run one after the other in a folder of their own.

use std::process::Command;

use crate::docs;

/// The blocks of a document that are a terminal's.
fn blocks(text: &str) -> Vec<String> {
    let parts = text.split("\n```").skip(1).step_by(2);
    parts.filter_map(|block| block.strip_prefix("console\n").map(str::to_owned)).collect()
}

/// Each command of a block with what it prints.
fn steps(block: &str) -> Vec<(String, Vec<String>)> {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            (None, Some((_, output))) => output.push(line.to_owned()),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    steps
}

/// A line without what differs from one time to the next: ids, times, spans, and how wide columns are.
fn plain(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_span = word.starts_with(|c: char| c.is_ascii_digit())
            && ["ms", "s", "m"]
                .iter()
                .any(|unit| word.strip_suffix(unit).is_some_and(|number| number.parse::<u32>().is_ok()));
        let is_time = word.ends_with('Z') && word.contains('T') && word.len() > 20;
        let shown = match word {
            word if word.starts_with("RUN-") => "RUN",
            _ if is_span => "SPAN",
            _ if is_time => "TIME",
            word => word,
        };
        // `2m 3s` are two words and one span; a worker's id is its own.
        let repeated = shown == "SPAN" && words.last().is_some_and(|last| last == "SPAN");
        if words.last().is_some_and(|last| last == "worker") {
            words.push("W,".to_owned());
        } else if !repeated {
            words.push(shown.to_owned());
        }
    }
    words.join(" ")
}

fn run(folder: &std::path::Path, command: &str) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let line = format!("lockkeeper() {{ '{program}' \"$@\"; }}; {{ {command}\n}} 2>&1");
    let output = Command::new("bash")
        .args(["-c", &line])
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("AI_SWARM_DIR", folder.join("swarm"))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The process of a command is an event of its own only when the command takes longer than a moment.
fn number_anew(lines: &mut Vec<String>) {
    let Some(started) = lines.iter().position(|line| line.contains(" started running process ")) else {
        return;
    };
    lines.remove(started);
    for (number, line) in lines.iter_mut().enumerate().skip(started) {
        let (_, rest) = line.split_once(' ').unwrap();
        *line = format!("{} {rest}", number + 1);
    }
}

#[test]
fn the_examples_of_requests_work_as_written() {
    let text = std::fs::read_to_string(docs().join("requests.md")).unwrap();
    let blocks = blocks(&text);
    assert_eq!(blocks.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for (command, expected) in blocks.iter().flat_map(|block| steps(block)) {
        let mut printed: Vec<String> = run(folder.path(), &command).iter().map(|line| plain(line)).collect();
        number_anew(&mut printed);
        let mut expected: Vec<String> = expected.iter().map(|line| plain(line)).collect();
        // Talk and data are two streams, whose order is not fixed.
        printed.sort();
        expected.sort();
        assert_eq!(printed, expected, "{command}");
    }
}
