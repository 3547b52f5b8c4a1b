//! Signs of life of workers that execute something, and how others notice that they stopped.
//!
//! A worker that died is noticed by the kernel's word, at once. This is for the one that lives and does nothing: it
//! was stopped, or its machine's container was frozen. Beats are counts in a file of their own, so that they never
//! wait for the disk; they are compared only with earlier looks of the same observer, so that no clock matters, and
//! a whole machine that slept wakes up with everybody's beats as they were.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockkeeper_core::id::WorkerId;

use crate::runs::{RunError, Runs};

/// So many looks in a row that show the same beat mean silence.
const LOOKS: u32 = 4;

/// As many bytes as every beat has, so that no beat ever needs room on the disk.
const WIDTH: usize = 20;

fn folder(runs: &Runs) -> PathBuf {
    runs.folder().join("beats")
}

fn path(runs: &Runs, worker: &WorkerId) -> PathBuf {
    folder(runs).join(worker.as_str())
}

/// Removes the beats of a worker that is gone.
pub(super) fn forget(runs: &Runs, worker: &WorkerId) {
    let _ = fs::remove_file(path(runs, worker));
}

/// Removes the beats of workers that nobody knows any more: those of earlier boots.
pub(super) fn sweep(runs: &Runs) -> Result<(), RunError> {
    // Looked at first: whoever has beats by now was written down before.
    let entries: Vec<_> = fs::read_dir(folder(runs)).into_iter().flatten().flatten().collect();
    let known = runs.store().read(|tables| tables.workers())?;
    for entry in entries {
        if !known.iter().any(|worker| worker.id.as_str() == entry.file_name()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// The beats of one worker: a count that never comes back, and how often it grows, in milliseconds.
#[derive(Debug)]
pub(super) struct Pulse {
    file: Arc<File>,
    count: Arc<AtomicU64>,
    every: Duration,
}

impl Pulse {
    /// Makes the file, with all the room that it will ever need.
    pub(super) fn new(runs: &Runs, worker: &WorkerId, every: Duration) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder(runs))?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path(runs, worker))?;
        let pulse = Self { file: Arc::new(file), count: Arc::default(), every };
        beat(&pulse.file, &pulse.count, every)?;
        Ok(pulse)
    }
}

fn beat(file: &File, count: &AtomicU64, every: Duration) -> io::Result<()> {
    let count = count.fetch_add(1, Ordering::Relaxed);
    let line = format!("{count:0WIDTH$} {:0WIDTH$}\n", every.as_millis());
    file.write_all_at(line.as_bytes(), 0)
}

/// A thread that beats while there is something to execute.
pub(super) struct Heart {
    beating: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    /// Begins to beat.
    pub(super) fn begin(pulse: &Pulse) -> io::Result<Self> {
        let (beating, stop) = channel();
        let (file, count, every) = (Arc::clone(&pulse.file), Arc::clone(&pulse.count), pulse.every);
        let body = move || {
            loop {
                // A beat that cannot be written is missed; others wait for several.
                let _ = beat(&file, &count, every);
                match stop.recv_timeout(every) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("heart".to_owned()).spawn(body)?;
        Ok(Self { beating: Some(beating), thread: Some(thread) })
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        drop(self.beating.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What was heard of one worker.
#[derive(Debug)]
struct Heard {
    beat: String,
    since: Instant,
    looks: u32,
}

/// Who was heard when.
#[derive(Debug, Default)]
pub(super) struct Listener {
    heard: HashMap<WorkerId, Heard>,
    next: Option<Instant>,
}

impl Listener {
    /// When to listen next, while there is anybody to listen to.
    pub(super) fn due(&mut self, anybody: bool, every: Duration) -> Option<Instant> {
        if !anybody {
            self.heard.clear();
            self.next = None;
        } else if self.next.is_none() {
            self.next = Some(Instant::now() + every);
        }
        self.next
    }

    /// Listens to these, and returns those that were silent for too long.
    pub(super) fn listen<'w>(
        &mut self,
        runs: &Runs,
        workers: impl Iterator<Item = &'w WorkerId>,
        every: Duration,
    ) -> Vec<WorkerId> {
        let now = Instant::now();
        if self.next.is_some_and(|next| next > now) {
            return Vec::new();
        }
        self.next = Some(now + every);
        let mut silent = Vec::new();
        let mut before = std::mem::take(&mut self.heard);
        for worker in workers {
            let beat = fs::read_to_string(path(runs, worker)).unwrap_or_default();
            let heard = match before.remove(worker) {
                Some(known) if known.beat == beat => Heard { looks: known.looks + 1, ..known },
                Some(_) | None => Heard { beat, since: now, looks: 1 },
            };
            if heard.looks >= LOOKS && now.duration_since(heard.since) >= patience(&heard.beat) {
                silent.push(worker.clone());
            }
            self.heard.insert(worker.clone(), heard);
        }
        silent
    }
}

/// Three beats of that worker, which may beat more slowly than this one.
fn patience(beat: &str) -> Duration {
    let every = beat.split_ascii_whitespace().nth(1).and_then(|every| every.parse().ok()).unwrap_or(0);
    Duration::from_millis(every).saturating_mul(LOOKS - 1)
}
