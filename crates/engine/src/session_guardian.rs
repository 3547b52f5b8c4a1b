//! Session guardian: renews the sessions of a process that was killed, until its commands are gone.
//!
//! On one machine a command inherits the liveness lock of `exec`, and this lock holds the lease after `exec` was killed. Another
//! machine does not see that lock, only the session. So each process that holds leases on a shared store starts a guardian, a
//! second process. While the first one lives, the guardian only waits. Then it renews the sessions until the last command is
//! gone, and releases the leases. If it cannot reach the store, it stops the commands before the sessions can end.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::{HolderId, LeaseId};
use lockkeeper_core::liveness::{LivenessProbe, ProcessRef, Verdict, Voucher};
use lockkeeper_core::record::Lease;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::clock;
use lockkeeper_platform::liveness_lock::LivenessFile;
use lockkeeper_platform::tree::{Root, Stop, stop_tree};
use lockkeeper_store::StoreError;

use crate::shared_store::SharedStore;
use crate::{Engine, sessions};

/// How often the guardian looks whether the commands are gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The pause before a call of a store that cannot be reached is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The command of a holder that was killed, while its session is not yet renewed by the guardian.
pub struct OrphanedCommand {
    holder: HolderId,
    grace: Duration,
    stop_at: Moment,
}

impl OrphanedCommand {
    /// The command that shares this liveness lock. Its holder was killed just now, so the last renewal of the session is not older
    /// than a third of the span.
    pub fn new(store: &SharedStore, holder: HolderId, grace: Duration) -> Self {
        let span = store.session();
        let stop_at = sessions::stop_at(clock::now().before(span / 3), span, grace);
        Self { holder, grace, stop_at }
    }

    /// Stops the command before the session can end, unless `kept` is closed before: then the guardian renews the session.
    pub fn stop_unless_kept(&self, kept: &Receiver<()>) {
        loop {
            let left = self.stop_at.since(clock::now());
            match kept.recv_timeout(left.min(Duration::from_secs(1))) {
                Err(RecvTimeoutError::Timeout) if self.stop_at <= clock::now() => break,
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let life = SharedStore::liveness_folder().ok().and_then(|folder| LivenessFile::open(&folder).ok());
        if let Some(life) = life {
            stop_commands(&life, self.holder, self.grace);
        }
    }
}

/// Stops all processes that share a liveness lock, with their trees: TERM, `grace`, KILL.
fn stop_commands(life: &LivenessFile, holder: HolderId, grace: Duration) {
    let processes = life.processes(holder);
    thread::scope(|scope| {
        for process in processes {
            // Only a process of another user cannot be stopped. It keeps the liveness lock.
            scope.spawn(move || stop_tree(&Stop { root: Root::Process(process), grace, mark: None }));
        }
    });
}

impl Engine {
    /// Renews the sessions of one lease or all leases of `process` until the kernel shows that they are over, and releases them
    /// then. Calls `taken_over` when it renews them. Stops the commands of a session that cannot be renewed in time.
    pub fn guard_sessions_of(
        &self,
        process: ProcessRef,
        only: Option<LeaseId>,
        grace: Duration,
        taken_over: impl FnOnce(),
    ) {
        let Some(mut kept) = self.until_reached(|| self.take_over(process, only)) else { return };
        taken_over();
        while !kept.is_empty() {
            let mut left = Vec::new();
            for lease in kept {
                let observation = self.probe().observe(&lease.claim.proof);
                let is_over =
                    matches!(lease.verdict(observation, Moment::from_micros(0), None), Verdict::Dead(_));
                if is_over {
                    // A command of the holder may have upgraded the lease: then it has a new token.
                    let token = match self.sessions.check(lease.id) {
                        Some(Ok(current)) => current.token,
                        Some(Err(_)) | None => lease.token,
                    };
                    // So the next waiter gets the lease now, and not when the session ends.
                    let _ = self.until_reached(|| self.release(lease.id, Some(token)));
                } else {
                    match lease.claim.proof.voucher {
                        Voucher::KernelLock { holder, .. }
                            if self.sessions.loss(lease.id, grace).is_some() =>
                        {
                            stop_commands(self.probe().liveness_file(), holder, grace);
                        }
                        // A shell whose lease comes from `acquire` is not stopped: it is no command of Lockkeeper.
                        Voucher::Process(_) if self.sessions.loss(lease.id, Duration::ZERO).is_some() => {}
                        _ => left.push(lease),
                    }
                }
            }
            kept = left;
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Finds the leases of a process that has ended, and renews them from now on.
    fn take_over(&self, process: ProcessRef, only: Option<LeaseId>) -> Result<Vec<Lease>, StoreError> {
        let here = self.probe().origin();
        let sent_at = clock::now();
        let (now, mut leases) = self.look(|overlay| {
            let now = overlay.now();
            Ok((now, overlay.all()?.0))
        })?;
        leases.retain(|lease| {
            let proof = &lease.claim.proof;
            let is_its_own = proof.origin == *here && proof.process() == Some(process);
            is_its_own && lease.claim.session().is_some() && only.is_none_or(|id| id == lease.id)
        });
        for lease in &leases {
            self.sessions.keep(lease, sent_at.before(now.since(lease.heartbeat_at)));
        }
        Ok(leases)
    }

    /// Calls the store until it answers, for as long as a session lasts.
    fn until_reached<T>(&self, mut call: impl FnMut() -> Result<T, StoreError>) -> Option<T> {
        let session = self.probe().origin().session.map_or(Duration::ZERO, |session| session.get());
        let until = clock::now().after(session);
        loop {
            match call() {
                Ok(answer) => return Some(answer),
                Err(_) if clock::now() < until => thread::sleep(RETRY),
                Err(_) => return None,
            }
        }
    }
}
