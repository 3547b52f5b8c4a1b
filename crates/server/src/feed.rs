//! What happened, for everybody who listens: one thread looks when the store changes, and tells all of them.
//!
//! The thread sleeps in the kernel until the store's folder is written to, a holder's process ends or a TTL runs out;
//! with nobody listening it does not look at all. Every event has a number, and the last ones are kept, so that a
//! listener who was away for a while hears what it missed. After that, or after a restart, it is told to look again.

mod executions;
mod watcher;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tokio::sync::broadcast;

use lockkeeper_engine::Engine;
use lockkeeper_platform::random;
use watcher::Watcher;

/// How many events are kept for those who were away.
const KEPT: usize = 2_048;
/// How many events a listener may be behind before it is told to look again.
const BACKLOG: usize = 256;

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Its number, from 1.
    pub(super) number: u64,
    /// What it is about: `lease`, `ticket`, `run`, `queue`, `stages`.
    pub(super) topic: &'static str,
    /// What happened, as one line of JSON.
    pub(super) data: Arc<str>,
}

/// The place to listen at.
pub(super) struct Feed {
    shared: Arc<Shared>,
}

struct Shared {
    /// Which server's numbers these are: those of another one mean nothing here.
    epoch: u64,
    past: Mutex<Past>,
    sender: broadcast::Sender<Event>,
    /// Wakes the thread when somebody comes to listen.
    doorbell: Mutex<Option<io::PipeWriter>>,
}

#[derive(Default)]
struct Past {
    last: u64,
    events: VecDeque<Event>,
}

/// What a listener begins with.
pub(super) struct Subscription {
    /// What it missed, or that it has to look again.
    pub(super) missed: Missed,
    /// The number of the last event before what comes.
    pub(super) last: u64,
    /// What comes.
    pub(super) coming: broadcast::Receiver<Event>,
}

/// What happened while a listener was away.
pub(super) enum Missed {
    /// It was never here.
    New,
    /// All of it.
    Events(Vec<Event>),
    /// More than is known.
    TooMuch,
}

impl Feed {
    pub(super) fn new() -> Self {
        let (sender, _) = broadcast::channel(BACKLOG);
        // Two servers must not have the same: where there is no randomness, nobody can resume.
        let epoch = random::number().unwrap_or_else(|_| u64::from(std::process::id())) >> 16;
        let shared = Shared { epoch, past: Mutex::default(), sender, doorbell: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Begins to look.
    pub(super) fn start(&self, leases: &Arc<Engine>, folder: &Path) -> io::Result<Feeding> {
        let (waker, doorbell) = io::pipe()?;
        *locked(&self.shared.doorbell) = Some(doorbell);
        let watcher = Watcher::new(Arc::clone(leases), folder, waker, Arc::clone(&self.shared))?;
        let thread = thread::Builder::new().name("feed".to_owned()).spawn(move || watcher.run())?;
        Ok(Feeding { shared: Arc::clone(&self.shared), thread })
    }

    /// Listens, from after the event that `last` names.
    pub(super) fn subscribe(&self, last: Option<&str>) -> Subscription {
        let past = locked(&self.shared.past);
        // Under the lock, so that no event is both missed and still to come, or neither.
        let coming = self.shared.sender.subscribe();
        let missed = match last {
            None => Missed::New,
            Some(text) => match self.shared.number_of(text) {
                Some(number) => past.since(number),
                None => Missed::TooMuch,
            },
        };
        let last = past.last;
        drop(past);
        self.shared.ring();
        Subscription { missed, last, coming }
    }

    /// How an event is called: `EPOCH-NUMBER`.
    pub(super) fn cursor(&self, number: u64) -> String {
        format!("{:x}-{number}", self.shared.epoch)
    }

    /// How many listen.
    pub(super) fn listeners(&self) -> usize {
        self.shared.sender.receiver_count()
    }
}

impl Shared {
    /// Tells everybody.
    fn publish(&self, happened: Vec<(&'static str, Value)>) {
        let mut past = locked(&self.past);
        for (topic, data) in happened {
            past.last += 1;
            let event = Event { number: past.last, topic, data: data.to_string().into() };
            past.events.push_back(event.clone());
            if past.events.len() > KEPT {
                past.events.pop_front();
            }
            // Nobody listening is no failure.
            let _ = self.sender.send(event);
        }
    }

    fn has_listeners(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    fn number_of(&self, cursor: &str) -> Option<u64> {
        let (epoch, number) = cursor.split_once('-')?;
        (u64::from_str_radix(epoch, 16).ok()? == self.epoch).then(|| number.parse().ok())?
    }

    fn ring(&self) {
        if let Some(doorbell) = &mut *locked(&self.doorbell) {
            // A full pipe wakes just as well.
            let _ = doorbell.write(&[1]);
        }
    }
}

impl Past {
    fn since(&self, number: u64) -> Missed {
        let first = self.events.front().map_or(self.last + 1, |event| event.number);
        if number > self.last || number + 1 < first {
            return Missed::TooMuch;
        }
        Missed::Events(self.events.iter().filter(|event| event.number > number).cloned().collect())
    }
}

/// A thread that looks.
pub(super) struct Feeding {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

impl Feeding {
    /// Ends it.
    pub(super) fn stop(self) {
        // It ends when its doorbell is gone.
        locked(&self.shared.doorbell).take();
        if self.thread.join().is_err() {
            tracing::error!("the thread that tells of events had panicked");
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(missed: &Missed) -> Option<Vec<u64>> {
        match missed {
            Missed::New => Some(Vec::new()),
            Missed::Events(events) => Some(events.iter().map(|event| event.number).collect()),
            Missed::TooMuch => None,
        }
    }

    #[test]
    fn a_listener_who_was_away_hears_what_it_missed_and_nothing_twice() {
        let feed = Feed::new();
        feed.shared.publish(vec![("lease", Value::Null); 3]);
        let mut back = feed.subscribe(Some(&feed.cursor(1)));
        assert_eq!(numbers(&back.missed), Some(vec![2, 3]));
        feed.shared.publish(vec![("lease", Value::Null)]);
        assert_eq!(back.coming.try_recv().unwrap().number, 4);
        assert!(back.coming.try_recv().is_err());
        assert_eq!(numbers(&feed.subscribe(Some(&feed.cursor(4))).missed), Some(Vec::new()));
    }

    #[test]
    fn who_missed_too_much_or_comes_from_another_server_has_to_look_again() {
        let feed = Feed::new();
        feed.shared.publish(vec![("lease", Value::Null); KEPT + 10]);
        assert_eq!(numbers(&feed.subscribe(Some(&feed.cursor(5))).missed), None);
        assert_eq!(
            numbers(&feed.subscribe(Some(&feed.cursor(10))).missed).map(|missed| missed.len()),
            Some(KEPT)
        );
        let beyond = feed.cursor(KEPT as u64 + 11);
        for cursor in ["1", "", "-", "zz-1", "0-1", beyond.as_str()] {
            assert!(numbers(&feed.subscribe(Some(cursor)).missed).is_none(), "{cursor}");
        }
    }
}
