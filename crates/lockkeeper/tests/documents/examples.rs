//! Runs the examples of a document, one after the other, in a world of their own.

use lockkeeper_testing::{World, world};

use crate::docs;

/// The blocks of a document: what is behind the fence, and the lines.
fn fenced(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

/// The blocks of a document that show a terminal.
pub(crate) fn blocks(text: &str) -> Vec<String> {
    fenced(text).filter(|(kind, _)| *kind == "console").map(|(_, lines)| lines.to_owned()).collect()
}

/// The blocks of a document that show a whole file: those with a name behind the language, and their text.
pub(crate) fn files(text: &str) -> Vec<(&str, String)> {
    let named = fenced(text).filter_map(|(kind, lines)| Some((kind.split_once(' ')?.1, lines)));
    named.map(|(name, lines)| (name, format!("{lines}\n"))).collect()
}

/// Each command of a block with what it prints.
pub(crate) fn steps(block: &str) -> Vec<(String, Vec<String>)> {
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

/// A line without what differs from run to run: ids, times, spans, and the width of columns.
pub(crate) fn plain(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_span = word.starts_with(|c: char| c.is_ascii_digit())
            && ["ms", "s", "m"]
                .iter()
                .any(|unit| word.strip_suffix(unit).is_some_and(|number| number.parse::<u32>().is_ok()));
        let is_time = word.ends_with('Z') && word.contains('T') && word.len() > 20;
        let is_short_id = word.len() == 10
            && word.chars().all(|c| c.is_ascii_digit() || (c.is_ascii_lowercase() && !"ilou".contains(c)));
        let shown = match word {
            word if word.starts_with("RUN-") || is_short_id => "RUN",
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

pub(crate) fn run(world: &World, command: &str) -> Vec<String> {
    world.shell(&format!("{{ {command}\n}} 2>&1")).stdout().lines().map(str::to_owned).collect()
}

/// Removes the event of the process: a run has it only when its command does not end at once.
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
    let text = std::fs::read_to_string(docs().join("reference/requests.md")).unwrap();
    let blocks = blocks(&text);
    assert_eq!(blocks.len(), 3);
    let world = world!().git();
    for (command, expected) in blocks.iter().flat_map(|block| steps(block)) {
        let mut printed: Vec<String> = run(&world, &command).iter().map(|line| plain(line)).collect();
        number_anew(&mut printed);
        let mut expected: Vec<String> = expected.iter().map(|line| plain(line)).collect();
        // The order of lines on stdout and stderr is not fixed.
        printed.sort();
        expected.sort();
        assert_eq!(printed, expected, "{command}");
    }
}
