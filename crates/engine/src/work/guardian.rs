//! The command guardian of a worker: a process that starts its commands, and knows how they ended when the worker is killed.

use std::sync::{Arc, Mutex};

use super::locked;
use super::start_records::StartRecords;
use lockkeeper_platform::exec::{Guardian, GuardianLine};

/// Whether a worker has a guardian.
#[derive(Debug, Default)]
enum State {
    /// No command was started yet, or the last guardian was killed.
    #[default]
    None,
    Some(Arc<Guardian>),
    /// A guardian cannot be started here. The worker starts its commands itself.
    Impossible,
}

/// The guardian of one worker. It is started with the first command, and again after it was killed.
#[derive(Debug, Default)]
pub(super) struct GuardianHandle {
    state: Mutex<State>,
}

impl GuardianHandle {
    /// A new connection to the guardian. None if the worker has to start its command itself.
    pub(super) fn connect(&self, start_records: &StartRecords) -> Option<Arc<GuardianLine>> {
        self.get(start_records)?.connect().ok().map(Arc::new)
    }

    /// The process of the guardian. None if the worker has to start its command itself.
    pub(super) fn pid(&self, start_records: &StartRecords) -> Option<u32> {
        self.get(start_records).map(|guardian| guardian.pid())
    }

    fn get(&self, start_records: &StartRecords) -> Option<Arc<Guardian>> {
        let mut state = locked(&self.state);
        match &*state {
            State::Impossible => None,
            State::Some(guardian) if !guardian.has_ended() => Some(Arc::clone(guardian)),
            State::Some(_) | State::None => {
                let (begun, ended) = start_records.files();
                let guardian = Guardian::start(begun, ended).ok();
                *state = guardian.clone().map_or(State::Impossible, State::Some);
                guardian
            }
        }
    }
}
