//! Event broadcaster: one thread watches the store for changes and sends them to all event streams.
//!
//! The thread sleeps in the kernel until a file of the store is written, the process of a holder exits, or a TTL ends.
//! Without subscribers it does not read the store at all. Every event has a sequence number, and the last ones are kept in
//! a replay buffer: a client that reconnects receives the events that it missed. When the buffer does not reach back far
//! enough, or the client was connected to another server before, the events of runs come from the store, where each has a
//! position that is the same for all servers. Everything else is not stored: the client is told to load it again.

mod executions;
mod lease_changes;
mod message;
mod watcher;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use lockkeeper_engine::Engine;
use lockkeeper_engine::location::Location;
use lockkeeper_platform::random;
use tokio::sync::broadcast;

pub(super) use message::Message;
use watcher::Watcher;

/// How many events the replay buffer keeps.
const REPLAY_EVENTS: usize = 2_048;
/// How many events a subscriber may be behind before it has to load everything again.
const BACKLOG: usize = 256;

/// An event, ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its sequence number, from 1.
    pub(super) number: u64,
    /// The position in the store of the last event of a run so far.
    pub(super) position: u64,
    /// `lease`, `ticket`, `run`, `queue` or `stages`.
    pub(super) topic: &'static str,
    /// The message as one line of JSON.
    pub(super) data: Arc<str>,
}

/// Sends events to subscribers.
pub(super) struct Broadcaster {
    shared: Arc<Shared>,
}

/// What the broadcaster and its thread share.
struct Shared {
    /// Random number of this server. Sequence numbers of another server are not valid here.
    epoch: u64,
    replay: Mutex<ReplayBuffer>,
    sender: broadcast::Sender<Event>,
    /// Wakes the watcher thread when a client subscribes; the thread ends when this is closed.
    waker: Mutex<Option<io::PipeWriter>>,
}

/// The last events.
#[derive(Default)]
struct ReplayBuffer {
    last: u64,
    /// The position in the store of the last event of a run that was published.
    position: u64,
    events: VecDeque<Event>,
}

/// A subscription to all events.
pub(super) struct Subscription {
    /// The events since the last connection of this client.
    pub(super) missed: Missed,
    /// The sequence number of the last event before `receiver`.
    pub(super) last: u64,
    /// The position in the store of the last event of a run before `receiver`.
    pub(super) position: u64,
    /// The events from now on.
    pub(super) receiver: broadcast::Receiver<Event>,
}

/// The events that a client missed between two connections.
pub(super) enum Missed {
    /// The client connects for the first time.
    New,
    /// These events.
    Events(Vec<Event>),
    /// Those of runs are in the store, after this position. The others are not known any more.
    Stored(u64),
    /// Nobody knows which.
    TooMuch,
}

