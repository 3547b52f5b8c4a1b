//! Tests of reading the output of a run in windows.

use super::*;
use std::time::{Duration, Instant};

/// An output with this text and this cut.
fn output(text: &[u8], cut: Option<Cut>) -> (tempfile::TempDir, Output) {
    let state = tempfile::tempdir().unwrap();
    let folder = RunFolder::new(state.path(), &"RUN-1".parse().unwrap());
    folder.make().unwrap();
    std::fs::write(folder.output(), text).unwrap();
    if let Some(cut) = cut {
        std::fs::write(folder.cut(), serde_json::to_string(&cut).unwrap()).unwrap();
    }
    let output = Output::open(&folder, None).unwrap().unwrap();
    (state, output)
}

fn tail(output: &Output, lines: u64) -> String {
    let from = output.last_lines(lines).unwrap();
    String::from_utf8(output.read(from, 1000).unwrap().bytes).unwrap()
}

#[test]
fn the_last_lines_are_found_with_and_without_an_end() {
    let (_state, ended) = output(b"a\nb\nc\n", None);
    let (_other, open) = output(b"a\nb\nc", None);
    for (lines, expected) in [(0, ""), (1, "c"), (2, "b\nc"), (3, "a\nb\nc"), (9, "a\nb\nc")] {
        assert_eq!(tail(&open, lines), expected);
        assert_eq!(tail(&ended, lines).trim_end(), expected);
    }
    let (_state, blank) = output(b"\n\n\n", None);
    assert_eq!(tail(&blank, 2), "\n\n");
    let (_state, nothing) = output(b"", None);
    assert_eq!(tail(&nothing, 2), "");
}

#[test]
fn the_last_line_is_readable() {
    let last = |text: &[u8], cut| output(text, cut).1.last_line().unwrap();
    assert_eq!(last(b"", None), None);
    assert_eq!(last(b"\n \n", None), None);
    assert_eq!(last(b"a\nno such table: users\n\n", None).as_deref(), Some("no such table: users"));
    assert_eq!(last(b"10%\r50%\r", None).as_deref(), Some("50%"));
    assert_eq!(last(b"\x1b[1;31merror\x1b[0m: x\n\x1b[0m", None).as_deref(), Some("error: x"));
    let cut = Some(Cut { cut_from: 2, cut_to: 5 });
    assert_eq!(last(b"a\n\0\0\0end\n", cut).as_deref(), Some("end"));
    let long = [vec![b'x'; LAST_LINE * 2], b"yz".to_vec()].concat();
    assert!(last(&long, None).is_some_and(|line| line.len() == LAST_LINE && line.ends_with("yz")));
}

#[test]
fn a_text_is_found_in_both_directions_and_across_windows() {
    let edge = STEP as usize - 2;
    let text =
        [b"Error one ".to_vec(), vec![b'x'; edge - 10], b"eRRoR two".to_vec(), vec![b'y'; 90_000]].concat();
    let (_state, output) = output(&text, None);
    let find = |from, forward| output.find(b"error", from, forward).unwrap();
    assert_eq!(find(0, true), Some(Found::At(0)));
    assert_eq!(find(1, true), Some(Found::At(edge as u64)));
    assert_eq!(find(edge as u64 + 1, true), None);
    assert_eq!(find(u64::MAX, false), Some(Found::At(edge as u64)));
    assert_eq!(find(edge as u64, false), Some(Found::At(0)));
    assert_eq!(find(0, false), None);
    assert_eq!(output.find(b"", 0, true).unwrap(), None);
    let cut = Some(Cut { cut_from: 6, cut_to: 9 });
    let (_state, with_cut) = self::output(b"one er\0\0\0ror one", cut);
    let find = |text: &[u8], from, forward| with_cut.find(text, from, forward).unwrap();
    assert_eq!([find(b"one", 1, true), find(b"one", 13, false)], [Some(Found::At(13)), Some(Found::At(0))]);
    assert_eq!([find(b"error", 0, true), find(b"\0", 0, true), find(b"error", 16, false)], [None; 3]);
    assert_eq!([find(b"er", 9, false), find(b"ror", 16, false)], [Some(Found::At(4)), Some(Found::At(9))]);
    let brute: Vec<u64> = (0..text.len())
        .filter(|at| text[*at..].len() >= 3 && text[*at..*at + 3].eq_ignore_ascii_case(b"r o"))
        .map(|at| at as u64)
        .collect();
    assert_eq!(output.find(b"R O", 0, true).unwrap(), brute.first().map(|at| Found::At(*at)));
}

#[test]
fn lines_are_found_across_steps() {
    let long = "x".repeat(STEP as usize + 10);
    let (_state, output) = output(format!("first\n{long}\n{long}\nlast\n").as_bytes(), None);
    assert_eq!(output.last_lines(2).unwrap(), 6 + long.len() as u64 + 1);
    assert_eq!(output.last_lines(3).unwrap(), 6);
    assert_eq!(output.last_lines(4).unwrap(), 0);
}

#[test]
fn attempts_are_found_wherever_their_output_is_by_now() {
    let (state, _first) = output(b"first", None);
    let folder = RunFolder::new(state.path(), &"RUN-1".parse().unwrap());
    let text = |attempt| {
        let output = Output::of_attempt(&folder, attempt).unwrap();
        output.map(|output| String::from_utf8(output.read(0, 99).unwrap().bytes).unwrap())
    };
    assert_eq!((text(1).as_deref(), text(2)), (Some("first"), None));
    folder.begin_attempt(2).unwrap();
    assert_eq!((text(1).as_deref(), text(2)), (Some("first"), None));
    std::fs::write(folder.output(), "second").unwrap();
    // Another machine makes the third attempt.
    folder.begin_attempt(4).unwrap();
    std::fs::write(folder.output(), "fourth").unwrap();
    assert_eq!((text(1).as_deref(), text(2).as_deref()), (Some("first"), Some("second")));
    assert_eq!((text(3), text(4).as_deref()), (None, Some("fourth")));
}

#[test]
fn what_was_cut_out_is_passed_over() {
    let (_state, output) = output(b"begin\0\0\0\0end\n", Some(Cut { cut_from: 5, cut_to: 9 }));
    assert_eq!(output.read(0, 100).unwrap(), Window { from: 0, bytes: b"begin".to_vec() });
    assert_eq!(output.read(5, 100).unwrap(), Window { from: 9, bytes: b"end\n".to_vec() });
    assert_eq!(output.read(7, 2).unwrap(), Window { from: 9, bytes: b"en".to_vec() });
    assert_eq!(output.read(13, 2).unwrap(), Window { from: 13, bytes: Vec::new() });
    assert_eq!(output.last_lines(5).unwrap(), 9);
}

/// The file is sparse: its length is a gigabyte, and it has a few pages on the disk.
#[test]
fn a_gigabyte_in_one_line_is_answered_at_once() {
    let (state, output) = output(b"", None);
    let folder = RunFolder::new(state.path(), &"RUN-1".parse().unwrap());
    let file = File::options().write(true).open(folder.output()).unwrap();
    file.set_len(1 << 30).unwrap();
    file.write_at(b"\nlast\n", (1 << 30) - 6).unwrap();
    let begun = Instant::now();
    assert_eq!(tail(&output, 1), "last\n");
    assert_eq!(output.last_lines(20).unwrap(), (1 << 30) - MAX_SEARCH);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
