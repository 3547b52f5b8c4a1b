//! Many writers at once, in Rust and in Python, while the log is rotated and writers are killed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use lockkeeper_formats::status::{Rotation, StatusLog};
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_testing::{Dice, Finished, LIMIT, Signal, Started, this_test};

use super::{line, write_foreign};

const FOLDER: &str = "STATUS_STORM_FOLDER";
const NAME: &str = "STATUS_STORM_NAME";
const LINES: &str = "STATUS_STORM_LINES";

/// Small, so that a storm rotates often; all are kept, so that all can be counted.
const ROTATION: Rotation = Rotation { limit: 256 * 1024, keep: 400 };

/// Lengths from 0 to 60,000 bytes, most of them short.
fn length(number: u64) -> usize {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let size = mixed as usize % 300;
    if number % 23 == 5 { size * 200 } else { size }
}

/// Not a test, but the process that other tests start: it writes lines, and prints after each that it is written.
#[test]
#[ignore = "a process that other tests start"]
fn writer() {
    let folder = std::env::var_os(FOLDER).unwrap();
    let name = std::env::var(NAME).unwrap();
    let lines: u64 = std::env::var(LINES).unwrap().parse().unwrap();
    let log = StatusLog::open(folder).unwrap().with_rotation(ROTATION);
    let mut stdout = std::io::stdout().lock();
    for number in 0..lines {
        log.append(&line(&format!("{name}-{number}"), length(number))).unwrap();
        writeln!(stdout, "\nwritten {name}-{number}").unwrap();
    }
}

fn start_writer(folder: &Path, name: &str, lines: u64) -> Started {
    let mut command = this_test("storm::writer");
    Started::of(command.envs([(NAME, name), (LINES, &lines.to_string())]).env(FOLDER, folder))
}

/// Writes as the protocol's own programs do: one open file a line, or one for all lines.
const PYTHON: &str = r#"
import datetime, json, sys
path, name, lines, keep_open = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "open"
held = open(path, "a", encoding="utf-8") if keep_open else None
for number in range(lines):
    now = datetime.datetime.utcnow().isoformat(timespec="milliseconds") + "Z"
    line = {"state": "WAIT", "task_id": f"{name}-{number}", "timestamp": now, "message": "写" * (number * 37 % 5000)}
    text = json.dumps(line, ensure_ascii=number % 2 == 0) + "\n"
    if held:
        held.write(text)
        held.flush()
    else:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
"#;

fn start_python(log: &StatusLog, name: &str, lines: u64, how: &str) -> Started {
    let mut command = Command::new("python3");
    command.args(["-c", PYTHON]).arg(log.path()).args([name, &lines.to_string(), how]);
    Started::of(&mut command)
}

/// How often each line is in the log.
fn counted(log: &StatusLog) -> (BTreeMap<String, u64>, u64) {
    let summary = log.summary(WallTime::now()).unwrap();
    (summary.tasks.into_iter().map(|task| (task.task, task.lines)).collect(), summary.bad_lines)
}

/// Requirements 52, 69.
#[test]
fn no_line_is_lost_torn_or_doubled_in_a_storm_with_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(ROTATION);
    write_foreign(folder.path(), b"");
    let mut follow = log.follow_from_start().unwrap();
    let (ours, pythons, emitted) = (400, 400, 12);
    let names = ["a", "b", "c", "d"];
    let mut writers: Vec<Started> =
        names.iter().map(|name| start_writer(folder.path(), name, ours)).collect();
    writers.push(start_python(&log, "py-each", pythons, "each"));
    writers.push(start_python(&log, "py-open", pythons, "open"));
    for number in 0..emitted {
        let task = format!("cli-{number}");
        let mut emit = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        emit.args(["status", "emit", "SKIP", "--limit", "256K", "--keep", "100", "--task", &task]);
        Finished::of(emit.env("AI_SWARM_DIR", folder.path())).code(0);
    }
    for writer in writers {
        writer.wait().code(0);
    }
    let groups = names.map(|name| (name, ours)).into_iter().chain([
        ("py-each", pythons),
        ("py-open", pythons),
        ("cli", emitted),
    ]);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (name, lines) in groups {
        expected.extend((0..lines).map(|number| (format!("{name}-{number}"), 1)));
    }
    let (found, bad) = counted(&log);
    assert_eq!(bad, 0);
    assert!(found == expected, "differ: {:?}", difference(&found, &expected));
    let mut followed: BTreeMap<String, u64> = BTreeMap::new();
    while followed.values().sum::<u64>() < expected.len() as u64 {
        let line = follow.next(Some(LIMIT)).unwrap().expect("all lines are written already");
        *followed.entry(line.task().to_owned()).or_default() += 1;
    }
    assert!(follow.take().unwrap().is_none(), "nothing comes twice");
    assert!(followed == expected, "differ: {:?}", difference(&followed, &expected));
    assert_eq!(follow.bad_lines(), 0);
    let rotated = std::fs::read_dir(folder.path()).unwrap().count() - 1;
    assert!(rotated > 5, "only {rotated} rotations took place");
}

