//! Wakers: one thread listens on the channels of all wakers of a process, and passes each message on to a pipe, on which a thread
//! sleeps.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lockkeeper_core::id::WakerId;
use lockkeeper_platform::{pipe, poll};

use super::address::RedisAddress;
use super::connection::{Connection, Failure};
use super::resp::{Reply, put_command};
use crate::optimistic::TRIES;
use crate::optimistic::listener::{Listener, WakeSender};
use crate::{StoreError, Waker};

/// After this time without a message the thread sends a ping.
const QUIET: Duration = Duration::from_secs(10);
/// How soon a connection that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// The wakers of one store in this process.
pub(super) struct Wakers {
    prefix: String,
    address: String,
    shared: Arc<Shared>,
}

struct Shared {
    to: RedisAddress,
    limit: Duration,
    state: Mutex<State>,
    /// Signaled when a subscription is confirmed, or the thread has failed to connect.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    slots: BTreeMap<u64, Slot>,
    next: u64,
    /// Interrupts the thread; none if it does not run.
    interrupt: Option<OwnedFd>,
    /// Why there is no connection.
    failure: Option<Failure>,
    is_over: bool,
}

struct Slot {
    channel: String,
    wakes: WakeSender,
    /// Whether the server has confirmed the subscription.
    is_heard: bool,
}

impl Wakers {
    pub(super) fn new(to: RedisAddress, prefix: &str, limit: Duration) -> Self {
        let address = to.to_string();
        let shared = Shared { to, limit, state: Mutex::default(), changed: Condvar::new() };
        Self { prefix: format!("{prefix}wake:"), address, shared: Arc::new(shared) }
    }

    /// The channel of a waker.
    pub(super) fn channel(&self, id: WakerId) -> String {
        format!("{}{:x}", self.prefix, id.0)
    }

    /// Listens for wake-ups. When it returns, every wake-up from now on is heard.
    pub(super) fn listen(&self, id: WakerId) -> Result<Box<dyn Waker>, StoreError> {
        let failed = |source: io::Error| StoreError::Io {
            action: "make a waker for",
            address: self.address.clone(),
            source,
        };
        let (listener, wakes) = Listener::new(id, &self.address)?;
        let slot = Slot { channel: self.channel(id), wakes, is_heard: false };
        self.start().map_err(failed)?;
        let mut state = self.shared.state();
        let number = state.next;
        state.next += 1;
        state.slots.insert(number, slot);
        let is_pending = |state: &mut State| {
            state.failure.is_none() && state.slots.get(&number).is_some_and(|slot| !slot.is_heard)
        };
        let (mut is_heard, mut failure) = (false, None);
        for _ in 0..TRIES {
            state.failure = None;
            state.interrupt();
            let waited = self.shared.changed.wait_timeout_while(state, self.shared.limit, is_pending);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            is_heard = state.slots.get(&number).is_some_and(|slot| slot.is_heard);
            failure = state.failure.take();
            if is_heard || !matches!(failure, Some(Failure::Broken(_))) {
                break;
            }
        }
        drop(state);
        // Dropping it removes the slot.
        let subscription = Subscription { number, shared: Arc::clone(&self.shared) };
        if is_heard {
            return Ok(listener.keeping(subscription));
        }
        let failure = failure.unwrap_or(Failure::NoAnswer(self.shared.limit));
        Err(failure.explain(&self.address))
    }

    /// Starts the thread, unless it runs.
    fn start(&self) -> io::Result<()> {
        let mut state = self.shared.state();
        if state.interrupt.is_none() {
            let (interrupted, interrupt) = pipe::nonblocking()?;
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name("redis-wakers".to_owned());
            thread.spawn(move || shared.run(&interrupted))?;
            state.interrupt = Some(interrupt);
        }
        Ok(())
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        state.interrupt();
    }
}

impl State {
    /// Wakes the thread, which then looks at the state.
    fn interrupt(&self) {
        // A full pipe interrupts as well.
        let _ = self.interrupt.as_ref().map(|interrupt| rustix::io::write(interrupt, b"!"));
    }

    /// Whether the store and its last waker are gone.
    fn is_over(&self) -> bool {
        self.is_over && self.slots.is_empty()
    }

