//! A proxy in front of a PostgreSQL server: counts round trips, and breaks connections at a chosen message.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use crate::Dice;

const SOCKET: &str = ".s.PGSQL.5432";

/// When a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Before the server reads the message.
    Before,
    /// After the server has answered it. The client does not get the answer.
    After,
}

/// A proxy in front of a server, which breaks connections.
pub trait ServerProxy: Send + Sync {
    /// The address for clients.
    fn address(&self) -> &str;

    /// Breaks the connection of the `number`th message from now on, counted from 1.
    fn break_at(&self, number: usize, when: Break);

    /// Breaks the connection of about one message of `often`, before or after it, `most` times.
    fn break_sometimes(&self, dice: Dice, often: u64, most: usize);

    /// Breaks no connection any more, and counts from 0 again.
    fn reset(&self);

    /// How many connections it has broken.
    fn breaks(&self) -> usize;

    /// Lets nothing through any more, or again, without a word to either side.
    fn silence(&self, is_silent: bool);

    /// Breaks all connections now.
    fn close_all(&self);
}

/// A proxy on a port of its own.
pub struct PostgresProxy {
    address: String,
    shared: Arc<Shared>,
}

/// What all connections share.
struct Shared {
    server: PathBuf,
    plan: Mutex<Plan>,
    connections: Mutex<Vec<Weak<Connection>>>,
    /// Whether nothing gets through, as when a cable is cut: no connection ends.
    is_silent: Mutex<bool>,
    talks: Condvar,
}

impl Shared {
    fn wait_while_silent(&self) {
        let silent = lock(&self.is_silent);
        drop(self.talks.wait_while(silent, |is_silent| *is_silent).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Which message breaks its connection, and what was counted.
#[derive(Default)]
pub(crate) struct Plan {
    /// Messages of clients until the break, and how it breaks.
    at: Option<(usize, Break)>,
    /// Breaks at random: one message of this number, and how many breaks are left.
    sometimes: Option<(Dice, u64, usize)>,
    breaks: usize,
    round_trips: usize,
}

impl PostgresProxy {
    /// Starts a proxy in front of the server with this address (`host=FOLDER user=… dbname=…`).
    #[must_use]
    pub fn start(server: &str) -> Self {
        let (host, rest): (Vec<&str>, Vec<&str>) =
            server.split_whitespace().partition(|part| part.starts_with("host="));
        let host = host.first().and_then(|host| host.strip_prefix("host=")).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server: PathBuf::from(host).join(SOCKET),
            plan: Mutex::default(),
            connections: Mutex::default(),
            is_silent: Mutex::default(),
            talks: Condvar::new(),
        });
        let connections = Arc::clone(&shared);
        thread::spawn(move || {
            // It ends with the process.
            for client in listener.incoming().flatten() {
                let _ = Connection::start(client, &connections);
            }
        });
        Self { address: format!("host=127.0.0.1 port={port} {}", rest.join(" ")), shared }
    }

    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Breaks the connection of the `number`th message from now on, counted from 1.
    pub fn break_at(&self, number: usize, when: Break) {
        *self.plan() = Plan::at(number, when);
    }

    /// Breaks the connection of about one message of `often`, before or after it, `most` times. Leaves out what a store cannot
    /// make good: read-only transactions, whose moment does not come back, notifications, and the first message of a connection.
    pub fn break_sometimes(&self, dice: Dice, often: u64, most: usize) {
        *self.plan() = Plan::sometimes(dice, often, most);
    }

    /// Breaks no connection any more, and counts from 0 again.
    pub fn reset(&self) {
        *self.plan() = Plan::default();
    }

    /// Lets nothing through any more, or again, without a word to either side.
    pub fn silence(&self, is_silent: bool) {
        *lock(&self.shared.is_silent) = is_silent;
        self.shared.talks.notify_all();
    }

    /// Breaks all connections now.
    pub fn close_all(&self) {
        lock(&self.shared.connections)
            .drain(..)
            .filter_map(|open| open.upgrade())
            .for_each(|open| open.close());
    }

    /// How many connections it has broken.
    #[must_use]
    pub fn breaks(&self) -> usize {
        self.plan().breaks
    }

    /// How often clients have waited for the server.
    #[must_use]
    pub fn round_trips(&self) -> usize {
        self.plan().round_trips
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.shared.plan)
    }
}

impl ServerProxy for PostgresProxy {
    fn address(&self) -> &str {
        Self::address(self)
    }

    fn break_at(&self, number: usize, when: Break) {
        Self::break_at(self, number, when);
    }

    fn break_sometimes(&self, dice: Dice, often: u64, most: usize) {
        Self::break_sometimes(self, dice, often, most);
    }

    fn reset(&self) {
        Self::reset(self);
    }

    fn breaks(&self) -> usize {
        Self::breaks(self)
    }

    fn silence(&self, is_silent: bool) {
        Self::silence(self, is_silent);
    }

    fn close_all(&self) {
        Self::close_all(self);
    }
}

impl Plan {
    pub(crate) fn at(number: usize, when: Break) -> Self {
        Self { at: Some((number, when)), ..Self::default() }
    }

    pub(crate) fn sometimes(dice: Dice, often: u64, most: usize) -> Self {
        Self { sometimes: Some((dice, often, most)), ..Self::default() }
    }

    pub(crate) fn breaks(&self) -> usize {
        self.breaks
    }

