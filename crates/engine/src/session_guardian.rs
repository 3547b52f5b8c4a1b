//! Session guardian: keeps the sessions of a process that was killed until its commands are gone.
//!
//! On one machine the kernel lock that a command inherits holds the lease after its wrapper was killed. Another machine does not
//! see that lock, only the session. So a second process stands beside each process that holds leases there. As long as the first
//! one lives, it only waits. Then it renews the sessions until the last command is gone, and releases the leases.

use std::thread;
use std::time::Duration;

use lockkeeper_core::id::LeaseId;
use lockkeeper_core::liveness::{LivenessProbe, ProcessRef, Verdict};
use lockkeeper_core::record::Lease;
use lockkeeper_core::time::Moment;
use lockkeeper_platform::clock;
use lockkeeper_store::StoreError;

use crate::Engine;

/// How often the guardian looks whether the commands are gone.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How soon a call of a store that cannot be reached is tried again.
const RETRY: Duration = Duration::from_millis(500);

impl Engine {
    /// Renews the sessions of one lease or all leases of `process` until the kernel shows that they are over, and releases them
    /// then. Gives up when no session can be valid any more, because the store could not be reached for so long.
    pub fn guard_sessions_of(&self, process: ProcessRef, only: Option<LeaseId>) {
        let mut kept = self.until_reached(|| self.take_over(process, only)).unwrap_or_default();
        while !kept.is_empty() {
            let mut left = Vec::new();
            for lease in kept {
                let observation = self.probe().observe(&lease.claim.proof);
                let is_over =
                    matches!(lease.verdict(observation, Moment::from_micros(0), None), Verdict::Dead(_));
                if is_over {
                    // The next in line gets it now, and not when the session ends.
                    let _ = self.until_reached(|| self.release(lease.id, Some(lease.token)));
                } else if self.sessions.loss(lease.id, Duration::ZERO).is_none() {
                    left.push(lease);
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
