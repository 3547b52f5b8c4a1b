//! How fast the status log is written, followed and summed up, against what the system itself can do.
//!
//! `cargo bench -p lockkeeper --bench status` prints one line a measurement.
#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper_formats::status::{Rotation, State, StatusLine, StatusLog};
use lockkeeper_platform::wall_clock::WallTime;

const ROUNDS: usize = 5;
const LINES: usize = 20_000;
const LATENCIES: usize = 2_000;

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let encoded = per_second(1, || |number| drop(std::hint::black_box(line(number).to_text())));
    println!("encode: {encoded:.0} lines/s, the clock included");
    appending(folder.path(), 1);
    appending(folder.path(), 2);
    latency(folder.path());
    summing(folder.path());
}

fn line(number: usize) -> StatusLine {
    let line = StatusLine::new(State::Start, format!("task-{}", number % 500), WallTime::now()).unwrap();
    line.with_message("building the part that everybody waits for").with_worker("worker-1").unwrap()
}

/// Appends by as many threads as told, each with an open file of its own, as processes have.
fn appending(folder: &Path, threads: usize) {
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    let rotation = Rotation { limit: 0, keep: 1 };
    for round in 0..ROUNDS {
        // Both in turns, so that a busy machine is busy for both.
        let path = folder.join(format!("raw-{threads}-{round}"));
        let bytes = line(0).to_text() + "\n";
        raw.push(per_second(threads, || {
            let mut file = File::options().append(true).create(true).open(&path).unwrap();
            let bytes = bytes.as_bytes();
            move |_| file.write_all(bytes).unwrap()
        }));
        let place = folder.join(format!("log-{threads}-{round}"));
        ours.push(per_second(threads, || {
            let log = StatusLog::open(&place).unwrap().with_rotation(rotation);
            move |number| log.append(&line(number)).unwrap()
        }));
    }
    let (raw, ours) = (median(&mut raw), median(&mut ours));
    println!(
        "append, {threads} writers: {ours:.0} lines/s; bare write of ready bytes {raw:.0}/s; ratio {:.2}",
        ours / raw
    );
}

fn per_second<W: FnMut(usize) + Send>(threads: usize, writer: impl Fn() -> W) -> f64 {
    let writers: Vec<W> = (0..threads).map(|_| writer()).collect();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for mut write in writers {
            scope.spawn(move || (0..LINES).for_each(&mut write));
        }
    });
    (threads * LINES) as f64 / begin.elapsed().as_secs_f64()
}

/// From before the append until the follower has the line.
fn latency(folder: &Path) {
    let log = StatusLog::open(folder.join("latency")).unwrap();
    log.append(&line(0)).unwrap();
    let mut follow = log.follow().unwrap();
    let (sender, received) = std::sync::mpsc::channel();
    let mut spans: Vec<Duration> = Vec::with_capacity(LATENCIES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..LATENCIES {
                follow.next(None).unwrap();
                sender.send(Instant::now()).unwrap();
            }
        });
        for number in 0..LATENCIES {
            // The follower is asleep again when the next line comes.
            std::thread::sleep(Duration::from_micros(500));
            let begin = Instant::now();
            log.append(&line(number)).unwrap();
            spans.push(received.recv().unwrap().duration_since(begin));
        }
    });
    spans.sort_unstable();
    let at = |share: f64| spans[(spans.len() as f64 * share) as usize];
    println!("follow: p50 {:?}, p99 {:?} from append to line", at(0.5), at(0.99));
}

fn summing(folder: &Path) {
    let place = folder.join("sum");
    let log = StatusLog::open(&place).unwrap().with_rotation(Rotation { limit: 0, keep: 1 });
    let block: String = (0..10_000).map(|number| line(number).to_text() + "\n").collect();
    log.append(&line(0)).unwrap();
    let mut file = File::options().append(true).open(log.path()).unwrap();
    (0..20).for_each(|_| file.write_all(block.as_bytes()).unwrap());
    let size = file.metadata().unwrap().len() as f64 / 1e6;
    let begin = Instant::now();
    let summary = log.summary(WallTime::now()).unwrap();
    let span = begin.elapsed().as_secs_f64();
    println!("summary: {} lines, {size:.0} MB in {span:.2} s, {:.0} MB/s", summary.lines, size / span);
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
