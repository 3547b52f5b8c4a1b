//! Group commit for ends of runs: one transaction and one fsync for all attempts that wait, then their events, then the
//! release of what they held.
//!
//! The thread whose attempt has finished commits by itself, and takes along all ends that came while another thread
//! committed (leader and followers). The same transaction claims the next runs for the slots of those attempts. So a slot
//! waits for the disk once between two commands, and for no other thread if it is alone. Events and releases, for which
//! no slot waits, are left to the thread of the completer.
//!
//! If the worker dies before the commit, the runs are still `running` and a rescuer completes them. A power cut before the fsync
//! may undo the commit, with the same result.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::HolderId;
use lockkeeper_core::record::Lease;
use lockkeeper_core::request::Request;
use lockkeeper_core::run::transition::TransitionError;
use lockkeeper_core::run::{Run, Status};

use super::claimer::{Claimed, make_lock};
use super::completer_message::{Committed, CompleterMessage, Finished, Started};
use super::control::{ActiveRuns, Stop};
use super::events::{Events, WorkerEvent};
use super::lock_files::LockFiles;
use super::output_copier::OutputCopier;
use super::processes::{RunProcesses, Sharing};
use super::session::WorkerSession;
use super::{locked, stage_file};
use crate::Engine;
use crate::runs::completing::{AttemptResult, Completed};
use crate::runs::{RunError, Runs};
use lockkeeper_platform::liveness_lock::LivenessLock;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_store::StoreError;
use lockkeeper_store::runs::{ClaimOrder, Claims, Worker as WorkerRecord};

/// The pauses between tries of a store call that failed. The last one is repeated.
const RETRY_PAUSES: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// Writes the results of attempts: the run ends, or waits for a retry. Nothing else in this worker does. What ends without an attempt
/// here is written by others: a run that timed out in the queue, whose work another program has done, or whose command has not begun.
pub(super) struct Completer {
    runs: Arc<Runs>,
    leases: Arc<Engine>,
    worker: Arc<WorkerRecord>,
    active: Arc<ActiveRuns>,
    events: Arc<Events>,
    grace: Duration,
    /// Attempts whose ends are not written yet.
    waiting: Mutex<Vec<Waiting>>,
    /// Leader lock: its holder commits. It also keeps unused liveness locks for the next claims.
    leader: Mutex<Vec<LivenessLock>>,
    messages: Sender<CompleterMessage>,
    /// The session of the worker, on a store that several machines share.
    session: Option<Arc<WorkerSession>>,
    output: Arc<OutputCopier>,
}

/// An attempt whose end is not written yet.
struct Waiting {
    finished: Finished,
    reply: Sender<Option<Claimed>>,
}

impl Completer {
    pub(super) fn new(
        runs: Arc<Runs>,
        leases: Arc<Engine>,
        worker: Arc<WorkerRecord>,
        active: Arc<ActiveRuns>,
        events: Arc<Events>,
        grace: Duration,
        messages: Sender<CompleterMessage>,
    ) -> Self {
        let (waiting, leader) = (Mutex::default(), Mutex::default());
        let (session, output) = (None, Arc::default());
        Self { runs, leases, worker, active, events, grace, waiting, leader, messages, session, output }
    }

    /// On a store that several machines share: claims runs only while this session is valid, and tells this copier of ends.
    pub(super) fn sharing(self, session: Option<Arc<WorkerSession>>, output: Arc<OutputCopier>) -> Self {
        Self { session, output, ..self }
    }

    /// Writes the end of an attempt. An attempt that wants the next run gets it when the end and the claim are on the disk.
    /// Any other waits until everything that it held is released.
    pub(super) fn complete(&self, finished: Finished) -> Option<Claimed> {
        if !finished.is_over {
            // The worker has to end, and processes of the run live: the next worker rescues the run.
            self.active.remove(&finished.end.run);
            return None;
        }
        let (reply, answer) = channel();
        locked(&self.waiting).push(Waiting { finished, reply });
        let mut locks = locked(&self.leader);
        if let Ok(next) = answer.try_recv() {
            // Another thread has written the end meanwhile.
            return next;
        }
        let batch = std::mem::take(&mut *locked(&self.waiting));
        if !batch.is_empty() {
            self.commit(batch, &mut locks);
        }
        drop(locks);
        // There is no answer if the leader has panicked, or has given up because the store fails.
        answer.recv().unwrap_or_default()
    }

