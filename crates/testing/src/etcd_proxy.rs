//! A proxy in front of an etcd member: breaks connections at a chosen request, or cuts them without a word.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use crate::postgres_proxy::{Plan, ServerProxy};
use crate::{Break, Dice};

/// What a client of HTTP/2 sends before its first frame.
const PREFACE: usize = 24;
const HEAD: usize = 9;
/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;

/// A proxy on a port of its own.
pub struct EtcdProxy {
    address: String,
    shared: Arc<Shared>,
}

/// What all connections share.
struct Shared {
    server: String,
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

impl EtcdProxy {
    /// Starts a proxy in front of the member at this address (`HOST:PORT`).
    #[must_use]
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            server: server.to_owned(),
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
        Self { address, shared }
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
}

impl ServerProxy for EtcdProxy {
    fn address(&self) -> &str {
        &self.address
    }

    fn break_at(&self, number: usize, when: Break) {
        *lock(&self.shared.plan) = Plan::at(number, when);
    }

    fn break_sometimes(&self, dice: Dice, often: u64, most: usize) {
        *lock(&self.shared.plan) = Plan::sometimes(dice, often, most);
    }

    fn reset(&self) {
        *lock(&self.shared.plan) = Plan::default();
    }

    fn breaks(&self) -> usize {
        lock(&self.shared.plan).breaks()
    }

    fn silence(&self, is_silent: bool) {
        Self::silence(self, is_silent);
    }

    fn close_all(&self) {
        Self::close_all(self);
    }
}

/// One connection of a client.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// The stream whose answer the client does not get: the connection ends with it.
    breaks_after: Mutex<Option<u32>>,
}

impl Connection {
    fn start(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
        client.set_nodelay(true)?;
        let server = TcpStream::connect(&shared.server)?;
        server.set_nodelay(true)?;
        let connection = Arc::new(Self { client, server, breaks_after: Mutex::default() });
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

    /// Passes frames of the client on.
    fn requests(&self, shared: &Shared) -> io::Result<()> {
        let mut preface = [0; PREFACE];
        (&self.client).read_exact(&mut preface)?;
        (&self.server).write_all(&preface)?;
        loop {
            let frame = Frame::read(&self.client)?;
            shared.wait_while_silent();
            // Each request has one frame with its data.
            let when = if frame.kind() == DATA { lock(&shared.plan).next(false) } else { None };
            match when {
                None => {}
                Some(Break::Before) => return Ok(()),
                Some(Break::After) => {
                    *lock(&self.breaks_after) = Some(frame.stream());
                    (&self.server).write_all(&frame.0)?;
                    // The other thread ends the connection when the answer has come.
                    while (&self.client).read(&mut [0; 64])? > 0 {}
                    return Ok(());
                }
            }
            (&self.server).write_all(&frame.0)?;
        }
    }

    /// Passes frames of the member back.
    fn replies(&self, shared: &Shared) -> io::Result<()> {
        loop {
            let frame = Frame::read(&self.server)?;
            shared.wait_while_silent();
            let breaks_after = *lock(&self.breaks_after);
            if let Some(stream) = breaks_after {
                // A watch has no end: its first data is its answer.
                let is_answer =
                    matches!((frame.kind(), frame.0[4] & END_STREAM), (DATA, _) | (HEADERS, END_STREAM));
                if frame.stream() == stream && is_answer {
                    return Ok(());
                }
                continue;
            }
            (&self.client).write_all(&frame.0)?;
        }
    }
}

/// A frame of HTTP/2.
struct Frame(Vec<u8>);

impl Frame {
    fn read(mut from: &TcpStream) -> io::Result<Self> {
        let mut bytes = vec![0; HEAD];
        from.read_exact(&mut bytes)?;
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        bytes.resize(HEAD + length, 0);
        from.read_exact(&mut bytes[HEAD..])?;
        Ok(Self(bytes))
    }

    fn kind(&self) -> u8 {
        self.0[3]
    }

    fn stream(&self) -> u32 {
        u32::from_be_bytes([self.0[5], self.0[6], self.0[7], self.0[8]])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
