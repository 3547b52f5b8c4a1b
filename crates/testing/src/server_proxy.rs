//! A proxy in front of a server of PostgreSQL, Redis or Lockkeeper, or of a member of etcd: counts round trips, and breaks connections at a chosen message.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use crate::Dice;

/// The name of PostgreSQL's socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// What a client of HTTP/2 sends before its first frame.
const PREFACE: usize = 24;
/// The head of a frame of HTTP/2, the types of frames with data and with headers, and the flag of the last one of a call.
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// When a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Before the server reads the message.
    Before,
    /// After the server has answered it. The client does not get the answer.
    After,
    /// No connection ends: before the server reads the message, all messages are held back, as by [`ServerProxy::silence`].
    Silence,
}

/// A proxy on a port of its own.
pub struct ServerProxy {
    address: String,
    shared: Arc<Shared>,
}

/// How client and server talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Postgres,
    Redis,
    /// gRPC over HTTP/2: several calls at a time.
    Etcd,
    /// HTTP/1.1, as `lockkeeper serve` speaks it.
    Http,
}

/// Where the server listens.
enum Endpoint {
    Socket(PathBuf),
    Port(String),
}

/// What all connections share.
struct Shared {
    server: Endpoint,
    protocol: Protocol,
    plan: Mutex<Plan>,
    connections: Mutex<Vec<Weak<Connection>>>,
    /// Whether all messages are held back, as when a cable is cut: no connection ends.
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
struct Plan {
    /// How many messages of clients are left until the break, and its kind.
    at: Option<(usize, Break)>,
    /// Breaks at random: about one of this many messages breaks its connection, and how many breaks are left.
    sometimes: Option<(Dice, u64, usize)>,
    breaks: usize,
    round_trips: usize,
}

impl ServerProxy {
    /// Starts a proxy in front of the server with this address (`host=FOLDER user=… dbname=…`, `unix:PATH`, `http://HOST:PORT` or `HOST:PORT`).
    #[must_use]
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (protocol, server, address) = if let Some(path) = server.strip_prefix("unix:") {
            (Protocol::Redis, Endpoint::Socket(path.into()), format!("redis://127.0.0.1:{port}"))
        } else if let Some(server) = server.strip_prefix("http://") {
            (Protocol::Http, Endpoint::Port(server.to_owned()), format!("http://127.0.0.1:{port}"))
        } else if server.contains("host=") {
            let (host, rest): (Vec<&str>, Vec<&str>) =
                server.split_whitespace().partition(|part| part.starts_with("host="));
            let host = host.first().and_then(|host| host.strip_prefix("host=")).unwrap();
            let address = format!("host=127.0.0.1 port={port} {}", rest.join(" "));
            (Protocol::Postgres, Endpoint::Socket(PathBuf::from(host).join(SOCKET)), address)
        } else {
            (Protocol::Etcd, Endpoint::Port(server.to_owned()), format!("127.0.0.1:{port}"))
        };
        let shared = Arc::new(Shared {
            server,
            protocol,
            plan: Mutex::default(),
            connections: Mutex::default(),
            is_silent: Mutex::default(),
            talks: Condvar::new(),
        });
        let connections = Arc::clone(&shared);
        thread::spawn(move || {
            // The thread ends with the process.
            for client in listener.incoming().flatten() {
                let _ = Connection::start(client, &connections);
            }
        });
        Self { address, shared }
    }

    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Breaks the connection of the `number`th message from now on, counted from 1.
    pub fn break_at(&self, number: usize, when: Break) {
        *self.plan() = Plan { at: Some((number, when)), ..Plan::default() };
    }

    /// Breaks the connection of about one message of `often`, before or after it, `most` times. Leaves out breaks from which
    /// a store cannot recover: in a read-only transaction, whose snapshot is lost, in a notification, and at the first message of a
    /// connection.
    pub fn break_sometimes(&self, dice: Dice, often: u64, most: usize) {
        *self.plan() = Plan { sometimes: Some((dice, often, most)), ..Plan::default() };
    }

    /// Breaks no connection any more, and counts from 0 again.
    pub fn reset(&self) {
        *self.plan() = Plan::default();
    }

