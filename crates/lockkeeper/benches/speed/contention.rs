//! Contention: many processes on one lock.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use lockkeeper::Keeper;

use crate::floor;
use crate::measure::{Row, lockkeeper, quiet};

/// How long one storm lasts.
const SPAN: Duration = Duration::from_secs(2);
/// How many storms of each kind there are. They take turns, so that other load of the machine hits all of them. Medians count.
const ROUNDS: usize = 5;

/// 64 processes take one lock again and again, against an advisory lock of PostgreSQL if it is installed.
pub fn sixty_four_on_one_lock() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let share =
        |turns: &[u64]| *turns.iter().min().unwrap_or(&0) as f64 / *turns.iter().max().unwrap_or(&1) as f64;
    let rate = |turns: &[u64]| turns.iter().sum::<u64>() as f64 / SPAN.as_secs_f64();
    let (flock, _) = storm("flock", &folder.path().join("flock"));
    let (mut shares, mut overtaken, mut ours, mut theirs, mut floors) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let folder = folder.path().join(round.to_string());
        let (turns, overtook) = storm("lease", &folder);
        shares.push(share(&turns));
        overtaken.push(overtook * 100.0);
        ours.push(rate(&turns));
        theirs.extend(postgres_turns());
        floors.push(rate(&storm("floor", &folder).0));
    }
    let ours = middle(ours);
    let mut rows = vec![
        Row::at_least("64 processes: smallest share of the largest", middle(shares), 1.0, "", 0.9),
        Row { limit: None, ..Row::at_least("  (flock's own smallest share)", share(&flock), 1.0, "", 0.0) },
        Row::at_most("64 processes: overtaken, of 100 turns", middle(overtaken), 1.0, "%", 1.0),
        Row {
            limit: None,
            ..Row::at_least("  (turns a second, against flock)", ours, rate(&flock), "/s", 0.0)
        },
    ];
    if theirs.is_empty() {
        println!("  (no comparison with PostgreSQL: pgbench and initdb are not installed)");
    } else {
        let what = "64 processes: turns, against PostgreSQL advisory";
        rows.push(Row::at_least(what, ours, middle(theirs), "/s", 0.35));
    }
    let what = "  (floor: two bare commits and a wake-up a turn)";
    rows.push(Row { limit: None, ..Row::at_least(what, ours, middle(floors), "/s", 0.0) });
    rows
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs 64 workers of one role; returns their turns, and the share of turns that went before somebody who had
/// asked earlier.
fn storm(role: &str, folder: &Path) -> (Vec<u64>, f64) {
    let program = std::env::current_exe().expect("this program");
    let logs = folder.join(format!("{role}-logs"));
    fs::create_dir_all(&logs).expect("a folder");
    let start = folder.join(format!("{role}-start"));
    let children: Vec<Child> = (0..64)
        .map(|number| {
            let mut worker = Command::new(&program);
            worker.env("BENCH_ROLE", role).env("BENCH_STATE", folder.join(format!("{role}-state")));
            worker.env("BENCH_LOG", logs.join(number.to_string())).env("BENCH_START", &start);
            worker.env("BENCH_NUMBER", number.to_string());
            worker.spawn().expect("it starts")
        })
        .collect();
    // Everybody has opened its store before the first one begins, so that shares are those of one same span.
    while fs::read_dir(&logs).expect("a folder").count() < children.len() {
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::write(&start, "").expect("a sign");
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    // Each turn: when it was asked for and when it came, on the same monotonic clock in every process.
    let mut turns: Vec<(u64, u64)> = Vec::new();
    let mut counts = Vec::new();
    for number in 0..64 {
        let text = fs::read_to_string(logs.join(number.to_string())).expect("a log");
        let own: Vec<(u64, u64)> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(asked, came)| (asked.parse().expect("a time"), came.parse().expect("a time")))
            .collect();
        counts.push(own.len() as u64);
        turns.extend(own);
    }
    turns.sort_by_key(|turn| turn.1);
    // Somebody who asked clearly earlier (by a millisecond: before that the order of arrival is not defined) and
    // got it later was overtaken.
    let mut earliest_after = u64::MAX;
    let overtaken = turns
        .iter()
        .rev()
        .filter(|(asked, _)| {
            let overtook = *asked > earliest_after.saturating_add(1_000_000);
            earliest_after = earliest_after.min(*asked);
            overtook
        })
        .count();
    (counts, overtaken as f64 / turns.len().max(1) as f64)
}

/// What a worker process does.
pub fn work(role: &str) -> ExitCode {
    let path = |name: &str| std::path::PathBuf::from(std::env::var_os(name).expect("it is set"));
    let (state, log, start) = (path("BENCH_STATE"), path("BENCH_LOG"), path("BENCH_START"));
    let mut turn: Box<dyn FnMut() -> u64> = match role {
        "lease" => {
            let keeper = Keeper::open(&state).expect("a store");
            Box::new(move || {
                let guard = keeper.lock("db").acquire().expect("it comes");
                let came = now();
                drop(guard);
                came
            })
        }
        "floor" => floor::turns(&state),
        _ => {
            let file = File::options().create(true).append(true).open(&state).expect("a file");
            Box::new(move || {
                file.lock().expect("it comes");
                let came = now();
                file.unlock().expect("it goes");
                came
            })
        }
    };
    fs::write(&log, "").expect("a log");
    while !start.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let until = Instant::now() + SPAN;
    let mut lines = String::new();
    while Instant::now() < until {
        let asked = now();
        let came = turn();
        lines.push_str(&format!("{asked} {came}\n"));
    }
    fs::write(log, lines).expect("a log");
    ExitCode::SUCCESS
}

