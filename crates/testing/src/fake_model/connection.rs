//! One connection to the fake model: reads requests, writes answers.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::Value;

/// What is sent back.
pub(super) enum Answer {
    /// One JSON document.
    Json(Value),
    /// A stream of server-sent events, complete.
    Events(String),
    /// The server does not know the path.
    NotFound,
}

impl Answer {
    /// A stream of events without names.
    pub(super) fn events(data: impl IntoIterator<Item = String>) -> Self {
        Self::Events(data.into_iter().map(|data| format!("data: {data}\n\n")).collect())
    }

    /// A stream of events whose names are their types.
    pub(super) fn named_events(events: impl IntoIterator<Item = Value>) -> Self {
        let event =
            |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or(""));
        Self::Events(events.into_iter().map(event).collect())
    }
}

/// Answers each request of a connection until the other side closes it.
///
/// The server is its own proxy: it lets connections to itself pass, and no others.
pub(super) fn serve(stream: &TcpStream, answer: impl Fn(&str, Value) -> Answer) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    while let Some(request) = Request::read(&mut reader, stream)? {
        if request.method == "CONNECT" && request.target == stream.local_addr()?.to_string() {
            writer.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
            continue;
        }
        let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let (status, kind, text) = match answer(request.path(), body) {
            Answer::Json(value) => ("200 OK", "application/json", value.to_string()),
            Answer::Events(text) => ("200 OK", "text/event-stream", text),
            Answer::NotFound => ("404 Not Found", "application/json", "{}".to_owned()),
        };
        let length = text.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n");
        writer.write_all(format!("{head}{text}").as_bytes())?;
    }
    Ok(())
}

struct Request {
    method: String,
    /// A path, or a whole URL from a client that takes the server for its proxy.
    target: String,
    body: Vec<u8>,
}

impl Request {
    /// The path of the URL. A URL of another server stays as it is.
    fn path(&self) -> &str {
        let local = self.target.strip_prefix("http://127.0.0.1:");
        local.and_then(|rest| Some(&rest[rest.find('/')?..])).unwrap_or(&self.target)
    }

    /// The next request. None when the other side has closed the connection.
    fn read(reader: &mut impl BufRead, mut writer: &TcpStream) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            match line.split_once(": ").unwrap_or_default() {
                ("content-length", value) => length = value.parse().map_err(io::Error::other)?,
                ("transfer-encoding", value) => is_chunked = value == "chunked",
                ("expect", _) => writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?,
                _ => {}
            }
        }
        let body = if is_chunked { read_chunks(reader)? } else { read_exact(reader, length)? };
        Ok(Some(Self { method, target, body }))
    }
}

fn read_exact(reader: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
        body.extend(read_exact(reader, length)?);
        reader.read_line(&mut String::new())?;
        if length == 0 {
            return Ok(body);
        }
    }
}
