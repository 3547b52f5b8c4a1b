//! Stream to a server: TCP, with or without TLS, or a socket; every read ends at a deadline.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(feature = "redis")]
use std::os::unix::net::UnixStream;
#[cfg(feature = "redis")]
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Where a server listens.
#[derive(Clone)]
pub(crate) enum Place {
    Tcp {
        host: String,
        port: u16,
        tls: Option<Arc<ClientConfig>>,
    },
    #[cfg(feature = "redis")]
    Unix(PathBuf),
}

/// Bytes from and to the server.
pub(crate) struct Stream {
    socket: Socket,
    /// When a read times out.
    pub(crate) deadline: Option<Instant>,
}

enum Socket {
    Tcp(TcpStream),
    #[cfg(feature = "redis")]
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects within a limit.
    pub(crate) fn connect(place: &Place, limit: Duration) -> io::Result<Self> {
        let deadline = Instant::now().checked_add(limit);
        let socket = match place {
            #[cfg(feature = "redis")]
            Place::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_write_timeout(Some(limit))?;
                Socket::Unix(socket)
            }
            Place::Tcp { host, port, tls } => {
                let socket = connect_tcp(host, *port, limit)?;
                socket.set_nodelay(true)?;
                socket.set_write_timeout(Some(limit))?;
                match tls {
                    None => Socket::Tcp(socket),
                    Some(config) => {
                        // The handshake times out, too, if the server accepts and then sends nothing.
                        socket.set_read_timeout(Some(limit))?;
                        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                        let session =
                            ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
                        Socket::Tls(Box::new(StreamOwned::new(session, socket)))
                    }
                }
            }
        };
        Ok(Self { socket, deadline })
    }

    /// Readable when something comes.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            #[cfg(feature = "redis")]
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tls(stream) => stream.sock.as_fd(),
        }
    }

    /// Whether decrypted bytes are left.
    pub(crate) fn has_more(&mut self) -> bool {
        match &mut self.socket {
            Socket::Tcp(_) => false,
            #[cfg(feature = "redis")]
            Socket::Unix(_) => false,
            Socket::Tls(stream) => {
                stream.conn.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match &mut self.socket {
            Socket::Tcp(socket) => {
                socket.set_read_timeout(left)?;
                socket.read(bytes)
            }
            #[cfg(feature = "redis")]
            Socket::Unix(socket) => {
                socket.set_read_timeout(left)?;
                socket.read(bytes)
            }
            Socket::Tls(stream) => {
                stream.sock.set_read_timeout(left)?;
                stream.read(bytes)
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.write(bytes),
            #[cfg(feature = "redis")]
            Socket::Unix(socket) => socket.write(bytes),
            Socket::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.flush(),
            #[cfg(feature = "redis")]
            Socket::Unix(socket) => socket.flush(),
            Socket::Tls(stream) => stream.flush(),
        }
    }
}

/// Connects to the first address of a host that answers.
fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let (resolved, addresses) = channel();
    let name = host.to_owned();
    // The system's resolver has no timeout, so it runs in a thread of its own, which is left behind after the timeout.
    thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let _ = resolved.send(found);
    })?;
    let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
    let addresses = addresses.recv_timeout(limit).map_err(|_| timed_out())??;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