impl Broadcaster {
    pub(super) fn new() -> Self {
        let (sender, _) = broadcast::channel(BACKLOG);
        // Two servers must differ. Without a random source the process id has to do.
        let epoch = random::number().unwrap_or_else(|_| u64::from(std::process::id())) >> 16;
        let shared = Shared { epoch, replay: Mutex::default(), sender, waker: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Starts the watcher thread.
    pub(super) fn start(&self, leases: &Arc<Engine>, location: &Location) -> io::Result<WatcherThread> {
        let (wake_receiver, waker) = io::pipe()?;
        *locked(&self.shared.waker) = Some(waker);
        let watcher = Watcher::new(Arc::clone(leases), location, wake_receiver, Arc::clone(&self.shared))?;
        locked(&self.shared.replay).position = watcher.position();
        let thread = thread::Builder::new().name("events".to_owned()).spawn(move || watcher.run())?;
        Ok(WatcherThread { shared: Arc::clone(&self.shared), thread })
    }

    /// Subscribes to all events after the one whose cursor is `last`.
    pub(super) fn subscribe(&self, last: Option<&str>) -> Subscription {
        let replay = locked(&self.shared.replay);
        // Subscribed under the lock: an event is either in the buffer or still to come, never both and never neither.
        let receiver = self.shared.sender.subscribe();
        let missed = match last {
            None => Missed::New,
            Some(text) => {
                let known = self.shared.number_of(text).and_then(|number| replay.since(number));
                let stored = || position_of(text).map_or(Missed::TooMuch, Missed::Stored);
                known.map_or_else(stored, Missed::Events)
            }
        };
        let (last, position) = (replay.last, replay.position);
        drop(replay);
        self.shared.wake();
        Subscription { missed, last, position, receiver }
    }

    /// The cursor of an event, `EPOCH-NUMBER-POSITION`. A client sends it back as `Last-Event-ID`, to this server or another one.
    pub(super) fn cursor(&self, number: u64, position: u64) -> String {
        format!("{:x}-{number}-{position}", self.shared.epoch)
    }

    /// The cursor of an event that was read from the store: no server has a number for it.
    pub(super) fn stored_cursor(position: u64) -> String {
        format!("0-0-{position}")
    }

    /// How many subscribers there are.
    pub(super) fn subscribers(&self) -> usize {
        self.shared.sender.receiver_count()
    }
}

impl Shared {
    /// Numbers messages, keeps them for replay, and sends them to all subscribers.
    fn publish(&self, messages: Vec<Message>) {
        let mut replay = locked(&self.replay);
        for message in messages {
            replay.last += 1;
            replay.position = message.position().unwrap_or(replay.position);
            let (number, position) = (replay.last, replay.position);
            let event = Event { number, position, topic: message.topic(), data: message.to_line() };
            replay.events.push_back(event.clone());
            if replay.events.len() > REPLAY_EVENTS {
                replay.events.pop_front();
            }
            // It fails when there is no subscriber, which is normal.
            let _ = self.sender.send(event);
        }
    }

    fn has_subscribers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn number_of(&self, cursor: &str) -> Option<u64> {
        let (epoch, rest) = cursor.split_once('-')?;
        let number = rest.split('-').next()?;
        (u64::from_str_radix(epoch, 16).ok()? == self.epoch).then(|| number.parse().ok())?
    }

    fn wake(&self) {
        if let Some(waker) = &mut *locked(&self.waker) {
            // The write fails only if the thread has ended.
            let _ = waker.write(&[1]);
        }
    }
}

impl ReplayBuffer {
    /// The events after this one; none if some of them are gone.
    fn since(&self, number: u64) -> Option<Vec<Event>> {
        let first = self.events.front().map_or(self.last + 1, |event| event.number);
        if number > self.last || number + 1 < first {
            return None;
        }
        Some(self.events.iter().filter(|event| event.number > number).cloned().collect())
    }
}

/// The position in a cursor of any server.
fn position_of(cursor: &str) -> Option<u64> {
    let mut parts = cursor.split('-').skip(2);
    parts.next()?.parse().ok().filter(|_| parts.next().is_none())
}

/// Handle of the watcher thread.
pub(super) struct WatcherThread {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl WatcherThread {
    /// Stops the thread and waits for its end.
    pub(super) fn stop(self) {
        // The thread ends when the waker is closed.
        locked(&self.shared.waker).take();
        if self.thread.join().is_err() {
            tracing::error!("the thread that watches for events panicked");
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(count: usize) -> Vec<Message> {
        (0..count).map(|_| Message::stages("stages.began", "EX-1".to_owned())).collect()
    }

    fn numbers(missed: &Missed) -> Option<Vec<u64>> {
        match missed {
            Missed::New => Some(Vec::new()),
            Missed::Events(events) => Some(events.iter().map(|event| event.number).collect()),
            Missed::Stored(_) | Missed::TooMuch => None,
        }
    }

    #[test]
    fn a_client_that_reconnects_receives_what_it_missed_and_nothing_twice() {
        let broadcaster = Broadcaster::new();
        broadcaster.shared.publish(messages(3));
        let mut back = broadcaster.subscribe(Some(&broadcaster.cursor(1, 0)));
        assert_eq!(numbers(&back.missed), Some(vec![2, 3]));
        broadcaster.shared.publish(messages(1));
        assert_eq!(back.receiver.try_recv().unwrap().number, 4);
        assert!(back.receiver.try_recv().is_err());
        let current = broadcaster.subscribe(Some(&broadcaster.cursor(4, 0)));
        assert_eq!(numbers(&current.missed), Some(Vec::new()));
    }

    #[test]
    fn a_client_that_missed_too_much_or_comes_from_another_server_has_to_load_again() {
        let broadcaster = Broadcaster::new();
        broadcaster.shared.publish(messages(REPLAY_EVENTS + 10));
        let missed = |cursor: &str| numbers(&broadcaster.subscribe(Some(cursor)).missed);
        assert_eq!(missed(&broadcaster.cursor(5, 0)), None);
        assert_eq!(missed(&broadcaster.cursor(10, 0)).map(|missed| missed.len()), Some(REPLAY_EVENTS));
        let beyond = broadcaster.cursor(REPLAY_EVENTS as u64 + 11, 0);
        for cursor in ["1", "", "-", "zz-1", "0-1", beyond.as_str()] {
            assert!(missed(cursor).is_none(), "{cursor}");
        }
        let stored = |cursor: &str| match broadcaster.subscribe(Some(cursor)).missed {
            Missed::Stored(position) => Some(position),
            Missed::New | Missed::Events(_) | Missed::TooMuch => None,
        };
        // The store knows the events of runs.
        assert_eq!([stored("0-1-7"), stored(&broadcaster.cursor(5, 9))], [Some(7), Some(9)]);
        assert_eq!([stored("0-1"), stored("0-1-x"), stored("0-1-7-8")], [None; 3]);
    }
}