    /// Publishes what was committed and records what attempts report, until the worker ends. Runs on a thread of its own.
    pub(super) fn run(&self, messages: &Receiver<CompleterMessage>) {
        for message in messages {
            match message {
                CompleterMessage::Started(started) => self.record_start(&started),
                CompleterMessage::Committed(batch) => {
                    batch.into_iter().for_each(|one| self.publish_and_release(one));
                }
                CompleterMessage::Shutdown => return,
            }
        }
    }

    /// Writes the ends of these attempts and claims the next runs, in one transaction with one fsync.
    fn commit(&self, batch: Vec<Waiting>, locks: &mut Vec<LivenessLock>) {
        let may_claim = self.session.as_ref().is_none_or(|session| session.is_valid());
        let wanted = batch.iter().filter(|one| may_claim && one.finished.wants_next).count();
        self.make_locks(wanted, locks);
        let holders: Vec<HolderId> = locks.iter().take(wanted).map(LivenessLock::holder).collect();
        let claims = Claims { worker: &self.worker.id, locks: &holders, order: ClaimOrder::Strict };
        let mut retried = false;
        let completed = persist(&self.events, &in_words(&batch), || {
            let retried = std::mem::replace(&mut retried, true);
            self.runs.complete(batch.iter().map(|one| &one.finished.end), &claims, retried)
        });
        let synced = persist(&self.events, "force the ends of runs to the disk", || self.runs.sync());
        let (Some(Completed { ended, claimed }), Some(())) = (completed, synced) else {
            // A rescuer completes these runs: from `ended` if a guardian wrote the end, otherwise as LOST.
            batch.iter().for_each(|one| self.active.remove(&one.finished.end.run));
            return;
        };
        let mut claimed = claimed.into_iter();
        let mut committed = Vec::new();
        for (Waiting { finished, reply }, ended) in batch.into_iter().zip(ended) {
            self.active.remove(&finished.end.run);
            let reply = if finished.wants_next {
                // Its slot waits for the answer.
                let _ = reply.send(claimed.next().map(|(run, request)| with_lock(run, request, locks)));
                None
            } else {
                Some(reply)
            };
            committed.push(Committed { finished, ended, reply });
        }
        // The receiver is gone only when the thread of the completer has panicked.
        let _ = self.messages.send(CompleterMessage::Committed(committed));
    }

    /// Makes as many liveness locks as there are slots that want a run. If that fails, fewer slots get a run.
    fn make_locks(&self, wanted: usize, locks: &mut Vec<LivenessLock>) {
        while locks.len() < wanted {
            match make_lock(&self.leases) {
                Ok(lock) => locks.push(lock),
                Err(error) => {
                    self.events.warn(format!("cannot claim another run: {error}"));
                    return;
                }
            }
        }
    }

    /// Publishes an end that is on the disk, then releases what the attempt held.
    fn publish_and_release(&self, committed: Committed) {
        let Committed { finished, ended, reply } = committed;
        let id = &finished.end.run.id;
        self.output.ended(id, finished.end.run.attempt());
        let output = self.runs.folder_of(id).output();
        if let Err(error) = finished.files.record_end(ended.as_ref(), &output.to_string_lossy()) {
            self.events.warn(format!("cannot write the end of {id} for its swarm: {error}"));
        }
        self.events.catch_panic(id, || self.publish(&finished, ended));
        self.release(finished);
        if let Some(reply) = reply {
            // The thread that asked may have ended.
            let _ = reply.send(None);
        }
    }

