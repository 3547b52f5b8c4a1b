//! docs/reference/run-states.md and its picture, from the table of moves.

use std::fs;

use lockkeeper_core::request::RequestStatus;
use lockkeeper_core::run::{FIRST, MOVES, Reason, Status};

use crate::{docs, hold_to, picture};

const BEGIN: &str = "<!-- moves:";
const END: &str = "<!-- end of moves -->";

/// The table and the diagram as Markdown.
fn moves() -> String {
    let mut text = String::from("| from | to | by |\n|---|---|---|\n");
    for one in &MOVES {
        text.push_str(&format!("| {} | {} | {} |\n", one.from, one.to, one.by));
    }
    text.push_str("\n![The moves as a picture](run-states.svg)\n\n```mermaid\nstateDiagram-v2\n");
    for first in FIRST {
        text.push_str(&format!("    [*] --> {first}\n"));
    }
    for one in &MOVES {
        text.push_str(&format!("    {} --> {}: {}\n", one.from, one.to, one.by));
    }
    for last in Status::ALL.into_iter().filter(|status| status.is_terminal()) {
        text.push_str(&format!("    {last} --> [*]\n"));
    }
    text + "```\n"
}

/// Requirements 72, 81.
#[test]
fn the_document_has_the_moves_of_the_table() {
    let text = fs::read_to_string(docs().join("reference/run-states.md")).unwrap();
    let begin = text.find(BEGIN).unwrap();
    let body = begin + text[begin..].find('\n').unwrap() + 1;
    let end = text.find(END).unwrap();
    hold_to("reference/run-states.md", &format!("{}\n{}\n{}", &text[..body], moves(), &text[end..]));
}

#[test]
fn the_picture_has_the_moves_of_the_table() {
    hold_to("reference/run-states.svg", &picture::draw());
}

/// Decision 10 of the requirements: the words of runs and requests, side by side.
#[test]
fn the_table_of_words_is_that_of_the_rules() {
    let text = fs::read_to_string(docs().join("reference/requests.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| run |")).skip(2);
    let mut seen = Vec::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let status: Status = cells[0].parse().unwrap();
        let named: Vec<Reason> = cells[1].split(", ").filter_map(Reason::from_code).collect();
        let reasons = match cells[1] {
            "" => vec![None],
            "any other" => {
                let others = Reason::ALL.into_iter().filter(|reason| *reason != Reason::NeedsInput);
                others.map(Some).collect()
            }
            _ => named.into_iter().map(Some).collect::<Vec<_>>(),
        };
        assert!(!reasons.is_empty(), "{row}");
        for reason in reasons {
            let request = RequestStatus::of_run(status, reason);
            assert_eq!(cells[2].split(' ').next(), Some(request.as_str()), "{row}");
        }
        seen.push(status);
    }
    assert!(Status::ALL.iter().all(|status| seen.contains(status)), "{seen:?}");
}
