//! How long predictions take on a long history: 100,000 commits over 20,000 files.
//!
//! `cargo bench -p lockkeeper --bench predict` prints one line a measurement. With `LOCKKEEPER_BENCH_REPOSITORY` it takes
//! a repository that is there instead of making one.
#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::predict::{History, Threshold};
use lockkeeper_engine::history::{Limits, read};
use lockkeeper_engine::predict::{Group, Terms, measure, predict};

const COMMITS: u64 = 100_000;
const FOLDERS: u64 = 400;
const FILES: u64 = 50;
const TERMS: Terms = Terms {
    limits: Limits { since: None, commits: 1_000_000, files: 50 },
    bar: Threshold { likelihood: 0.3, together: 3 },
    half_life: Duration::from_secs(365 * 86_400),
    most: 20,
};

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let repository = match std::env::var_os("LOCKKEEPER_BENCH_REPOSITORY") {
        Some(given) => PathBuf::from(given),
        None => {
            generate(folder.path());
            folder.path().to_owned()
        }
    };
    let git = timed(|| {
        let log = ["log", "--no-merges", "--name-status", "-z", "-M", "-l200", "--format=%H %ct"];
        let mut command = Command::new("git");
        assert!(command.args(log).current_dir(&repository).stdout(Stdio::null()).status().unwrap().success());
    });
    let mut past = None;
    let reading = timed(|| past = Some(read(&repository, TERMS.limits).unwrap()));
    let past = past.unwrap();
    println!("git log alone: {git:.2} s");
    println!("read {} commits, {} paths: {reading:.2} s", past.changes.len(), past.path_count());
    let learning = timed(|| drop(std::hint::black_box(History::new(&past.changes, TERMS.half_life))));
    println!("learn: {learning:.3} s");
    for (what, groups) in [
        ("one file", vec![group("a", "f7/3.rs")]),
        ("a folder", vec![group("a", "f7/**")]),
        ("half of the files", vec![group("a", "f[0-1]*/**")]),
        ("20 groups", (0..20).map(|number| group(&number.to_string(), &format!("f{number}/**"))).collect()),
    ] {
        let whole = timed(|| drop(predict(&repository, &groups, &TERMS).unwrap()));
        println!("predict for {what}, reading included: {whole:.2} s");
    }
    let whole = timed(|| assert!(measure(&repository, &TERMS).unwrap().1.questions > 0));
    println!("evaluate, reading included: {whole:.2} s");
}

fn group(name: &str, pattern: &str) -> Group {
    Group { name: name.to_owned(), patterns: vec![pattern.parse::<Pattern>().unwrap()] }
}

fn timed(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

/// A history of commits of one to eight files, mostly of one folder.
fn generate(folder: &Path) {
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(args).current_dir(folder);
        command
    };
    assert!(git(&["init", "-q", "-b", "main"]).status().unwrap().success());
    let mut import = git(&["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stream = std::io::BufWriter::new(import.stdin.take().unwrap());
    let mut state = 7_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for number in 0..COMMITS {
        let home = below(FOLDERS);
        let mut text = format!(
            "commit refs/heads/main\ncommitter t <t@t> {} +0000\ndata 7\nchange\n",
            1_500_000_000 + number * 600
        );
        for _ in 0..1 + below(8) {
            let place = if below(4) == 0 { below(FOLDERS) } else { home };
            let content = number.to_string();
            let path = format!("f{place}/{}.rs", below(FILES));
            write!(text, "M 100644 inline {path}\ndata {}\n{content}\n", content.len()).unwrap();
        }
        stream.write_all(text.as_bytes()).unwrap();
    }
    drop(stream);
    assert!(import.wait().unwrap().success());
}