    /// Holds back all messages, or passes them on again. Neither side is told, and no connection ends.
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

impl Plan {
    /// Whether the next message breaks its connection, and how.
    fn next(&mut self, is_delicate: bool) -> Option<Break> {
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
    server: Stream,
    answers: Mutex<Answers>,
}

/// A connection to the server.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn connect(to: &Endpoint) -> io::Result<Self> {
        match to {
            Endpoint::Socket(path) => UnixStream::connect(path).map(Self::Unix),
            Endpoint::Port(port) => {
                let stream = TcpStream::connect(port)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    fn close(&self) {
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => (&mut &*stream).write_all(bytes),
            Self::Tcp(stream) => (&mut &*stream).write_all(bytes),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read(bytes),
            Stream::Tcp(stream) => (&mut &*stream).read(bytes),
        }
    }
}

/// The answers that a connection waits for.
struct Answers {
    /// Messages that end with an answer, and the answers that have come.
    asked: usize,
    came: usize,
    /// The client gets no more answers, and the connection ends with the last one, or with the one of this call.
    breaks_after: Option<Call>,
}

/// A call on a connection that has several at a time; 0 on others.
type Call = u32;

impl Connection {
    fn start(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
        client.set_nodelay(true)?;
        let server = Stream::connect(&shared.server)?;
        let answers = Mutex::new(Answers { asked: 0, came: 0, breaks_after: None });
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
        self.server.close();
    }

    /// Passes messages of the client on.
    fn requests(&self, shared: &Shared) -> io::Result<()> {
        let mut messages = Messages::new(shared.protocol, true);
        // Every other store makes every break good.
        let mut delicate = match shared.protocol {
            Protocol::Postgres => Delicate::Statement,
            Protocol::Redis | Protocol::Etcd | Protocol::Http => Delicate::No,
        };
        loop {
            let was_idle = {
                let more = messages.receive(&self.client)?;
                let answers = lock(&self.answers);
                if !more || answers.breaks_after.is_some() {
                    return Ok(());
                }
                answers.asked == answers.came
            };
            let mut asks = 0;
            shared.wait_while_silent();
            while let Some(message) = messages.next() {
                let is_delicate = delicate != Delicate::No;
                delicate = delicate.after(&message);
                let is_delicate = is_delicate || delicate != Delicate::No;
                let when = if message.is_request { lock(&shared.plan).next(is_delicate) } else { None };
                match when {
                    None => {}
                    Some(Break::Before) => return Ok(()),
                    Some(Break::Silence) => {
                        *lock(&shared.is_silent) = true;
                        shared.wait_while_silent();
                    }
                    Some(Break::After) => {
                        let mut answers = lock(&self.answers);
                        answers.asked += usize::from(message.is_answered);
                        answers.breaks_after = Some(message.call);
                        drop(answers);
                        self.server.send(&message.bytes)?;
                        if message.is_answered {
                            // The other thread ends the connection when the answer has come.
                            while (&self.client).read(&mut [0; 64])? > 0 {}
                        }
                        return Ok(());
                    }
                }
                if message.is_answered {
                    asks += 1;
                    lock(&self.answers).asked += 1;
                }
                self.server.send(&message.bytes)?;
            }
            lock(&shared.plan).round_trips += usize::from(asks > 0 && was_idle);
        }
    }

