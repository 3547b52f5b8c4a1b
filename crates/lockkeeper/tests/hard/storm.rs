//! The conductor of a storm: keeps many workers going, kills and stops them at random, and collects their histories.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockkeeper_testing::Dice;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::check::{Findings, check};
use crate::history::{Event, Mode, Recorder, Want, now, read_all};
use crate::worker::WORKER;

/// Once nobody is killed any more, everybody must be done within this time.
const CALM_LIMIT: Duration = Duration::from_secs(90);

/// What the conductor does to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// SIGKILL at random times.
    Kills,
    /// SIGKILL and SIGSTOP, later SIGCONT, at random times.
    KillsAndStops,
}

/// A storm: how many at once, and what happens to them.
pub struct Storm {
    pub crowd: usize,
    pub weather: Weather,
    /// Whether workers run under `exec`, which can be killed apart from them.
    pub wrapped: bool,
}

/// What a storm left behind.
pub struct Aftermath {
    pub folder: tempfile::TempDir,
    pub findings: Findings,
    pub about: String,
    /// From here on nobody was killed or stopped.
    pub calm_since: u64,
    pub kills: usize,
    pub stops: usize,
    /// The longest time in which every single worker slept: nobody works, nobody is on the way to work.
    pub all_asleep: Duration,
}

struct Stage<'s> {
    storm: &'s Storm,
    folder: &'s Path,
    live: Mutex<BTreeMap<u64, Arc<OwnedFd>>>,
    pids: Mutex<BTreeMap<u64, u32>>,
    /// Who was sent what is not expected to end well.
    hurt: Mutex<BTreeMap<u64, u64>>,
    /// The moments before the SIGKILLs of those who were inside, or about to be.
    deaths: Mutex<BTreeMap<u64, u64>>,
    failures: Mutex<Vec<String>>,
    numbers: AtomicU64,
    over: AtomicBool,
}

impl Storm {
    /// Runs the storm; `start` gives the command of a worker, by folder, number, seed and the moment to end.
    pub fn run(&self, start: impl Fn(&Path, u64, u64, u64) -> Command + Sync) -> Aftermath {
        let mut dice = Dice::from_environment();
        let seed = dice.seed();
        let folder = tempfile::tempdir().unwrap();
        for part in ["history", "marker", "fenced", "pids"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
        }
        let seconds = std::env::var("LOCKKEEPER_STORM_SECONDS").map_or(6, |text| text.parse().unwrap());
        let rough = Duration::from_secs(seconds) * 2 / 3;
        let until = now() + Duration::from_secs(seconds).as_nanos() as u64;
        let stage = Stage {
            storm: self,
            folder: folder.path(),
            live: Mutex::default(),
            pids: Mutex::default(),
            hurt: Mutex::default(),
            deaths: Mutex::default(),
            failures: Mutex::default(),
            numbers: AtomicU64::new(1),
            over: AtomicBool::new(false),
        };
        let ((kills, stops, calm_since), all_asleep) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| stage.watch_sleep());
            for _ in 0..self.crowd {
                scope.spawn(|| stage.keep_going(until, seed, &start));
            }
            let hurt = stage.rage(&mut dice, Instant::now() + rough);
            stage.expect_calm(until);
            stage.over.store(true, Ordering::Relaxed);
            (hurt, watch.join().unwrap())
        });
        let deaths = stage.deaths.into_inner().unwrap();
        let mut findings = check(&read_all(&folder.path().join("history")), &deaths);
        findings.violations.extend(stage.failures.into_inner().unwrap());
        let about = format!(
            "LOCKKEEPER_SEED={seed} crowd={} {:?} kills={kills} stops={stops} holds={}",
            self.crowd,
            self.weather,
            findings.holds.len()
        );
        eprintln!("{about}");
        Aftermath { folder, findings, about, calm_since, kills, stops, all_asleep }
    }
}

