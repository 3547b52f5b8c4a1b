//! Connection to a Redis server: blocking calls, each with one timeout for the whole call.

use std::io::{self, BufReader, Write};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_platform::poll;

use super::address::RedisAddress;
use super::resp::{Reply, put_command};
use crate::StoreError;
use crate::server_stream::Stream;

/// A connection on which the client is authenticated.
pub(super) struct Connection {
    input: BufReader<Stream>,
}

impl Connection {
    /// Connects, and sends the password and the number of the database.
    pub(super) fn open(to: &RedisAddress, limit: Duration) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::of_connecting(error, limit);
        let stream = Stream::connect(&to.place, limit).map_err(failed)?;
        let mut connection = Self { input: BufReader::with_capacity(1 << 14, stream) };
        let database = to.database.to_string();
        let mut hello: Vec<Vec<&str>> = Vec::new();
        if let Some(password) = &to.password {
            hello.push(["AUTH"].into_iter().chain(to.user.as_deref()).chain([password.as_str()]).collect());
        }
        if to.database != 0 {
            hello.push(vec!["SELECT", &database]);
        }
        match connection.pipeline(&hello, limit) {
            Ok(_) => Ok(connection),
            Err(Failure::Broken(error)) => Err(failed(error)),
            Err(Failure::Refused(text)) => Err(Failure::Connect(text.into())),
            Err(failure @ (Failure::Connect(_) | Failure::NoAnswer(_))) => Err(failure),
        }
    }

    /// Runs commands one after the other, in one round trip. Returns the first error.
    pub(super) fn pipeline<A: AsRef<[u8]>>(
        &mut self,
        commands: &[Vec<A>],
        limit: Duration,
    ) -> Result<Vec<Reply>, Failure> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| put_command(&mut bytes, words.iter()));
        self.input.get_mut().deadline = Instant::now().checked_add(limit);
        let replies = self.send(&bytes).and_then(|()| {
            let replies = commands.iter().map(|_| Reply::read(&mut self.input));
            replies.collect::<io::Result<Vec<Reply>>>()
        });
        let replies = replies.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::NoAnswer(limit),
            _ => Failure::Broken(error),
        })?;
        let refused = replies.iter().find_map(|reply| match reply {
            Reply::Error(text) => Some(Failure::Refused(text.clone())),
            Reply::Nothing | Reply::Number(_) | Reply::Bytes(_) | Reply::List(_) => None,
        });
        refused.map_or(Ok(replies), Err)
    }

    /// Sends bytes and does not wait for a reply.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.get_mut().write_all(bytes)?;
        self.input.get_mut().flush()
    }

    /// Reads the next message, whose first bytes have arrived.
    pub(super) fn receive(&mut self, limit: Duration) -> io::Result<Reply> {
        self.input.get_mut().deadline = Instant::now().checked_add(limit);
        Reply::read(&mut self.input)
    }

    /// Whether the buffer has bytes of the next message: then the descriptor need not become readable.
    pub(super) fn has_more(&mut self) -> bool {
        !self.input.buffer().is_empty() || self.input.get_mut().has_more()
    }

    /// Whether the server has closed it meanwhile. An idle connection gets no messages.
    pub(super) fn is_closed(&self) -> bool {
        !poll::wait(&[self.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| !ready.any())
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.get_ref().as_fd()
    }
}

/// Why a call of the server failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is no connection.
    Connect(Box<dyn std::error::Error + Send + Sync>),
    /// The server did not answer in time.
    NoAnswer(Duration),
    /// The connection broke.
    Broken(io::Error),
    /// The server returned an error: a code and a sentence. It has changed nothing.
    Refused(String),
}

impl Failure {
    fn of_connecting(error: io::Error, limit: Duration) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Self::Connect(format!("no answer within {limit:?}").into())
            }
            _ => Self::Connect(error.into()),
        }
    }

    /// Whether the connection broke, so that the outcome of the call is unknown.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::NoAnswer(_) | Self::Broken(_))
    }

    /// Whether the server is another incarnation, or has lost the scripts: a new connection loads them and opens the store again.
    pub(super) fn is_restarted(&self) -> bool {
        matches!(self.code(), Some("FORGOT" | "NOSCRIPT"))
    }

    /// The error of a call that has changed nothing.
    pub(super) fn explain(self, address: &str) -> StoreError {
        let address = address.to_owned();
        let elsewhere = [
            "FORGOT",
            "NOSCRIPT",
            "OLD",
            "READONLY",
            "LOADING",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "MOVED",
            "NOREPLICAS",
        ];
        match self {
            Self::Connect(source) => StoreError::Unreachable { address, source },
            Self::NoAnswer(span) => {
                StoreError::Unreachable { address, source: format!("no answer within {span:?}").into() }
            }
            Self::Broken(error) => StoreError::Unreachable { address, source: error.into() },
            Self::Refused(text) => match text.split_once(' ') {
                Some(("MISFIT", what)) => StoreError::Mismatch(what.to_owned()),
                // In the error of a script, Redis 6 writes other words before the code.
                _ if text.split([' ', ':']).any(|word| elsewhere.contains(&word)) => {
                    StoreError::Unreachable { address, source: text.into() }
                }
                _ => StoreError::Database { address, source: text.into() },
            },
        }
    }

    /// The code of an error that the server returned.
    fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(text) => text.split(' ').next(),
            Self::Connect(_) | Self::NoAnswer(_) | Self::Broken(_) => None,
        }
    }
}
