//! Execution of one group: acquires its lease, then runs its agents, `max_concurrent` at a time.

mod runs;
mod waiting;

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use lockkeeper_core::id::{Name, Owner, RequestId};
use lockkeeper_core::pattern::Pattern;
use lockkeeper_core::retry::RetryPolicy;
use lockkeeper_formats::group::{Folders, GroupId};

use super::agents::AgentCommand;
use super::patience::Patience;
use super::phase_control::PhaseControl;
use super::{PhaseEvent, StageError};
use crate::work::Worker;

/// How often a wait for a run of another worker checks whether everything is stopped.
const CHECK_EVERY: Duration = Duration::from_millis(500);
const STOPPED: &str = "everything was ended";

/// A group that is to be executed.
pub(super) struct GroupExecution<'t> {
    pub(super) worker: &'t Worker,
    /// The group's index in the plan.
    pub(super) index: usize,
    pub(super) owner: Owner,
    pub(super) name: Name,
    pub(super) paths: Vec<Pattern>,
    pub(super) agents: &'t [AgentCommand],
    pub(super) ids: Vec<RequestId>,
    pub(super) at_once: usize,
    pub(super) dir: &'t str,
    pub(super) env: Vec<(String, String)>,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Option<Duration>,
    /// How long to wait for the lease and the lock.
    pub(super) patience: Patience,
    /// The lock of the group in a lock folder, if one is named.
    pub(super) lock: Option<(&'t Folders, &'t GroupId)>,
    pub(super) control: &'t PhaseControl,
}

/// How a group ended.
pub(super) enum End {
    Succeeded,
    Failed(String),
    Stopped,
}

/// A message from a group to the executor.
pub(super) enum GroupMessage {
    Event(PhaseEvent),
    /// The group has waited for its lease for this long. It continues when the sender is used or dropped.
    LockTimeout(Duration, Sender<()>),
    /// Others hold these names and paths that the group needs, so it waits.
    Blocked(BTreeSet<String>),
}

impl GroupExecution<'_> {
    /// Acquires the lease and the group's lock, runs all agents, and releases both.
    pub(super) fn execute(&self, send: &(dyn Fn(GroupMessage) + Sync)) -> Result<End, StageError> {
        let begun = Instant::now();
        let mut patience = self.patience.clone();
        let failed = |why| if self.control.is_stopped() { End::Stopped } else { End::Failed(why) };
        let lease = match self.acquire(&mut patience, begun, send)? {
            Ok(lease) => lease,
            Err(why) => return Ok(failed(why)),
        };
        // If the release fails, the end of this process frees the lease.
        let release = || drop(self.worker.leases().release(lease.id, Some(lease.token)));
        if self.lock.is_some()
            && let Err(error) = self.wait_for_adopted()
        {
            release();
            return Err(error);
        }
        let lock =
            match self.lock.map(|(folders, id)| self.take_lock(folders, id, &mut patience, begun, send)) {
                None => None,
                Some(Ok(Ok(lock))) => Some(lock),
                Some(Ok(Err(why))) => {
                    release();
                    return Ok(failed(why));
                }
                Some(Err(error)) => {
                    release();
                    return Err(error);
                }
            };
        send(GroupMessage::Event(PhaseEvent::GroupStarted { group: self.index, waited: begun.elapsed() }));
        let ended = self.run_agents(lock.as_ref(), send);
        drop(lock);
        release();
        ended
    }
}
