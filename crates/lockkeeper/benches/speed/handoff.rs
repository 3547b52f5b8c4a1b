//! From the end of one holder to the start of the next.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use lockkeeper::Keeper;
use lockkeeper_engine::open::open_engine;

use crate::measure::{Row, lockkeeper, median, quiet};

/// Ten commands wait in line; each writes down when it starts and when it ends.
pub fn between_commands() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let (state, file) = (folder.path().join("state"), folder.path().join("flock"));
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for round in 0..12 {
        ours.extend(gaps(&folder.path().join(format!("ours{round}")), |script| {
            let mut command = quiet(lockkeeper());
            command.arg("--dir").arg(&state).args(["exec", "db", "--", "sh", "-c"]).arg(script);
            command.spawn().expect("it starts")
        }));
        bare.extend(gaps(&folder.path().join(format!("bare{round}")), |script| {
            quiet("flock").arg(&file).args(["sh", "-c"]).arg(script).spawn().expect("it starts")
        }));
    }
    vec![Row::times("hand-off between waiting commands, against flock(1)", median(ours), median(bare), 1.5)]
}

/// Starts ten commands at once and returns the gaps between the end of one and the start of the next.
fn gaps(log: &Path, start: impl Fn(&str) -> Child) -> Vec<Duration> {
    // The first holds until all are in line; date has nanoseconds and both ends pay for it alike.
    let script = format!("date +%s%N >> {0}; sleep 0.02; date +%s%N >> {0}", log.display());
    let children: Vec<Child> = (0..10).map(|_| start(&script)).collect();
    for mut child in children {
        child.wait().expect("it ends");
    }
    let times: Vec<u64> =
        fs::read_to_string(log).expect("a log").lines().map(|line| line.parse().expect("a time")).collect();
    // The first few were still lining up.
    times
        .chunks(2)
        .skip(4)
        .zip(times.chunks(2).skip(5))
        .map(|(one, next)| Duration::from_nanos(next[0] - one[1]))
        .collect()
}

/// What threads do while they hold the lock, and after they have let go.
#[derive(Clone, Copy)]
enum Manner {
    /// They work: the next one has to be woken on another core.
    Works,
    /// They sleep: the next one gets their core as soon as they have fallen asleep, and nobody else is woken.
    Sleeps,
}

impl Manner {
    fn pass(self, span: Duration) {
        let since = Instant::now();
        match self {
            Self::Works => while since.elapsed() < span {},
            Self::Sleeps => thread::sleep(span),
        }
    }
}

/// Two threads with a keeper each pass one lock to and fro, against two threads on a bare flock.
pub fn between_threads() -> Vec<Row> {
    let works = "hand-off within a process, against a bare flock";
    let sleeps = "the same, the waiter runs on the core of the last holder";
    let (works, sleeps) = (hand_offs(works, Manner::Works), hand_offs(sleeps, Manner::Sleeps));
    vec![works, Row { limit: None, ..sleeps }]
}

fn hand_offs(what: &str, manner: Manner) -> Row {
    let folder = tempfile::tempdir().expect("a folder");
    let (state, path) = (folder.path().join("state"), folder.path().join("flock"));
    File::create(&path).expect("a file");
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        ours.push(ping_pong(200, manner, || {
            let keeper = Keeper::open(&state).expect("a store");
            move |critical: &mut dyn FnMut()| {
                let guard = keeper.lock("db").acquire().expect("it comes");
                critical();
                drop(guard);
            }
        }));
        bare.push(ping_pong(200, manner, || {
            let file = File::open(&path).expect("a file");
            move |critical: &mut dyn FnMut()| {
                file.lock().expect("it comes");
                critical();
                file.unlock().expect("it goes");
            }
        }));
    }
    Row::times(what, median(ours), median(bare), 6.0)
}

/// The median time from one thread leaving to the other, asleep until then, entering.
fn ping_pong<L>(turns: usize, manner: Manner, make: impl Fn() -> L) -> Duration
where
    L: FnMut(&mut dyn FnMut()) + Send + 'static,
{
    let (sender, receiver) = mpsc::channel();
    let entered_by = Arc::new(AtomicUsize::new(usize::MAX));
    let threads: Vec<_> = (0..2)
        .map(|who| {
            let (mut lock, sender, entered_by) = (make(), sender.clone(), Arc::clone(&entered_by));
            thread::spawn(move || {
                for turn in 0..turns {
                    // Nobody asks again before the other one is in, so that each turn is a hand-off to a sleeper.
                    while turn > 0 && entered_by.load(Ordering::SeqCst) == who {
                        manner.pass(Duration::from_micros(50));
                    }
                    lock(&mut || {
                        let entered = Instant::now();
                        entered_by.store(who, Ordering::SeqCst);
                        // Long enough for the other one to ask and fall asleep.
                        manner.pass(Duration::from_millis(1));
                        sender.send((who, entered, Instant::now())).expect("somebody listens");
                    });
                }
                // The other one may have a turn left.
                entered_by.store(usize::MAX, Ordering::SeqCst);
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it ends");
    }
    drop(sender);
    let mut visits: Vec<(usize, Instant, Instant)> = receiver.iter().collect();
    visits.sort_by_key(|visit| visit.1);
    let passed = visits.windows(2).filter(|pair| pair[0].0 != pair[1].0);
    median(passed.map(|pair| pair[1].1.saturating_duration_since(pair[0].2)).collect())
}

/// A holder is killed with -9 together with its command; the next in line holds.
pub fn after_kill() -> Vec<Row> {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let mut samples = Vec::new();
    for _ in 0..30 {
        let keeper = Keeper::open(&state).expect("a store");
        let mut holder = quiet(lockkeeper())
            .arg("--dir")
            .arg(&state)
            .args(["exec", "db", "--", "cat"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        // The command echoes once it holds.
        let mut input = holder.stdin.take().expect("a pipe");
        let mut output = holder.stdout.take().expect("a pipe");
        std::io::Write::write_all(&mut input, b"x").expect("it reads");
        output.read_exact(&mut [0]).expect("it answers");
        let waiter = thread::spawn(move || {
            let guard = keeper.lock("db").acquire().expect("it comes");
            let held = Instant::now();
            drop(guard);
            held
        });
        wait_for_ticket(&state);
        // The wrapper dies first; its command, the last process, when its input ends.
        holder.kill().expect("it dies");
        holder.wait().expect("it is gone");
        let pid_gone = Instant::now();
        drop(input);
        let _ = output.read(&mut [0]);
        let command_gone = Instant::now().max(pid_gone);
        samples.push(waiter.join().expect("it ends").saturating_duration_since(command_gone));
    }
    vec![Row::times(
        "kill -9, last process to next holder, against 5 ms",
        median(samples),
        Duration::from_millis(5),
        1.0,
    )]
}

fn wait_for_ticket(state: &Path) {
    let engine = open_engine(state).expect("a store");
    while engine.listing().expect("a listing").waiters.is_empty() {
        thread::yield_now();
    }
}
