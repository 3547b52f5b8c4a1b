//! A stream of server-sent events, read event by event.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::{Response, connect};

/// One event, or a comment.
#[derive(Debug, Default, PartialEq)]
pub struct Event {
    /// Its id, for resuming.
    pub id: String,
    /// Its name: the topic.
    pub name: String,
    /// Its JSON.
    pub data: Value,
    /// The text of a comment.
    pub comment: String,
}

/// An open stream. Reading fails after [`crate::LIMIT`].
pub struct Events(BufReader<TcpStream>);

impl Events {
    /// Opens the stream at a path, after the event with this id.
    #[must_use]
    #[track_caller]
    pub fn open(address: SocketAddr, path: &str, last: Option<&str>) -> Self {
        Self::open_as(address, path, last, &[])
    }

    /// The same with more headers, such as a token.
    #[must_use]
    #[track_caller]
    pub fn open_as(address: SocketAddr, path: &str, last: Option<&str>, headers: &[(&str, &str)]) -> Self {
        let mut stream = connect(address);
        let mut head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n");
        if let Some(last) = last {
            head.push_str(&format!("last-event-id: {last}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let response = Response::read_head(&mut reader);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
        Self(reader)
    }

    /// Waits for the next event.
    #[track_caller]
    pub fn event(&mut self) -> Event {
        self.try_event().expect("the stream goes on")
    }

    /// Waits for the next event. None when the stream has ended.
    #[track_caller]
    pub fn try_event(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let line = self.body_line()?;
            match line.split_once(": ") {
                None if line.is_empty() && event != Event::default() => return Some(event),
                None => {}
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                Some(("", comment)) => event.comment = comment.to_owned(),
                Some(("retry", _)) => {}
                Some(other) => panic!("{other:?}"),
            }
        }
    }

    /// Waits for an event of this type.
    #[track_caller]
    pub fn until(&mut self, kind: &str) -> Event {
        loop {
            let event = self.event();
            if event.data["type"] == kind {
                return event;
            }
        }
    }

    /// Calls `look` now and again after each event, until its result is `wanted`.
    #[track_caller]
    pub fn until_seen<T>(&mut self, mut look: impl FnMut() -> T, wanted: impl Fn(&T) -> bool) -> T {
        loop {
            let seen = look();
            if wanted(&seen) {
                return seen;
            }
            self.event();
        }
    }

    /// A line of the body. The lines that frame the chunks of the transfer end with `\r\n` and are passed over.
    fn body_line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 || line == "0\r\n" {
                return None;
            }
            if !line.ends_with("\r\n") {
                return Some(line.trim_end_matches('\n').to_owned());
            }
        }
    }
}
