//! The session of a worker on a store that several machines share: it shows other machines that the worker lives.
//!
//! The worker renews it by compare-and-set. If that fails for too long, the worker stops its commands before its session can
//! end, because other machines may then end its runs and start them again. The time of the last renewal is also in a file,
//! `spare/WORKER/session`, for the guardian of the process: if the worker is killed, the guardian does the same.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_core::id::WorkerId;
use lockkeeper_core::liveness::ProcessRef;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::{clock, random};
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{Renewal as WorkerRenewal, Worker as WorkerRecord};

use super::attempt::reusable_log;
use super::control::ActiveRuns;
use super::events::Events;
use crate::runs::Runs;
use crate::sessions::{self, Renew, Renewal, Renewed, Sessions, Validity};

/// A copy of the worker, on a cloned machine, renews the same session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken;

/// The session of one worker. Dropping it ends the renewals.
pub(super) struct WorkerSession {
    sessions: Sessions<WorkerId, KeptWorker>,
    worker: WorkerId,
    grace: Duration,
}

impl WorkerSession {
    /// Keeps the session of a worker that was registered after `sent_at`. None where workers have no sessions.
    pub(super) fn begin(
        runs: &Arc<Runs>,
        worker: &Arc<WorkerRecord>,
        (active, events): (&Arc<ActiveRuns>, &Arc<Events>),
        sent_at: Moment,
        grace: Duration,
    ) -> io::Result<Option<Arc<Self>>> {
        let Some(session) = worker.origin.session.filter(|_| runs.is_shared()) else { return Ok(None) };
        let note = Note { process: worker.process, span: session.get(), sent_at };
        note.write(runs.folder(), &worker.id)?;
        let (runs, worker) = (Arc::clone(runs), Arc::clone(worker));
        let (active, events) = (Arc::clone(active), Arc::clone(events));
        let kept = KeptWorker { runs, worker: Arc::clone(&worker), active, events, note };
        let sessions = Sessions::new();
        sessions.keep(worker.id.clone(), kept, session.get(), worker.started_at, sent_at);
        Ok(Some(Arc::new(Self { sessions, worker: worker.id.clone(), grace })))
    }

    /// Whether the commands of the worker may continue.
    pub(super) fn is_valid(&self) -> bool {
        self.sessions.validity(&self.worker, self.grace) == Some(Validity::Valid)
    }

    /// Whether a copy of this worker has taken the session.
    pub(super) fn is_taken(&self) -> bool {
        self.sessions.validity(&self.worker, self.grace) == Some(Validity::Lost(Taken))
    }

    /// Ends the renewals: the worker is removed.
    pub(super) fn end(&self) {
        self.sessions.forget(&self.worker);
    }

    /// When to look at it again.
    pub(super) fn look_at(&self) -> Option<Moment> {
        self.sessions.look_at(&self.worker, self.grace)
    }
}

/// A worker whose session is renewed.
#[derive(Clone)]
struct KeptWorker {
    runs: Arc<Runs>,
    worker: Arc<WorkerRecord>,
    /// What it executes.
    active: Arc<ActiveRuns>,
    events: Arc<Events>,
    note: Note,
}

impl Renew for KeptWorker {
    type Loss = Taken;

    fn renew(&mut self, renewal: &mut Renewal<'_>) -> Renewed<Taken> {
        let sent_at = clock::now();
        let beat = beat(&self.runs)?;
        renewal.attempted.push(beat);
        let is_taken = self.write(renewal.written, beat)?;
        if is_taken {
            return Ok(Err(Taken));
        }
        if self.runs.is_silent() {
            // Without this the session is not renewed, although the heartbeat is written: others may claim the runs afterwards.
            self.active.write_again(&self.runs, &self.events).map_err(|error| self.in_doubt(error))?;
        }
        // If this fails, the guardian would stop the commands earlier than necessary.
        let _ = Note { sent_at, ..self.note }.write(self.runs.folder(), &self.worker.id);
        Ok(Ok(beat))
    }
}

impl KeptWorker {
    fn in_doubt(&self, error: StoreError) -> StoreError {
        StoreError::InDoubt { address: self.runs.store().address(), source: error.into() }
    }

    /// Writes a heartbeat; true if a copy of this worker has written one. A worker that was removed because it was silent registers
    /// again: it has stopped its commands before, and claims that it made earlier have old numbers.
    fn write(&self, written: &[i64], beat: i64) -> Result<bool, StoreError> {
        let (runs, worker) = (&self.runs, &self.worker);
        match runs.renew_worker(&worker.id, written, beat)? {
            WorkerRenewal::Renewed => return Ok(false),
            WorkerRenewal::Taken => return Ok(true),
            WorkerRenewal::Gone => {}
        }
        runs.register_worker(worker)?;
        Ok(runs.renew_worker(&worker.id, &[worker.started_at], beat)? != WorkerRenewal::Renewed)
    }
}

/// A random number for a heartbeat.
fn beat(runs: &Runs) -> Result<i64, StoreError> {
    let number = random::number().map(u64::cast_signed);
    number.map_err(|source| StoreError::io("draw a number for", runs.folder(), source))
}

/// The note of a worker for the guardian of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) process: ProcessRef,
    pub(super) span: Duration,
    /// When the last renewal that was answered was sent, on the clock of this machine.
    pub(super) sent_at: Moment,
}

impl Note {
    fn write(&self, state: &Path, worker: &WorkerId) -> io::Result<()> {
        let ProcessRef { pid, started } = self.process;
        let (span, sent_at) = (self.span.as_micros(), self.sent_at.as_micros());
        let folder = reusable_log::folder_of(state, worker);
        let new = folder.join("session.new");
        fs::write(&new, format!("{pid} {started} {span} {sent_at}\n"))?;
        fs::rename(new, folder.join("session"))
    }

    /// Reads the note in the folder of a worker.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("session")).ok()?;
        let mut words = text.split_ascii_whitespace();
        let mut next = || words.next();
        let process = ProcessRef { pid: next()?.parse().ok()?, started: next()?.parse().ok()? };
        let span = Duration::from_micros(next()?.parse().ok()?);
        Some(Self { process, span, sent_at: Moment::from_micros(next()?.parse().ok()?) })
    }

    /// When the commands of the worker have to be stopped at the latest.
    pub(super) fn stop_at(&self, grace: Duration) -> Moment {
        sessions::stop_at(self.sent_at, self.span, grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guardian_reads_what_the_worker_wrote() {
        let state = tempfile::tempdir().unwrap();
        let worker: WorkerId = "W-1".parse().unwrap();
        let folder = reusable_log::folder_of(state.path(), &worker);
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(Note::read(&folder), None);
        let process = ProcessRef { pid: 7, started: 9 };
        let note =
            Note { process, span: Duration::from_secs(30), sent_at: Moment::from_micros(1_000_000_000) };
        note.write(state.path(), &worker).unwrap();
        assert_eq!(Note::read(&folder), Some(note));
        // Thirty seconds, less ten for the command and two in reserve.
        assert_eq!(note.stop_at(Duration::from_secs(10)), Moment::from_micros(1_018_000_000));
    }
}
