//! How long STAGES.yml files take to read, phases to plan and groups to execute.
//!
//! `scripts/bench stages` runs it and exits 1 when a limit is missed. Times are the best of several rounds: what else
//! the machine does only adds to them.
#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::fmt::Write;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use lockkeeper_stages::{Conditions, File};

/// A file of several hundred lines, with eight rules of 27 patterns.
const REAL: &str = include_str!("../tests/stages/data/shop.yml");
const ROUNDS: usize = 15;

/// The most that reading, checking and planning a file of real size may take.
const MOST_FOR_A_FILE: Duration = Duration::from_millis(10);

/// The most that ten times as many groups may take: their conflicts grow with them, so in proportion would be 10.
const MOST_GROWTH: f64 = 25.0;

/// The most that a group may cost beyond its command: lease, request, run, log lines and fsyncs.
const MOST_FOR_A_GROUP: Duration = Duration::from_millis(25);

fn main() -> ExitCode {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let mut kept = real_file();
    for (name, make) in [
        ("groups apart", apart as fn(usize) -> String),
        ("neighbours share a file under a lock", neighbours),
        ("chains of ten that depend on each other", chains),
    ] {
        kept &= growth(name, make);
    }
    kept &= execution();
    if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a group costs beyond the start of its command: groups that do nothing, one after the other, against bare
/// starts of the same command.
fn execution() -> bool {
    const GROUPS: u32 = 100;
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in 0..GROUPS {
        writeln!(
            text,
            "    - {{group_id: g{group}, conflict_paths: [\"{group}/**\"], command: [/bin/true]}}"
        )
        .unwrap();
    }
    std::fs::write(folder.path().join("STAGES.yml"), text).unwrap();
    let run = |round: usize| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(["--json", "stages", "run", "STAGES.yml", "P1", "--load", "0", "--jobs", "1"]);
        command.env("LOCKKEEPER_DIR", folder.path().join(format!("state{round}")));
        command.env("LOCK_DIR", folder.path().join("locks")).env("AI_SWARM_DIR", folder.path().join("swarm"));
        let begun = Instant::now();
        let output = command.current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        begun.elapsed()
    };
    let executed = (0..3).map(run).min().unwrap() / GROUPS;
    let bare = best(|| assert!(Command::new("/bin/true").status().unwrap().success()));
    let more = executed.saturating_sub(bare);
    println!("executing {GROUPS} groups one by one: {executed:.2?} each, a bare start {bare:.2?}");
    report(more <= MOST_FOR_A_GROUP, &format!("{more:.2?} more for a group, limit {MOST_FOR_A_GROUP:.0?}"))
}

fn real_file() -> bool {
    let lines = REAL.lines().count();
    let read = best(|| drop(black_box(file(REAL))));
    let parsed = file(REAL);
    let planned = best(|| parsed.stages.phases.iter().for_each(|phase| plan(&parsed, &phase.name.value)));
    let all = read + planned;
    println!(
        "a file of {lines} lines, 7 phases, 26 groups, 27 patterns: read and checked in {read:.2?}, planned in {planned:.2?}"
    );
    report(all <= MOST_FOR_A_FILE, &format!("together {all:.2?}, limit {MOST_FOR_A_FILE:.0?}"))
}

fn growth(name: &str, make: fn(usize) -> String) -> bool {
    let times: Vec<(usize, Duration)> = [10, 100, 1_000]
        .into_iter()
        .map(|count| {
            let parsed = file(&make(count));
            assert_eq!(parsed.errors().count(), 0);
            (count, best(|| plan(&parsed, "P1")))
        })
        .collect();
    let told: Vec<String> = times.iter().map(|(count, time)| format!("{count}: {time:.2?}")).collect();
    let ratio = times[2].1.as_secs_f64() / times[1].1.as_secs_f64();
    println!("planning, {name}: {}", told.join(", "));
    report(ratio <= MOST_GROWTH, &format!("from 100 to 1,000 groups {ratio:.1} times, limit {MOST_GROWTH}"))
}

fn report(kept: bool, what: &str) -> bool {
    println!("  {what}{}", if kept { "" } else { "  MISSED" });
    kept
}

fn file(text: &str) -> File {
    File::parse("STAGES.yml", text.as_bytes()).unwrap()
}

fn plan(file: &File, phase: &str) {
    let idle = Conditions { load: Some(0.0), ..Conditions::default() };
    black_box(file.plan(phase, &[], &idle).unwrap());
}

fn best(mut what: impl FnMut()) -> Duration {
    let round = |_| {
        let begun = Instant::now();
        what();
        begun.elapsed()
    };
    (0..ROUNDS).map(round).min().unwrap()
}

/// Groups with two folders each, and rules that never apply.
fn apart(count: usize) -> String {
    phase(count, |group| format!("\"src/part{group}/**\", \"tests/part{group}/**\""), |_| None)
}

/// Each shares a file with the next, and with the one after that.
fn neighbours(count: usize) -> String {
    let shared = |group: usize| {
        format!(
            "\"src/part{group}/**\", \"shared/{group}.json\", \"shared/{}.json\", \"shared/{}.json\"",
            group + 1,
            group + 2
        )
    };
    phase(count, shared, |_| None)
}

fn chains(count: usize) -> String {
    let after = |group: usize| (!group.is_multiple_of(10)).then(|| format!("g{}", group - 1));
    phase(count, |group| format!("\"src/part{group}/**\", \"shared/{}.json\"", group % 50), after)
}

fn phase(count: usize, paths: impl Fn(usize) -> String, after: impl Fn(usize) -> Option<String>) -> String {
    let mut text = String::from("parallel_groups:\n  P1:\n");
    for group in 0..count {
        let needs = after(group).map_or_else(String::new, |id| format!("depends_on: [{id}], "));
        let minutes = 1 + group * 7 % 30;
        let agent = format!("{{name: a, estimated_time: {minutes}m}}");
        writeln!(
            text,
            "    - {{group_id: g{group}, agents: [{agent}], {needs}conflict_paths: [{}]}}",
            paths(group)
        )
        .unwrap();
    }
    text.push_str("conflict_detection:\n  rules:\n    - {name: shared, severity: FATAL, action: mutex_lock, paths: [\"shared/**\"]}\n");
    text
}