    fn channels(&self) -> BTreeSet<String> {
        self.slots.values().map(|slot| slot.channel.clone()).collect()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens until the store and its last waker are gone.
    fn run(&self, interrupted: &OwnedFd) {
        while !self.state().is_over() {
            let failure = match Connection::open(&self.to, self.limit) {
                Ok(mut connection) => Failure::Broken(self.listen(&mut connection, interrupted)),
                Err(failure) => failure,
            };
            // Wake-ups may have been lost with the connection: wakes every sleeper.
            let mut state = self.state();
            state.failure = Some(failure);
            state.slots.values_mut().for_each(|slot| slot.is_heard = false);
            state.slots.values().for_each(|slot| slot.wakes.wake());
            drop(state);
            self.changed.notify_all();
            let _ = poll::wait(&[interrupted.as_fd()], Some(RETRY));
            drain(interrupted);
        }
    }

    /// Passes messages on until the connection breaks. Returns why; at the end of the store, anything.
    fn listen(&self, connection: &mut Connection, interrupted: &OwnedFd) -> io::Error {
        let mut subscribed = BTreeSet::new();
        let mut heard = BTreeSet::new();
        let mut is_asked = false;
        loop {
            if self.state().is_over() {
                return io::ErrorKind::Interrupted.into();
            }
            if let Err(error) = self.subscribe(connection, &mut subscribed, &heard) {
                return error;
            }
            if !connection.has_more() {
                let pause = if is_asked { self.limit } else { QUIET };
                match poll::wait(&[connection.as_fd(), interrupted.as_fd()], Some(pause)) {
                    Ok(ready) if ready.contains(1) => drain(interrupted),
                    Ok(ready) if ready.any() => {}
                    Ok(_) if is_asked => return io::ErrorKind::TimedOut.into(),
                    Ok(_) => {
                        let mut ping = Vec::new();
                        put_command(&mut ping, ["PING"].iter());
                        is_asked = true;
                        if let Err(error) = connection.send(&ping) {
                            return error;
                        }
                    }
                    Err(error) => return error,
                }
                if poll::wait(&[connection.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| !ready.any()) {
                    continue;
                }
            }
            match connection.receive(self.limit) {
                Ok(reply) => self.note(&reply, &mut heard),
                Err(error) => return error,
            }
            is_asked = false;
        }
    }

    /// Subscribes to the channels of new wakers, and ends the subscriptions of those that are gone.
    fn subscribe(
        &self,
        connection: &mut Connection,
        subscribed: &mut BTreeSet<String>,
        heard: &BTreeSet<String>,
    ) -> io::Result<()> {
        let wanted = self.state().channels();
        let mut bytes = Vec::new();
        for (word, some, others) in
            [("SUBSCRIBE", &wanted, &*subscribed), ("UNSUBSCRIBE", &*subscribed, &wanted)]
        {
            let words: Vec<&str> = some.difference(others).map(String::as_str).collect();
            if !words.is_empty() {
                let words: Vec<&str> = [word].into_iter().chain(words).collect();
                put_command(&mut bytes, words.iter());
            }
        }
        *subscribed = wanted;
        if !bytes.is_empty() {
            connection.send(&bytes)?;
        }
        heard.iter().for_each(|channel| self.confirm(channel));
        Ok(())
    }

    /// Handles a message of the server.
    fn note(&self, reply: &Reply, heard: &mut BTreeSet<String>) {
        let words = reply.list().unwrap_or_default();
        let text = |place: usize| words.get(place).and_then(Reply::text);
        let Some(channel) = text(1) else { return };
        match text(0) {
            Some("subscribe") => {
                heard.insert(channel.to_owned());
                self.confirm(channel);
            }
            Some("unsubscribe") => {
                heard.remove(channel);
            }
            Some("message") => {
                for slot in self.state().slots.values().filter(|slot| slot.channel == channel) {
                    slot.wakes.wake_with(text(2).unwrap_or_default());
                }
            }
            Some(_) | None => {}
        }
    }

    /// Marks the wakers of a channel as subscribed: they get every wake-up from now on.
    fn confirm(&self, channel: &str) {
        let mut state = self.state();
        let mut is_new = false;
        for slot in state.slots.values_mut().filter(|slot| slot.channel == channel && !slot.is_heard) {
            slot.is_heard = true;
            is_new = true;
            // What was sent before, while the connection was broken, is lost.
            slot.wakes.wake();
        }
        drop(state);
        if is_new {
            self.changed.notify_all();
        }
    }
}

fn drain(pipe: &OwnedFd) {
    let mut bytes = [0; 64];
    while matches!(rustix::io::read(pipe, &mut bytes), Ok(read) if read > 0) {}
}

/// Dropping it ends the subscription.
struct Subscription {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.slots.remove(&self.number);
        state.interrupt();
    }
}
