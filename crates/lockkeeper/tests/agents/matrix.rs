//! What harnesses make of a hook that fails, as a table in the documents.
//!
//! A table is measured only on demand, because it starts each harness many times: `scripts/test-agents --matrix`.

use std::path::Path;
use std::time::Duration;
use std::{env, fs};

use lockkeeper_testing::{Script, skip};

use crate::harness::{ALL, Harness, version};
use crate::stage::Stage;
use crate::test_hook::{LIMIT, write_script};

/// The document with the table.
const DOCUMENT: &str = "docs/internals/agents-failing-hooks.md";
/// The table stands between these lines.
const MARKS: [&str; 2] = ["<!-- measured: begin -->\n", "<!-- measured: end -->\n"];
/// What a hook says that denies by an exit code.
const REASON: &str = "the reason of the test";
/// A hook that takes longer than [`SHORT`], the time that it has then.
const TOO_SLOW: &str = "exec sleep 30";
const SHORT: Duration = Duration::from_secs(2);

/// A way to fail: how the table names it, and what the hook does before a call of a tool.
const FAILURES: [(&str, &str); 10] = [
    ("exit 0, nothing printed", "exit 0"),
    ("exit 0, junk on stdout", "echo 'not JSON {'; exit 0"),
    ("exit 1, silent", "exit 1"),
    ("exit 1, text on stderr", "echo 'some text' >&2; exit 1"),
    ("exit 2, reason on stderr", "echo 'the reason of the test' >&2; exit 2"),
    ("exit 2, silent", "exit 2"),
    ("exit 101, text on stderr (a panic)", "echo 'some text' >&2; exit 101"),
    ("program missing (127)", "exec /nowhere/lockkeeper hook"),
    ("killed", "kill -9 $$"),
    ("time-out", TOO_SLOW),
];

#[test]
fn the_table_in_the_documents_is_what_harnesses_do() {
    let Some(mode) = env::var_os("LOCKKEEPER_MATRIX") else {
        return skip("LOCKKEEPER_MATRIX: scripts/test-agents --matrix");
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOCUMENT);
    let document = fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(MARKS[0]).expect("the document has a mark before the table");
    let (table, after) = rest.split_once(MARKS[1]).expect("the document has a mark after the table");
    let measured = measure(table);
    if mode == "write" {
        fs::write(&path, format!("{before}{}{measured}{}{after}", MARKS[0], MARKS[1])).unwrap();
    } else {
        assert_eq!(table, measured, "scripts/test-agents --matrix writes the table");
    }
}

/// The whole table. A harness that is not installed keeps the column that it has.
fn measure(old: &str) -> String {
    let columns: Vec<Vec<String>> = ALL
        .into_iter()
        .map(|harness| match version(harness) {
            Some(version) => {
                let outcomes = FAILURES.iter().map(|(_, line)| outcome(harness, line).to_owned());
                std::iter::once(format!("{} {version}", harness.name())).chain(outcomes).collect()
            }
            None => old_column(old, harness.name()),
        })
        .filter(|column| !column.is_empty())
        .collect();
    let row = |first: &str, at: usize| {
        let cells: String = columns.iter().map(|column| format!(" {} |", column[at])).collect();
        format!("|{first} |{cells}\n")
    };
    let failures = FAILURES.iter().enumerate().map(|(at, (name, _))| row(&format!(" {name}"), at + 1));
    format!("{}|---|{}\n{}", row("", 0), "---|".repeat(columns.len()), failures.collect::<String>())
}

/// The column of a harness in the table of the document: its head and its outcomes. Empty if the table has none.
fn old_column(table: &str, name: &str) -> Vec<String> {
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = table.lines().filter(|row| !row.starts_with("|---")).map(cells).collect();
    let is_its = |head: &String| head.split(' ').next() == Some(name);
    let at = rows.first().and_then(|heads| heads.iter().position(is_its));
    at.map(|at| rows.into_iter().map(|row| row[at].clone()).collect()).unwrap_or_default()
}

/// What becomes of an edit when the hook before it fails in this way.
fn outcome(harness: &'static dyn Harness, line: &str) -> &'static str {
    let stage = Stage::of(harness).expect("it is installed");
    let event = harness.before_tool();
    let only_before =
        format!("case $(cat) in *'\"hook_event_name\":\"{event}\"'*) ;; *) exit 0 ;; esac\n{line}\n");
    let hook = write_script(&stage.world.beside("hook"), &only_before);
    harness.set_up(&stage.world, &hook, if line == TOO_SLOW { SHORT } else { LIMIT });
    let edit = harness.create(&stage.world.path("a.txt"), "edit");
    let ended = stage.run(&Script::new().call(edit).say("bye"));
    let told = stage.model.times_told("");
    assert_eq!(told, 1, "the model has to be told the result of its call: {ended:?}");
    match (stage.text("a.txt").as_str(), line.contains(REASON) && !stage.model.was_told(REASON)) {
        ("edit\n", _) => "made",
        ("", false) => "**denied**",
        ("", true) => "**denied**, reason lost",
        (other, _) => panic!("an unknown text: {other:?}"),
    }
}
