//! Orphans: the runs of a process that was killed, on a store that several machines share. Its session guardian rescues them.
//!
//! Another machine sees only the session of a worker. If the worker is killed, its session would end while its commands live, and
//! another machine would end their runs and start them again. So the session guardian of the process adopts the runs at once, as
//! a worker with a session of its own, and waits for the ends of the commands. If it cannot reach the store, it ends the commands
//! before the session of the killed worker can end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::{RunId, WorkerId};
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::run::Run;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::clock;
use lockkeeper_platform::tree::{Root, Stop, stop_tree};

use super::attempt::reusable_log;
use super::processes::process_mark;
use super::session::Note;
use super::start_records;
use super::worker::Worker;
use crate::runs::RunError;

/// The pause before a store that cannot be reached is tried again, and between two surveys of the runs.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The workers of a process that was killed.
pub struct Orphans {
    workers: Vec<WorkerId>,
    folders: Vec<PathBuf>,
    grace: Duration,
    /// When their commands have to be stopped, unless they were adopted.
    stop_at: Moment,
    /// From when on another machine may have ended their runs.
    end_at: Moment,
}

impl Orphans {
    /// Finds the workers of a process by their files in the state folder; none if there are none.
    pub fn of(process: ProcessRef, state: &Path, grace: Duration) -> Option<Self> {
        let mut found: Option<Self> = None;
        for folder in reusable_log::folders(state) {
            let id = folder.file_name().and_then(|name| name.to_str()?.parse::<WorkerId>().ok());
            let note = Note::read(&folder).filter(|note| note.process == process);
            let (Some(id), Some(note)) = (id, note) else { continue };
            let (stop_at, end_at) = (note.stop_at(grace), note.sent_at.after(note.span));
            let all = found.get_or_insert_with(|| Self {
                workers: Vec::new(),
                folders: Vec::new(),
                grace,
                stop_at,
                end_at,
            });
            all.workers.push(id);
            all.folders.push(folder);
            all.stop_at = all.stop_at.min(stop_at);
            all.end_at = all.end_at.max(end_at);
        }
        found
    }

    /// Rescues the runs: returns when their commands have ended and their ends are written. `begin` begins the worker that does it.
    pub fn rescue(self, begin: impl Fn() -> Result<Worker, RunError> + Send) {
        thread::scope(|scope| {
            let (adopted, receiver) = channel();
            let this = &self;
            scope.spawn(move || this.adopt_all(&begin, &adopted));
            let left = self.stop_at.since(clock::now());
            if receiver.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                self.end_commands();
            }
        });
    }

    /// Adopts the runs and waits for their ends. Gives up when no session of the killed workers can be valid any more.
    fn adopt_all(&self, begin: &impl Fn() -> Result<Worker, RunError>, adopted: &Sender<()>) {
        let worker = loop {
            match begin() {
                Ok(worker) => break Arc::new(worker),
                Err(_) if clock::now() < self.end_at => thread::sleep(POLL_INTERVAL),
                Err(_) => return,
            }
        };
        // Without a heartbeat, other workers of this machine would count it as silent.
        let _heartbeat = worker.start_heartbeat();
        let is_orphan = |run: &Run| run.worker().is_some_and(|id| self.workers.contains(id));
        loop {
            match worker.adopt_unattended(&is_orphan) {
                Ok(left) => {
                    if !left {
                        // The other thread may have stopped waiting.
                        let _ = adopted.send(());
                        if !worker.is_active() {
                            return;
                        }
                    }
                }
                Err(_) if !worker.is_active() && self.end_at < clock::now() => return,
                Err(_) => {}
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Ends the commands that the workers may have started.
    fn end_commands(&self) {
        let runs: Vec<RunId> =
            self.folders.iter().flat_map(|folder| start_records::recorded_runs(folder)).collect();
        thread::scope(|scope| {
            for run in &runs {
                let mark = process_mark(run);
                scope.spawn(move || {
                    // The doctor names processes that cannot be ended.
                    let _ = stop_tree(&Stop { root: Root::Marked, grace: self.grace, mark: Some(&mark) });
                });
            }
        });
    }
}
