//! Signs of life of workers that execute something, and how others notice that they stopped.
//!
//! A worker that died is noticed by the kernel's word, at once. This is for the one that lives and does nothing: it
//! was stopped, or its machine's container was frozen. Beats are counts in a file of their own, so that they never
//! wait for the disk; they are compared only with earlier looks of the same observer, so that no clock matters, and
//! a whole machine that slept wakes up with everybody's beats as they were.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lockkeeper_core::id::WorkerId;

use crate::engine::runs::Runs;

/// So many looks in a row that show the same beat mean silence.
const LOOKS: u32 = 4;

fn path(runs: &Runs, worker: &WorkerId) -> PathBuf {
    runs.folder().join("beats").join(worker.as_str())
}

/// Removes the beats of a worker that is gone.
pub(super) fn forget(runs: &Runs, worker: &WorkerId) {
    let _ = fs::remove_file(path(runs, worker));
}

/// A thread that beats while there is something to execute.
pub(super) struct Heart {
    beating: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heart {
    /// Begins to beat.
    pub(super) fn begin(runs: &Runs, worker: &WorkerId, every: Duration) -> io::Result<Self> {
        let path = path(runs, worker);
        fs::create_dir_all(path.parent().expect("it is in a folder"))?;
        let (beating, stop) = channel();
        let beat = move || {
            let mut count: u64 = 0;
            loop {
                count += 1;
                // A beat that cannot be written is missed; others wait for several.
                let _ = fs::write(&path, count.to_string());
                match stop.recv_timeout(every) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("heart".to_owned()).spawn(beat)?;
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

/// Who was heard when.
#[derive(Default)]
pub(super) struct Listener {
    heard: HashMap<WorkerId, (String, u32)>,
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
        if self.next.is_some_and(|next| next > Instant::now()) {
            return Vec::new();
        }
        self.next = Some(Instant::now() + every);
        let mut silent = Vec::new();
        let before = std::mem::take(&mut self.heard);
        for worker in workers {
            let beat = fs::read_to_string(path(runs, worker)).unwrap_or_default();
            let looks = match before.get(worker) {
                Some((known, looks)) if *known == beat => looks + 1,
                Some(_) | None => 1,
            };
            if looks >= LOOKS {
                silent.push(worker.clone());
            }
            self.heard.insert(worker.clone(), (beat, looks));
        }
        silent
    }
}