    /// Whether the next message breaks its connection, and how.
    pub(crate) fn next(&mut self, is_delicate: bool) -> Option<Break> {
        let when = match (&mut self.at, &mut self.sometimes) {
            (Some((1, when)), _) => {
                let when = *when;
                self.at = None;
                Some(when)
            }
            (Some((left, _)), _) => {
                *left -= 1;
                None
            }
            (None, Some((dice, often, left))) => {
                let [is_hit, is_before] = [*often, 2].map(|sides| dice.number() % sides == 0);
                let breaks = is_hit && !is_delicate && *left > 0;
                *left -= usize::from(breaks);
                breaks.then_some(if is_before { Break::Before } else { Break::After })
            }
            (None, None) => None,
        };
        self.breaks += usize::from(when.is_some());
        when
    }
}

/// One connection of a client.
struct Connection {
    client: TcpStream,
    server: UnixStream,
    answers: Mutex<Answers>,
}

/// What the server owes.
struct Answers {
    /// Messages that end with an answer, and the answers that have come.
    asked: usize,
    came: usize,
    /// The client gets no more answers, and the connection ends with the last one.
    is_breaking: bool,
}

impl Connection {
    fn start(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
        client.set_nodelay(true)?;
        let server = UnixStream::connect(&shared.server)?;
        let answers = Mutex::new(Answers { asked: 0, came: 0, is_breaking: false });
        let connection = Arc::new(Self { client, server, answers });
        lock(&shared.connections).push(Arc::downgrade(&connection));
        let (back, of_replies, shared) = (Arc::clone(&connection), Arc::clone(shared), Arc::clone(shared));
        thread::spawn(move || {
            let _ = connection.requests(&shared);
            connection.close();
        });
        thread::spawn(move || {
            let _ = back.replies(&of_replies);
            back.close();
        });
        Ok(())
    }

    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// Passes messages of the client on.
    fn requests(&self, shared: &Shared) -> io::Result<()> {
        let mut messages = Messages::new(true);
        let mut delicate = Delicate::Statement;
        loop {
            let was_idle = {
                let more = messages.receive(&self.client)?;
                let answers = lock(&self.answers);
                if !more || answers.is_breaking {
                    return Ok(());
                }
                answers.asked == answers.came
            };
            let mut asks = 0;
            shared.wait_while_silent();
            while let Some(message) = messages.next() {
                let is_delicate = delicate != Delicate::No;
                delicate = delicate.after(&message);
                match lock(&shared.plan).next(is_delicate || delicate != Delicate::No) {
                    None => {}
                    Some(Break::Before) => return Ok(()),
                    Some(Break::After) => {
                        let mut answers = lock(&self.answers);
                        answers.asked += usize::from(message.is_answered);
                        answers.is_breaking = true;
                        drop(answers);
                        (&self.server).write_all(&message.bytes)?;
                        if message.is_answered {
                            // The other thread ends the connection when the answer has come.
                            let _ = (&self.client).read(&mut [0; 1]);
                        }
                        return Ok(());
                    }
                }
                if message.is_answered {
                    asks += 1;
                    lock(&self.answers).asked += 1;
                }
                (&self.server).write_all(&message.bytes)?;
            }
            lock(&shared.plan).round_trips += usize::from(asks > 0 && was_idle);
        }
    }

    /// Passes answers of the server back.
    fn replies(&self, shared: &Shared) -> io::Result<()> {
        let mut messages = Messages::new(false);
        while messages.receive(&self.server)? {
            shared.wait_while_silent();
            while let Some(message) = messages.next() {
                let mut answers = lock(&self.answers);
                answers.came += usize::from(message.bytes[0] == b'Z');
                if answers.is_breaking {
                    if answers.came >= answers.asked {
                        return Ok(());
                    }
                    continue;
                }
                drop(answers);
                (&self.client).write_all(&message.bytes)?;
            }
        }
        Ok(())
    }
}

/// What goes on in a connection that a random break leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delicate {
    No,
    /// Until the end of the statement.
    Statement,
    /// Until the end of the transaction.
    Transaction,
    /// For ever.
    Listens,
}

impl Delicate {
    /// The same after a message.
    fn after(self, message: &Message) -> Self {
        let has = |text: &str| message.bytes.windows(text.len()).any(|part| part == text.as_bytes());
        match self {
            Self::Listens => self,
            Self::No | Self::Statement | Self::Transaction if has("LISTEN ") => Self::Listens,
            Self::No | Self::Statement if has("READ ONLY") => Self::Transaction,
            Self::No | Self::Statement if has("pg_notify") => Self::Statement,
            Self::Transaction if has("ROLLBACK") => Self::Statement,
            Self::Statement if message.is_answered => Self::No,
            Self::No | Self::Statement | Self::Transaction => self,
        }
    }
}

/// Messages of one side, cut out of what it sends.
struct Messages {
    bytes: Vec<u8>,
    /// The first message of a client has no letter.
    is_first: bool,
}

struct Message {
    bytes: Vec<u8>,
    /// Whether the server answers it at once and is then ready for the next one.
    is_answered: bool,
}

impl Messages {
    fn new(is_first: bool) -> Self {
        Self { bytes: Vec::new(), is_first }
    }

    /// Waits for more. False at the end.
    fn receive(&mut self, mut from: impl Read) -> io::Result<bool> {
        let mut part = vec![0; 1 << 16];
        let read = from.read(&mut part)?;
        self.bytes.extend_from_slice(&part[..read]);
        Ok(read > 0)
    }

    /// The next message, if all of it is there.
    fn next(&mut self) -> Option<Message> {
        let letter = usize::from(!self.is_first);
        let length = self.bytes.get(letter..letter + 4)?;
        let length = letter + u32::from_be_bytes(length.try_into().unwrap()) as usize;
        if self.bytes.len() < length {
            return None;
        }
        let rest = self.bytes.split_off(length);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        let is_answered = self.is_first || matches!(bytes[0], b'S' | b'Q');
        self.is_first = false;
        Some(Message { bytes, is_answered })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
