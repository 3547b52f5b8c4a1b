//! A proxy in front of a server of PostgreSQL, Redis or Lockkeeper, or of a member of etcd: counts round trips, and breaks connections at a chosen message.

mod messages;
mod plan;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use self::messages::{Call, Messages, Protocol};
pub use self::plan::Break;
use self::plan::{Delicate, Plan};
use crate::Dice;

/// The name of PostgreSQL's socket in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// A proxy on a port of its own.
pub struct ServerProxy {
    address: String,
    shared: Arc<Shared>,
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
        *self.plan() = Plan::at(number, when);
    }

    /// Breaks the connection of about one message of `often`, before or after it, `most` times. Leaves out breaks from which
    /// a store cannot recover: in a read-only transaction, whose snapshot is lost, in a notification, and at the first message of a
    /// connection.
    pub fn break_sometimes(&self, dice: Dice, often: u64, most: usize) {
        *self.plan() = Plan::sometimes(dice, often, most);
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
        let mut delicate = Delicate::new(shared.protocol);
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