impl Stage<'_> {
    /// One place in the crowd: as soon as a worker is gone, the next one comes.
    fn keep_going(&self, until: u64, seed: u64, start: &(impl Fn(&Path, u64, u64, u64) -> Command + Sync)) {
        while now() < until {
            let worker = self.numbers.fetch_add(1, Ordering::Relaxed);
            if self.storm.wrapped {
                let wants = [Want::new(Mode::Exclusive, "alpha")];
                Recorder::open(&self.folder.join("history"), worker).note(Event::Ask, 0, &wants);
            }
            let mut command =
                start(self.folder, worker, seed ^ worker.wrapping_mul(0x2545_f491_4f6c_dd1d), until);
            let mut child =
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            // It was not waited for yet, so the number is still its own.
            let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
            self.live.lock().unwrap().insert(worker, Arc::new(handle));
            self.pids.lock().unwrap().insert(worker, child.id());
            let mut talk = String::new();
            let mut stderr = child.stderr.take().unwrap();
            // What a killed wrapper left running may keep this open: that is waited for as well.
            let _ = std::io::Read::read_to_string(&mut stderr, &mut talk);
            self.pids.lock().unwrap().remove(&worker);
            let status = child.wait().unwrap();
            self.live.lock().unwrap().remove(&worker);
            if !status.success() && !self.hurt.lock().unwrap().contains_key(&worker) {
                self.failures.lock().unwrap().push(format!("worker {worker} ended with {status}: {talk}"));
            }
        }
    }

    /// Measures how long all workers slept together. A process that only waits for the processor counts as awake, so
    /// that a loaded machine makes no difference.
    fn watch_sleep(&self) -> Duration {
        let (mut longest, mut since) = (Duration::ZERO, Instant::now());
        while !self.over.load(Ordering::Relaxed) {
            let pids: Vec<u32> = self.pids.lock().unwrap().values().copied().collect();
            let is_asleep = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
                stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')))
            };
            let asleep = |pid: &u32| {
                let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
                tasks.is_ok_and(|mut tasks| tasks.all(is_asleep))
            };
            if pids.is_empty() || !pids.iter().all(asleep) {
                since = Instant::now();
            }
            longest = longest.max(since.elapsed());
            std::thread::sleep(Duration::from_millis(10));
        }
        longest
    }

    /// Kills and stops at random until a moment, then lets everybody go on.
    fn rage(&self, dice: &mut Dice, until: Instant) -> (usize, usize, u64) {
        let (mut kills, mut stops) = (0, 0);
        let mut stopped: Vec<(Instant, Vec<Arc<OwnedFd>>)> = Vec::new();
        let mut killed = BTreeSet::new();
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2 + dice.below(25)));
            let due = Instant::now();
            stopped.retain(|(at, handles)| *at > due || !go_on(handles));
            let live: Vec<(u64, Arc<OwnedFd>)> = self
                .live
                .lock()
                .unwrap()
                .iter()
                .map(|(worker, handle)| (*worker, Arc::clone(handle)))
                .collect();
            if live.is_empty() {
                continue;
            }
            let (worker, handle) = &live[dice.below(live.len() as u64) as usize];
            let command = self.storm.wrapped.then(|| self.command_of(*worker)).flatten();
            let target = match &command {
                Some(command) if dice.below(2) == 0 => command,
                Some(_) | None => handle,
            };
            let is_worker =
                !self.storm.wrapped || command.as_ref().is_some_and(|command| std::ptr::eq(command, target));
            if self.storm.weather == Weather::KillsAndStops && dice.below(3) == 0 {
                if pidfd_send_signal(target, Signal::STOP).is_ok() {
                    let at = Instant::now() + Duration::from_millis(20 + dice.below(300));
                    // A wrapper may stop together with its command.
                    stopped.push((
                        at,
                        [Some(handle), command.as_ref()].into_iter().flatten().cloned().collect(),
                    ));
                    stops += 1;
                }
                continue;
            }
            if is_worker && !killed.insert(*worker) {
                continue;
            }
            // Noted first: the next holder may be inside before this thread runs again.
            let at = now();
            self.hurt.lock().unwrap().insert(*worker, at);
            // A wrapper that is killed before its command runs leaves an ask without an answer.
            let never_ran = self.storm.wrapped && command.is_none();
            if is_worker || never_ran {
                self.deaths.lock().unwrap().insert(*worker, at);
            }
            kills += usize::from(pidfd_send_signal(target, Signal::KILL).is_ok());
        }
        for (_, handles) in &stopped {
            go_on(handles);
        }
        (kills, stops, now())
    }

    /// The command that runs under a wrapper, if it is inside already; verified after the handle was opened.
    fn command_of(&self, worker: u64) -> Option<Arc<OwnedFd>> {
        let text = std::fs::read_to_string(self.folder.join("pids").join(worker.to_string())).ok()?;
        let pid: i32 = text.parse().ok()?;
        let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let mark = format!("{WORKER}={worker}");
        let own = environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes());
        own.then(|| Arc::new(handle))
    }

    /// Fails when somebody is still there long after the last kill, with what everybody waits for.
    fn expect_calm(&self, until: u64) {
        let limit = Instant::now() + Duration::from_nanos(until.saturating_sub(now())) + CALM_LIMIT;
        while !self.live.lock().unwrap().is_empty() || now() < until {
            if Instant::now() > limit {
                let listing = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
                    .args(["locks", "--json", "--dir"])
                    .arg(self.folder.join("store"))
                    .output()
                    .unwrap();
                for handle in self.live.lock().unwrap().values() {
                    let _ = pidfd_send_signal(handle, Signal::KILL);
                }
                let text = String::from_utf8_lossy(&listing.stdout).into_owned();
                self.failures.lock().unwrap().push(format!("the storm did not end: {text}"));
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn go_on(handles: &[Arc<OwnedFd>]) -> bool {
    for handle in handles {
        // A process that ended needs no SIGCONT.
        let _ = pidfd_send_signal(handle, Signal::CONT);
    }
    true
}

impl Aftermath {
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }
}
