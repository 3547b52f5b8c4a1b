//! Group commit for ends of runs: one transaction and one fsync for all attempts that have finished, then their events,
//! then the release of what they held.
//!
//! The same transaction claims the next runs for the slots of those attempts, so that a slot waits for the disk once
//! between two commands. A crash before the fsync loses no run: each is still running, and a rescuer sees that its kernel
//! lock is free.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use lockkeeper_core::record::Lease;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::life::Lost;
use lockkeeper_core::run::{Run, Status};

use super::claimer::{Claimed, make_lock};
use super::control::{ActiveRuns, Stop};
use super::events::{Events, WorkerEvent};
use super::lock_files::LockFiles;
use super::processes::RunProcesses;
use super::report::{Finished, Report, Started};
use super::stage_file;
use crate::Engine;
use crate::runs::claiming::Claimant;
use crate::runs::completing::{Completed, End};
use crate::runs::{RunError, Runs};
use lockkeeper_platform::liveness_lock::LivenessLock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::Worker as WorkerRecord;

/// The pauses before the store is tried again.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// Writes the ends of the runs that this worker executes. Nobody else in this worker does.
pub(super) struct Completer {
    pub(super) runs: Arc<Runs>,
    pub(super) leases: Arc<Engine>,
    pub(super) worker: Arc<WorkerRecord>,
    pub(super) active: Arc<ActiveRuns>,
    pub(super) events: Arc<Events>,
    pub(super) grace: Duration,
    pub(super) reports: Receiver<Report>,
    /// Kernel locks for the next runs, which were made and not used.
    pub(super) locks: Vec<LivenessLock>,
}

impl Completer {
    /// Works until the worker ends.
    pub(super) fn run(mut self) {
        while let Ok(report) = self.reports.recv() {
            let mut finished = Vec::new();
            let mut ends = false;
            for report in std::iter::once(report).chain(self.reports.try_iter()) {
                match report {
                    Report::Started(started) => self.record_start(&started),
                    Report::Overdue(run) => self.time_out(&run),
                    Report::Finished(one) => finished.push(*one),
                    Report::Shutdown => ends = true,
                }
            }
            if !finished.is_empty() {
                self.complete(finished);
            }
            if ends {
                return;
            }
        }
    }

    /// Writes the ends of these attempts, claims the next runs, and publishes both once they are on the disk.
    fn complete(&mut self, finished: Vec<Finished>) {
        let wanted = finished.iter().filter(|one| one.wants_next).count();
        self.make_locks(wanted);
        let locks: Vec<_> = self.locks.iter().take(wanted).map(LivenessLock::holder).collect();
        let claimant = Claimant { worker: &self.worker.id, locks: &locks };
        let mut retried = false;
        let Completed { ended, claimed } = persist(&self.events, &in_words(&finished), || {
            let retried = std::mem::replace(&mut retried, true);
            self.runs.complete(finished.iter().map(|one| &one.end), &claimant, retried)
        });
        persist(&self.events, "force the ends of runs to the disk", || self.runs.sync());
        let mut next = claimed
            .into_iter()
            .map(|(run, request)| self.claimed(run, request))
            .collect::<Vec<_>>()
            .into_iter();
        for one in &finished {
            self.active.remove(&one.end.run);
            if let Some(reply) = one.reply.as_ref().filter(|_| one.wants_next) {
                // A slot waits for its answer.
                let _ = reply.send(next.next());
            }
        }
        for (one, ended) in finished.into_iter().zip(ended) {
            let id = one.end.run.id.clone();
            let reply = one.reply.clone().filter(|_| !one.wants_next);
            let events = Arc::clone(&self.events);
            events.catch_panic(&id, || self.publish(&one, ended));
            self.release(one);
            if let Some(reply) = reply {
                // Who asked may have given up.
                let _ = reply.send(None);
            }
        }
    }

    /// Makes as many kernel locks as there are slots that want a run. Where that fails, the slots get none.
    fn make_locks(&mut self, wanted: usize) {
        while self.locks.len() < wanted {
            match make_lock(&self.leases) {
                Ok(lock) => self.locks.push(lock),
                Err(error) => {
                    self.events.trouble(format!("cannot claim another run: {error}"));
                    return;
                }
            }
        }
    }

    fn claimed(&mut self, run: Run, request: Request) -> Claimed {
        let holder = run.process.map(|process| process.holder);
        let place = self.locks.iter().position(|lock| Some(lock.holder()) == holder);
        let lock = place.map(|place| self.locks.swap_remove(place));
        Claimed { run, request, lock, lease: None, files: LockFiles::default() }
    }