pub fn now() -> u64 {
    lockkeeper_platform::clock::now().as_micros().cast_unsigned() * 1000
}

/// Turns a second of 64 clients on one advisory lock, by pgbench on a server of our own.
fn postgres_turns() -> Option<f64> {
    let bin =
        fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path().join("bin")).next()?;
    if !bin.join("pgbench").exists() || !bin.join("initdb").exists() {
        return None;
    }
    let folder = tempfile::tempdir().ok()?;
    let (data, script) = (folder.path().join("data"), folder.path().join("turn.sql"));
    fs::write(&script, "SELECT pg_advisory_lock(1);\nSELECT pg_advisory_unlock(1);\n").ok()?;
    // The server refuses to run as root.
    let as_user = |program: &str| {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = quiet("setpriv");
            command
                .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"])
                .arg(bin.join(program));
            command
        } else {
            quiet(bin.join(program))
        };
        command.current_dir(folder.path());
        command
    };
    run_ok(quiet("chown").args(["-R", "postgres"]).arg(folder.path()));
    run_ok(as_user("initdb").arg("-D").arg(&data).args(["-A", "trust", "--no-sync", "-U", "postgres"]))?;
    let options =
        format!("-c listen_addresses='' -c max_connections=80 -c fsync=off -k {}", folder.path().display());
    run_ok(
        as_user("pg_ctl")
            .arg("-D")
            .arg(&data)
            .args(["-w", "-o", &options, "-l"])
            .arg(folder.path().join("log"))
            .arg("start"),
    )?;
    let mut bench = as_user("pgbench");
    bench
        .args(["-n", "-c", "64", "-j", "2", "-T", &SPAN.as_secs().to_string(), "-U", "postgres", "-h"])
        .arg(folder.path())
        .arg("-f")
        .arg(&script);
    let output = bench.arg("postgres").stdout(std::process::Stdio::piped()).output();
    run_ok(as_user("pg_ctl").arg("-D").arg(&data).args(["-m", "immediate", "stop"]));
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let line = text.lines().find(|line| line.starts_with("tps = "))?;
    line.split_whitespace().nth(2)?.parse().ok()
}

fn run_ok(command: &mut Command) -> Option<()> {
    command.status().ok().filter(std::process::ExitStatus::success).map(|_| ())
}

/// 50 commands over 5 names, each holding for 100 ms: the best possible is one second.
pub fn fifty_over_five_groups() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let mut ours = Vec::new();
    let mut bare = Vec::new();
    let mut overlaps = 0;
    for round in 0..3 {
        let log = folder.path().join(format!("ours{round}"));
        ours.push(fifty(&log, |group, script| {
            let mut command = quiet(lockkeeper());
            command.arg("--dir").arg(&state).args(["exec", &format!("g{group}"), "--", "sh", "-c", script]);
            command
        }));
        overlaps += count_overlaps(&log);
        let log = folder.path().join(format!("bare{round}"));
        bare.push(fifty(&log, |group, script| {
            let mut command = quiet("flock");
            command.arg(folder.path().join(format!("flock{group}"))).args(["sh", "-c", script]);
            command
        }));
        assert_eq!(count_overlaps(&log), 0, "flock itself does not let two in");
    }
    let (ours, bare) = (crate::measure::median(ours), crate::measure::median(bare));
    vec![
        Row::times("50 commands, 5 names, 100 ms each, against flock(1)", ours, bare, 1.05),
        Row::at_most(
            "  overlaps (0 is the limit; shown as 1 + overlaps)",
            1.0 + f64::from(overlaps),
            1.0,
            "",
            1.0,
        ),
    ]
}

fn fifty(log: &Path, command: impl Fn(usize, &str) -> Command) -> Duration {
    fs::create_dir_all(log).expect("a folder");
    let started = Instant::now();
    let children: Vec<Child> = (0..50)
        .map(|number| {
            let group = number % 5;
            let file = log.join(format!("{group}-{number}"));
            let script = format!("date +%s%N > {0}; sleep 0.1; date +%s%N >> {0}", file.display());
            command(group, &script).spawn().expect("it starts")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    started.elapsed()
}

fn count_overlaps(log: &Path) -> u32 {
    let mut holds: Vec<(String, u64, u64)> = fs::read_dir(log)
        .expect("a folder")
        .flatten()
        .map(|entry| {
            let group = entry.file_name().to_string_lossy().split('-').next().unwrap_or_default().to_owned();
            let text = fs::read_to_string(entry.path()).expect("a log");
            let times: Vec<u64> = text.lines().map(|line| line.parse().expect("a time")).collect();
            (group, times[0], times[1])
        })
        .collect();
    holds.sort();
    let overlaps = holds.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2);
    u32::try_from(overlaps.count()).unwrap_or(u32::MAX)
}
