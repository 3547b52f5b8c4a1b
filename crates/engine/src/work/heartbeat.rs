//! Heartbeats of workers that execute something, and how other workers notice that they stopped.
//!
//! The kernel shows at once when a worker has died. Heartbeats show that a live worker does nothing: it was stopped, or its
//! container was frozen. A heartbeat is a counter in a file of its own, so that it never waits for the disk. An observer compares
//! a counter only with the value that it read before, so no wall clock matters: while the whole machine is suspended, no counter
//! changes.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockkeeper_core::id::WorkerId;
use lockkeeper_platform::access;

/// A worker is silent when it has missed this many heartbeats in a row.
const MISSED_BEATS: u32 = 3;

/// Counters are read no more often than this.
const SHORTEST: Duration = Duration::from_millis(50);

/// The width of both numbers in the file. It never changes, so that no heartbeat needs room on the disk.
const WIDTH: usize = 20;

fn folder(state: &Path) -> PathBuf {
    state.join("beats")
}

fn path(state: &Path, worker: &WorkerId) -> PathBuf {
    folder(state).join(worker.as_str())
}

/// Removes the heartbeat file of a worker that is gone.
pub(super) fn remove(state: &Path, worker: &WorkerId) {
    let _ = fs::remove_file(path(state, worker));
}

/// The paths of all heartbeat files. To find stray files, list them first and the registered workers afterwards: a
/// worker is registered before it makes its file.
pub(super) fn files(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(state)).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The heartbeat file of this worker: a counter that only grows, and how often it does, in milliseconds.
#[derive(Debug)]
pub(super) struct HeartbeatFile {
    file: Arc<File>,
    count: Arc<AtomicU64>,
    every: Duration,
}

impl HeartbeatFile {
    /// Makes the file, with all the room that it will ever need.
    pub(super) fn make(state: &Path, worker: &WorkerId, every: Duration) -> io::Result<Self> {
        access::make_folder(&folder(state))?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path(state, worker))?;
        access::inherit(&file, &folder(state))?;
        let made = Self { file: Arc::new(file), count: Arc::default(), every };
        beat(&made.file, &made.count, every)?;
        Ok(made)
    }

    /// Starts a thread that counts until it is dropped.
    pub(super) fn start(&self) -> io::Result<Heartbeat> {
        let (running, stop) = channel();
        let (file, count, every) = (Arc::clone(&self.file), Arc::clone(&self.count), self.every);
        let body = move || {
            loop {
                // A heartbeat that cannot be written counts as missed. Other workers act after several missed ones.
                let _ = beat(&file, &count, every);
                match stop.recv_timeout(every) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("heartbeat".to_owned()).spawn(body)?;
        Ok(Heartbeat { running: Some(running), thread: Some(thread) })
    }
}

fn beat(file: &File, count: &AtomicU64, every: Duration) -> io::Result<()> {
    let count = count.fetch_add(1, Ordering::Relaxed);
    let line = format!("{count:0WIDTH$} {:0WIDTH$}\n", every.as_millis());
    file.write_all_at(line.as_bytes(), 0)
}

/// A thread that counts while this worker executes something.
pub(super) struct Heartbeat {
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The last counter of a worker that was read.
#[derive(Debug)]
struct LastCounter {
    line: String,
    since: Instant,
    looks: u32,
}

/// Watches the heartbeats of other workers.
#[derive(Debug, Default)]
pub(super) struct HeartbeatWatch {
    last: HashMap<WorkerId, LastCounter>,
    next: Option<Instant>,
    /// The shortest interval of the workers that were looked at last.
    shortest: Option<Duration>,
}

impl HeartbeatWatch {
    /// When to read the counters next. None if `anybody` is false: no other worker executes anything.
    pub(super) fn due(&mut self, anybody: bool, every: Duration) -> Option<Instant> {
        if !anybody {
            *self = Self::default();
        } else if self.next.is_none() {
            self.next = Some(Instant::now() + self.interval(every));
        }
        self.next
    }

    /// An observer polls at the shortest interval of all workers, so that each is replaced after three of its own intervals.
    fn interval(&self, every: Duration) -> Duration {
        self.shortest.map_or(every, |shortest| every.min(shortest.max(SHORTEST)))
    }

    /// Looks at these workers if it is time to, and returns those that are silent.
    pub(super) fn look<'w>(
        &mut self,
        state: &Path,
        workers: impl Iterator<Item = &'w WorkerId>,
        every: Duration,
    ) -> Vec<WorkerId> {
        let now = Instant::now();
        if self.next.is_some_and(|next| next > now) {
            return Vec::new();
        }
        let mut silent = Vec::new();
        let mut intervals = Vec::new();
        let mut before = std::mem::take(&mut self.last);
        for worker in workers {
            let line = fs::read_to_string(path(state, worker)).unwrap_or_default();
            let seen = match before.remove(worker) {
                Some(known) if known.line == line => LastCounter { looks: known.looks + 1, ..known },
                Some(_) | None => LastCounter { line, since: now, looks: 1 },
            };
            intervals.extend(interval_in(&seen.line));
            if seen.looks > MISSED_BEATS && now.duration_since(seen.since) >= silent_after(&seen.line) {
                silent.push(worker.clone());
            }
            self.last.insert(worker.clone(), seen);
        }
        self.shortest = intervals.into_iter().min();
        self.next = Some(now + self.interval(every));
        silent
    }
}

/// Three intervals of that worker, which may count more slowly than this one.
fn silent_after(line: &str) -> Duration {
    interval_in(line).unwrap_or_default().saturating_mul(MISSED_BEATS)
}

/// The interval of a worker, as its file says it.
fn interval_in(line: &str) -> Option<Duration> {
    Some(Duration::from_millis(line.split_ascii_whitespace().nth(1)?.parse().ok()?))
}
