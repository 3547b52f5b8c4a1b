//! Connection to a server of Lockkeeper: HTTP/1.1, one request at a time, with a limit for the whole call.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockkeeper_platform::poll;

use super::address::HttpAddress;
use crate::StoreError;
use crate::server_stream::Stream;

/// The longest line of a head, and the longest body.
const LONGEST_LINE: u64 = 16 * 1024;
const LONGEST_BODY: u64 = 256 * 1024 * 1024;

/// A connection that stays open for the next request.
pub(super) struct Connection {
    input: BufReader<Stream>,
    host: String,
    path: String,
    token: Option<String>,
}

/// A response whose head was read.
struct Head {
    status: u16,
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
}

impl Connection {
    pub(super) fn open(to: &HttpAddress, limit: Duration) -> Result<Self, Failure> {
        let stream =
            Stream::connect(&to.place, limit).map_err(|error| Failure::Connect(timed(error, limit)))?;
        let input = BufReader::with_capacity(1 << 14, stream);
        Ok(Self { input, host: to.host.clone(), path: to.path.clone(), token: to.token.clone() })
    }

    /// Sends a request, and reads the whole response. False if the server closes the connection then.
    pub(super) fn call(&mut self, body: &[u8], limit: Duration) -> Result<(Vec<u8>, bool), Failure> {
        self.input.get_mut().deadline = Instant::now().checked_add(limit);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::NoAnswer(limit),
            _ => Failure::Broken(error),
        };
        self.send("POST", "/api/store", Some(body)).map_err(failed)?;
        let head = self.head().map_err(failed)?;
        let answer = self.body(&head).map_err(failed)?;
        if head.status == 200 {
            return Ok((answer, !head.closes));
        }
        Err(Failure::Refused(head.status, message_of(&answer)))
    }

    /// Asks for wake-ups: the lines of a response that does not end.
    pub(super) fn subscribe(&mut self, path: &str, limit: Duration) -> Result<(), Failure> {
        self.input.get_mut().deadline = Instant::now().checked_add(limit);
        self.send("GET", path, None).map_err(Failure::Broken)?;
        let head = self.head().map_err(Failure::Broken)?;
        if head.status != 200 {
            let answer = self.body(&head).map_err(Failure::Broken)?;
            return Err(Failure::Refused(head.status, message_of(&answer)));
        }
        if head.is_chunked { Ok(()) } else { Err(Failure::Broken(no_sense())) }
    }

    /// The next part of a response that does not end.
    pub(super) fn part(&mut self, limit: Duration) -> io::Result<String> {
        self.input.get_mut().deadline = Instant::now().checked_add(limit);
        match self.chunk()? {
            Some(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether something was read already, so that the descriptor does not tell of it.
    pub(super) fn has_more(&mut self) -> bool {
        !self.input.buffer().is_empty() || self.input.get_mut().has_more()
    }

    /// Whether the server has closed it meanwhile.
    pub(super) fn is_closed(&self) -> bool {
        !poll::wait(&[self.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| !ready.any())
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.get_ref().as_fd()
    }

    fn send(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> io::Result<()> {
        let mut head = format!("{method} {}{path} HTTP/1.1\r\nHost: {}\r\n", self.path, self.host);
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        if let Some(body) = body {
            head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        let mut bytes = head.into_bytes();
        bytes.extend(b"\r\n");
        bytes.extend(body.unwrap_or_default());
        let stream = self.input.get_mut();
        stream.write_all(&bytes)?;
        stream.flush()
    }

    fn head(&mut self) -> io::Result<Head> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|number| number.parse().ok()).ok_or_else(no_sense)?;
        let mut head = Head { status, length: None, is_chunked: false, closes: false };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                return if line.is_empty() { Ok(head) } else { Err(no_sense()) };
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.length = Some(value.parse().map_err(|_| no_sense())?),
                "transfer-encoding" => head.is_chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" => head.closes = value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
    }

    fn body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if head.is_chunked {
            while let Some(bytes) = self.chunk()? {
                body.extend(bytes);
                if body.len() as u64 > LONGEST_BODY {
                    return Err(no_sense());
                }
            }
            return Ok(body);
        }
        let length = head.length.filter(|length| *length <= LONGEST_BODY).ok_or_else(no_sense)?;
        self.exactly(length)
    }

    /// The next chunk; none at the end.
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = self.line()?;
        let size = size.split(';').next().and_then(|size| u64::from_str_radix(size.trim(), 16).ok());
        let size = size.filter(|size| *size <= LONGEST_BODY).ok_or_else(no_sense)?;
        let bytes = self.exactly(size)?;
        let end = self.line()?;
        if !end.is_empty() {
            return Err(no_sense());
        }
        Ok((size > 0).then_some(bytes))
    }

    fn exactly(&mut self, length: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.input).take(length).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        (&mut self.input).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(text) => String::from_utf8(text.to_vec()).map_err(|_| no_sense()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection.
    Connect(Box<dyn std::error::Error + Send + Sync>),
    /// The server did not answer in time.
    NoAnswer(Duration),
    /// The connection broke.
    Broken(io::Error),
    /// The server, or a proxy before it, has refused the request: the status and a sentence.
    Refused(u16, String),
}

impl Failure {
    /// Whether the connection broke, so that the call may be made again at once. A server that did not answer in time was waited for
    /// long enough.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Broken(_))
    }

    /// Whether nobody knows what became of the call.
    pub(crate) fn is_broken(&self) -> bool {
        match self {
            Self::NoAnswer(_) | Self::Broken(_) => true,
            // A proxy may have lost the answer of the server.
            Self::Refused(status, _) => *status >= 500,
            Self::Connect(_) => false,
        }
    }

    /// The failure of a call that has changed nothing.
    pub(crate) fn explain(self, address: &str) -> StoreError {
        let source: Box<dyn std::error::Error + Send + Sync> = match self {
            Self::Connect(source) => source,
            Self::NoAnswer(span) => format!("no answer within {span:?}").into(),
            Self::Broken(error) => error.into(),
            Self::Refused(status, text) if text.is_empty() => {
                format!("it answered with status {status}").into()
            }
            Self::Refused(_, text) => text.into(),
        };
        StoreError::Unreachable { address: address.to_owned(), source }
    }
}

/// The sentence of an error of the server.
fn message_of(body: &[u8]) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let error = value.as_ref().and_then(|value| value.get("error")).cloned();
    let text = |key: &str| error.as_ref().and_then(|error| error.get(key)?.as_str()).map(str::to_owned);
    text("message").unwrap_or_default()
}

fn timed(error: io::Error, limit: Duration) -> Box<dyn std::error::Error + Send + Sync> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer within {limit:?}").into(),
        _ => error.into(),
    }
}

fn no_sense() -> io::Error {
    io::Error::other("the answer is not that of a server of Lockkeeper")
}