/// Requirement 52.
#[test]
fn the_death_of_writers_costs_no_line_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(ROTATION);
    let mut dice = Dice::from_environment();
    let mut acknowledged = Vec::new();
    let mut killed = 0;
    for round in 0..8 {
        let readers: Vec<_> = (0..3)
            .map(|place| {
                let mut victim = start_writer(folder.path(), &format!("v{round}-{place}"), 1_000_000);
                let after = 1 + dice.index(100);
                std::thread::spawn(move || {
                    let mut written: Vec<String> = (0..after).map(|_| victim.line_with("written ")).collect();
                    // It goes on writing while the signal is on its way.
                    victim.signal(Signal::KILL);
                    while let Some(line) = victim.try_line() {
                        written.extend(line.strip_prefix("written ").map(str::to_owned));
                    }
                    written
                })
            })
            .collect();
        for reader in readers {
            acknowledged.extend(reader.join().unwrap());
            killed += 1;
        }
    }
    log.append(&line("last", 10)).unwrap();
    acknowledged.push("last".to_owned());
    let (found, bad) = counted(&log);
    assert!(found.values().all(|lines| *lines == 1), "a line is there twice");
    for task in &acknowledged {
        assert!(found.contains_key(task), "{task} was written and is not there");
    }
    // A victim may have left one piece, to which another line may have been glued before it was written again.
    assert!(bad <= killed, "{bad} bad lines of {killed} who were killed");
    println!("{} lines, {} of them acknowledged, {bad} pieces", found.len(), acknowledged.len());
}

/// Writes a line in two pieces, and every third time only the first.
const TEARER: &str = r#"
import os, sys
for number in range(100000):
    if number % 50 == 0:
        # The log may have been rotated.
        log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, b'{"state": "DONE", "task_id": ')
    if number % 3:
        os.write(log, b'"torn", "timestamp": "2026-01-31T12:00:00.000Z"}\n')
    if number % 50 == 49:
        os.close(log)
"#;

/// Requirements 52, 71.
#[test]
fn the_pieces_of_others_cost_no_line_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let log = StatusLog::open(folder.path()).unwrap().with_rotation(ROTATION);
    let tear = || Started::of(Command::new("python3").args(["-c", TEARER]).arg(log.path()));
    let mut tearers = [tear(), tear()];
    let mut follow = log.follow_from_start().unwrap();
    // Both tear lines before the other writers begin.
    while follow.bad_lines() == 0 {
        follow.next(Some(LIMIT)).unwrap().expect("two of three lines are whole");
    }
    let lines = 300;
    let writers = ["a", "b"].map(|name| start_writer(folder.path(), name, lines));
    for writer in writers {
        writer.wait().code(0);
    }
    for tearer in &mut tearers {
        tearer.kill();
    }
    let (mut found, bad) = counted(&log);
    found.remove("torn");
    let expected: BTreeMap<String, u64> = ["a", "b"]
        .iter()
        .flat_map(|name| (0..lines).map(move |number| (format!("{name}-{number}"), 1)))
        .collect();
    assert!(found == expected, "differ: {:?}", difference(&found, &expected));
    println!("{bad} bad lines of others");
}

fn difference(found: &BTreeMap<String, u64>, expected: &BTreeMap<String, u64>) -> Vec<String> {
    let missing =
        expected.keys().filter(|task| !found.contains_key(*task)).map(|task| format!("{task} missing"));
    let wrong = found.iter().filter(|(task, lines)| expected.get(*task) != Some(lines));
    missing.chain(wrong.map(|(task, lines)| format!("{task} {lines} times"))).take(20).collect()
}