    fn publish(&self, one: &Finished, ended: Option<Run>) {
        let AttemptResult { run, request, ended_at, .. } = &one.end;
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

    /// Releases the lease and the lock files of a run. If a process could not be killed, the lease stays held by the shared
    /// liveness lock.
    fn release(&self, finished: Finished) {
        let Finished { end: AttemptResult { run, .. }, files, .. } = finished;
        if let Some((lease, token)) = run.lease().filter(|_| !self.has_processes(&run))
            // The end of its processes frees it, too.
            && let Err(error) = self.leases.release(lease, Some(token))
        {
            self.events.warn(format!("cannot release the lease of {}: {error}", run.id));
        }
        if let Err(error) = files.release() {
            self.events.warn(format!("cannot release the lock files of {}: {error}", run.id));
        }
    }

    fn record_start(&self, started: &Started) {
        let Started { run, request, lease, process, at } = started;
        self.output.began();
        self.events.log(&WorkerEvent::Started(run.clone()), Some(request), *at);
        self.write_stage(run, lease.as_ref());
        let Some(process) = process else { return };
        // The run may have been canceled, ended or adopted before its attempt was in the list of active ones.
        match self.runs.record_process(run, *process) {
            Ok(found) if found.status() == Status::Cancelling => self.active.stop(run, Stop::Canceled),
            Ok(_) => {}
            Err(error @ RunError::Refused { .. }) => self.stop(run, &error),
            Err(error) => self.events.warn(format!("cannot record the process of {}: {error}", run.id)),
        }
    }

    /// Stops an attempt whose run another process has canceled, ended or adopted.
    fn stop(&self, run: &Run, error: &RunError) {
        let why = match error {
            // A smaller number is that of a store that has lost the claim, which is written again.
            RunError::Refused { source: TransitionError::Claim { given, current }, .. }
                if given < current =>
            {
                Stop::Superseded
            }
            RunError::Refused { current: Status::Cancelling, .. } => Stop::Canceled,
            RunError::Refused { current, .. } if current.is_terminal() => Stop::Recorded,
            _ => return,
        };
        self.active.stop(run, why);
    }

    /// Writes the run state file. It is for people: a failure is only published as a warning.
    fn write_stage(&self, run: &Run, lease: Option<&Lease>) {
        let folder = self.runs.folder_of(&run.id);
        if let Err(error) = stage_file::write(&folder, run, lease, &self.worker) {
            self.events.warn(format!("cannot write {}: {error}", folder.stage().display()));
        }
    }

    /// Whether a process of a run could not be ended. Workers are left out: a silent one also holds the liveness lock of its run.
    fn has_processes(&self, run: &Run) -> bool {
        let workers = persist(&self.events, "list the workers", || self.runs.worker_processes());
        let Some(workers) = workers else { return true };
        let (leases, events) = (&*self.leases, &*self.events);
        matches!(RunProcesses { leases, events, grace: self.grace, workers }.sharing(run), Sharing::Seen(_))
    }
}

/// Retries a store call until it succeeds: only this thread has the result. None if the worker has to end and the store still
/// fails. Then a rescuer handles the runs like those of a worker that was killed.
pub(super) fn persist<T>(
    events: &Events,
    what: &str,
    mut act: impl FnMut() -> Result<T, StoreError>,
) -> Option<T> {
    let mut pauses = RETRY_PAUSES.iter();
    loop {
        match act() {
            Ok(done) => return Some(done),
            Err(error) if events.is_past_deadline() => {
                events.warn(format!("cannot {what}: {error}; left to the next worker"));
                return None;
            }
            Err(error) => {
                events.warn(format!("cannot {what}: {error}; trying again"));
                thread::sleep(*pauses.next().unwrap_or(&RETRY_PAUSES[3]));
            }
        }
    }
}

/// The claimed run, with the liveness lock that the claim names.
fn with_lock(run: Run, request: Request, locks: &mut Vec<LivenessLock>) -> Claimed {
    let holder = run.process().map(|process| process.holder);
    let place = locks.iter().position(|lock| Some(lock.holder()) == holder);
    let lock = place.map(|place| locks.swap_remove(place));
    Claimed { run, request, lock, lease: None, files: LockFiles::default(), inherit: None }
}

fn in_words(batch: &[Waiting]) -> String {
    match batch {
        [] => "write the end of no run".to_owned(),
        [one] => format!("write the end of {}", one.finished.end.run.id),
        [one, others @ ..] => {
            format!("write the end of {} and {} more", one.finished.end.run.id, others.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn full() -> StoreError {
        StoreError::io("write to", std::path::Path::new("runs.db"), std::io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn a_store_that_fails_is_tried_again_until_the_worker_is_to_end() {
        let events = Events::new("W-1".parse().unwrap(), Box::new(|_| {}), None);
        let mut failures = 2;
        let done = persist(&events, "write", || match failures {
            0 => Ok("written"),
            _ => {
                failures -= 1;
                Err(full())
            }
        });
        assert_eq!(done, Some("written"));
        events.set_deadline(Instant::now());
        assert_eq!(persist(&events, "write", || Err::<(), _>(full())), None);
        assert_eq!(persist(&events, "write", || Ok("written")), Some("written"), "one try is always made");
    }
}
