//! Sessions of clients: a transaction that stays open over several calls has a thread, which ends when it is idle for too long.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::Text;
use crate::runs::messages::Answer;

/// How long a transaction stays open for a client that asks nothing.
pub(super) const IDLE: Duration = Duration::from_secs(30);
/// How many may be open.
const MOST: usize = 256;

/// A question and where its answer goes. None asks whether the session has begun.
pub(super) struct Asked<C> {
    pub(super) what: Option<C>,
    pub(super) reply: SyncSender<Answer<Text>>,
}

/// The open sessions, by the numbers that clients have drawn.
pub(super) struct Sessions<C> {
    open: Mutex<HashMap<u64, Sender<Asked<C>>>>,
}

impl<C> Default for Sessions<C> {
    fn default() -> Self {
        Self { open: Mutex::default() }
    }
}

impl<C: Send + 'static> Sessions<C> {
    /// Begins a session, unless it has begun: `work` answers what it is asked, and ends the session when it returns.
    pub(super) fn begin(
        self: &Arc<Self>,
        number: u64,
        work: impl FnOnce(Receiver<Asked<C>>) + Send + 'static,
    ) -> Answer<Text> {
        let mut open = self.lock();
        if !open.contains_key(&number) {
            if open.len() >= MOST {
                return Answer::Failed("too many clients read at the same time".to_owned());
            }
            let (sender, asked) = channel();
            let sessions = Arc::clone(self);
            let thread = thread::Builder::new().name("client".to_owned()).spawn(move || {
                work(asked);
                sessions.forget(number);
            });
            if let Err(error) = thread {
                return Answer::Failed(error.to_string());
            }
            open.insert(number, sender);
        }
        drop(open);
        self.ask(number, None)
    }

    /// Asks the thread of a session, and waits for its answer.
    pub(super) fn ask(&self, number: u64, what: Option<C>) -> Answer<Text> {
        let sender = self.lock().get(&number).cloned();
        let (reply, answer) = sync_channel(1);
        let asked = sender.and_then(|sender| sender.send(Asked { what, reply }).ok());
        let answer = asked.and_then(|()| answer.recv().ok());
        answer.unwrap_or_else(|| Answer::Failed("this client was silent for too long".to_owned()))
    }

    /// Ends a session. Its thread ends when it has answered what it was asked.
    pub(super) fn forget(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Sender<Asked<C>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