    /// Passes answers of the server back.
    fn replies(&self, shared: &Shared) -> io::Result<()> {
        let mut messages = Messages::new(shared.protocol, false);
        while messages.receive(&self.server)? {
            shared.wait_while_silent();
            while let Some(message) = messages.next() {
                let mut answers = lock(&self.answers);
                answers.came += usize::from(message.is_last);
                if let Some(call) = answers.breaks_after {
                    let is_over = match shared.protocol {
                        Protocol::Postgres | Protocol::Redis | Protocol::Http => {
                            answers.came >= answers.asked
                        }
                        Protocol::Etcd => message.is_last && message.call == call,
                    };
                    if is_over {
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

/// The part of a connection in which no random break may come.
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
    /// The next state, after a message.
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

/// Splits the bytes that one side sends into messages.
struct Messages {
    bytes: Vec<u8>,
    /// Whether the next message is the first one of a client, which has another form.
    is_first: bool,
    protocol: Protocol,
}

struct Message {
    bytes: Vec<u8>,
    /// Whether the server answers it at once and is then ready for the next one.
    is_answered: bool,
    /// Whether it is the end of an answer.
    is_last: bool,
    /// Whether it asks for something, so that its connection may break.
    is_request: bool,
    call: Call,
}

impl Messages {
    fn new(protocol: Protocol, is_first: bool) -> Self {
        Self { bytes: Vec::new(), is_first, protocol }
    }

    /// Waits for more bytes. False at the end of the connection.
    fn receive(&mut self, mut from: impl Read) -> io::Result<bool> {
        let mut part = vec![0; 1 << 16];
        let read = from.read(&mut part)?;
        self.bytes.extend_from_slice(&part[..read]);
        Ok(read > 0)
    }

    /// The next message, if all of it is there.
    fn next(&mut self) -> Option<Message> {
        let letter = usize::from(!self.is_first);
        let length = match self.protocol {
            Protocol::Postgres => {
                let length = self.bytes.get(letter..letter + 4)?;
                letter + u32::from_be_bytes(length.try_into().unwrap()) as usize
            }
            Protocol::Redis => resp_length(&self.bytes)?,
            Protocol::Http => http_length(&self.bytes)?,
            Protocol::Etcd if self.is_first => PREFACE,
            Protocol::Etcd => {
                let length = self.bytes.get(..3)?;
                FRAME_HEAD + u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize
            }
        };
        if self.bytes.len() < length {
            return None;
        }
        let rest = self.bytes.split_off(length);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        let is_first = std::mem::take(&mut self.is_first);
        Some(match self.protocol {
            Protocol::Postgres => {
                let is_answered = is_first || matches!(bytes[0], b'S' | b'Q');
                let is_last = bytes[0] == b'Z';
                Message { bytes, is_answered, is_last, is_request: true, call: 0 }
            }
            Protocol::Redis => Message { bytes, is_answered: true, is_last: true, is_request: true, call: 0 },
            Protocol::Http => {
                // A response that does not end is answered by its head.
                let is_last = bytes.starts_with(b"HTTP/");
                Message { bytes, is_answered: true, is_last, is_request: true, call: 0 }
            }
            Protocol::Etcd => {
                // Each request has one frame with its data. A watch has no end: its first data is its answer.
                let is_request = !is_first && bytes[3] == DATA;
                let is_last = is_request || (!is_first && bytes[3] == HEADERS && bytes[4] & END_STREAM != 0);
                let call = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
                Message { bytes, is_answered: is_request, is_last, is_request, call }
            }
        })
    }
}

/// How long the first command or reply of Redis is, if all of it is there.
fn resp_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..end - 2]).unwrap().parse::<i64>().unwrap();
    match bytes[0] {
        b'$' => {
            let length = usize::try_from(number()).map_or(end, |length| end + length + 2);
            (bytes.len() >= length).then_some(length)
        }
        b'*' => (0..number()).try_fold(end, |at, _| Some(at + resp_length(&bytes[at..])?)),
        _ => Some(end),
    }
}

/// How long the first request or response is, or the first part of a response that does not end, if all of it is there.
fn http_length(bytes: &[u8]) -> Option<usize> {
    let is_head = [&b"HTTP/"[..], b"POST ", b"GET "].iter().any(|start| bytes.starts_with(start));
    let ending: &[u8] = if is_head { b"\r\n\r\n" } else { b"\r\n" };
    let end = bytes.windows(ending.len()).position(|part| part == ending)? + ending.len();
    let head = std::str::from_utf8(&bytes[..end]).unwrap().to_ascii_lowercase();
    let body = if is_head {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        length.map_or(0, |length| length.trim().parse().unwrap())
    } else {
        usize::from_str_radix(head.trim(), 16).unwrap() + 2
    };
    (bytes.len() >= end + body).then_some(end + body)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
