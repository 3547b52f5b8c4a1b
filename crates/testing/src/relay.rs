//! A relay in front of a server: passes bytes on, slowly if it should, and to another server if that takes the place of the first.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A relay on a port of all addresses of this machine. It ends with the process.
pub struct Relay {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    server: String,
    delay: Duration,
    /// Both ends of each connection.
    open: Vec<TcpStream>,
}

impl Relay {
    /// Starts a relay on this port, to the server `HOST:PORT`.
    #[must_use]
    pub fn start(port: u16, server: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        let shared = Shared { server: server.to_owned(), delay: Duration::ZERO, open: Vec::new() };
        let shared = Arc::new(Mutex::new(shared));
        let connections = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let shared = Arc::clone(&connections);
                thread::spawn(move || connect(client, &shared));
            }
        });
        Self { shared }
    }

    /// Holds back everything that comes for this long, in each direction.
    pub fn slow_down(&self, by: Duration) {
        lock(&self.shared).delay = by;
    }

    /// Ends all connections. New ones go to this server.
    pub fn switch_to(&self, server: &str) {
        let mut shared = lock(&self.shared);
        server.clone_into(&mut shared.server);
        shared.open.drain(..).for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}

/// A client whose server cannot be reached is left.
fn connect(client: TcpStream, shared: &Arc<Mutex<Shared>>) {
    let to = lock(shared).server.clone();
    let Ok(server) = TcpStream::connect(&to) else { return };
    {
        let mut shared = lock(shared);
        if shared.server != to {
            return;
        }
        shared.open.retain(|end| end.peer_addr().is_ok());
        for end in [&client, &server] {
            end.set_nodelay(true).unwrap();
            shared.open.push(end.try_clone().unwrap());
        }
    }
    let (from_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let back = Arc::clone(shared);
    thread::spawn(move || pass(from_server, to_client, &back));
    pass(client, server, shared);
}

/// Passes bytes on in one direction until either end is closed. Then both are.
fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Arc<Mutex<Shared>>) {
    let mut part = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut part) {
        let delay = lock(shared).delay;
        thread::sleep(delay);
        if to.write_all(&part[..read]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