    fn publish(&self, one: &Finished, ended: Option<Run>) {
        let End { run, request, ended_at, .. } = &one.end;
        if let Some(at) = one.started_at {
            self.events.log(&WorkerEvent::Started(run.clone()), Some(request), at);
        }
        if let Some(ended) = ended.as_ref().filter(|ended| !one.is_trivial(ended)) {
            self.write_stage(ended, one.lease.as_ref());
        }
        let event = match ended {
            Some(ended) if ended.waits_for_retry() => WorkerEvent::Retrying(ended),
            Some(ended) => WorkerEvent::Ended(ended),
            None => WorkerEvent::Superseded(run.clone()),
        };
        self.events.notify(&event);
        self.events.log(&event, Some(request), WallTime::from_micros(ended_at.unix_micros));
    }

    /// Releases the lease and the lock files of a run. What could not be ended keeps the lease, by the kernel lock that
    /// it shares.
    fn release(&self, finished: Finished) {
        let Finished { end: End { run, .. }, files, .. } = finished;
        if let Some((lease, token)) = run.lease.filter(|_| !self.has_processes(&run))
            // The end of its processes frees it all the same.
            && let Err(error) = self.leases.release(lease, Some(token))
        {
            self.events.trouble(format!("cannot release the lease of {}: {error}", run.id));
        }
        if let Err(error) = files.release() {
            self.events.trouble(format!("cannot release the lock files of {}: {error}", run.id));
        }
    }

    fn record_start(&self, started: &Started) {
        let Started { run, request, lease, process, at } = started;
        self.events.log(&WorkerEvent::Started(run.clone()), Some(request), *at);
        self.write_stage(run, lease.as_ref());
        let Some(process) = process else { return };
        // Something may have happened to the run before its attempt could be told.
        match self.runs.record_process(run, *process) {
            Ok(found) if found.status == Status::Cancelling => self.active.stop(run, Stop::Canceled),
            Ok(_) => {}
            Err(error @ RunError::Lost { .. }) => self.stop(run, &error),
            Err(error) => self.events.trouble(format!("cannot record the process of {}: {error}", run.id)),
        }
    }

    fn time_out(&self, run: &Run) {
        match self.runs.time_out(&run.id, run.claim) {
            Ok(_) => self.active.stop(run, Stop::Recorded),
            // A store that failed is tried again: the attempt reports once more.
            Err(error) => self.stop(run, &error),
        }
    }

    /// Stops an attempt whose run is not what it was.
    fn stop(&self, run: &Run, error: &RunError) {
        let why = match error {
            RunError::Lost { source: Lost::Claim { .. }, .. } => Stop::Superseded,
            RunError::Lost { current: Status::Cancelling, .. } => Stop::Canceled,
            RunError::Lost { current, .. } if current.is_terminal() => Stop::Recorded,
            _ => return,
        };
        self.active.stop(run, why);
    }

    /// Writes down who holds what for the run. It is for people: a failure is only published.
    fn write_stage(&self, run: &Run, lease: Option<&Lease>) {
        let folder = self.runs.folder_of(&run.id);
        if let Err(error) = stage_file::write(&folder, run, lease, &self.worker) {
            self.events.trouble(format!("cannot write {}: {error}", folder.stage().display()));
        }
    }

    /// Whether a process of a run could not be ended. A silent worker shares the kernel lock of its run, too, and is none.
    fn has_processes(&self, run: &Run) -> bool {
        let workers = persist(&self.events, "list the workers", || self.runs.worker_processes());
        let (leases, events) = (&*self.leases, &*self.events);
        !RunProcesses { leases, events, grace: self.grace, workers }.sharing(run).is_empty()
    }
}

/// Repeats an operation of the store until it succeeds: what is not written now is known to nobody else.
pub(super) fn persist<T>(events: &Events, what: &str, mut act: impl FnMut() -> Result<T, StoreError>) -> T {
    let mut pauses = PAUSES.iter();
    loop {
        match act() {
            Ok(done) => return done,
            Err(error) => {
                events.trouble(format!("cannot {what}: {error}; trying again"));
                thread::sleep(*pauses.next().unwrap_or(&PAUSES[3]));
            }
        }
    }
}

fn in_words(finished: &[Finished]) -> String {
    match finished {
        [] => "write the end of no run".to_owned(),
        [one] => format!("write the end of {}", one.end.run.id),
        [one, others @ ..] => format!("write the end of {} and {} more", one.end.run.id, others.len()),
    }
}
