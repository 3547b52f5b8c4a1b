//! The stream of events.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockkeeper_server::{Limits, Settings};
use serde_json::{Value, json};

use super::client::{Response, connect};
use super::server::{Server, settings};

/// One event, or a comment.
#[derive(Debug, Default, PartialEq)]
pub struct Event {
    pub id: String,
    pub name: String,
    pub data: Value,
    pub comment: String,
}

/// A stream that is read event by event.
pub struct Stream(BufReader<TcpStream>);

/// Opens a stream, after the event with this id.
pub fn listen(server: &Server, last: Option<&str>) -> Stream {
    listen_at(server, "/api/events", last)
}

pub fn listen_at(server: &Server, path: &str, last: Option<&str>) -> Stream {
    let mut stream = connect(server.address);
    let mut head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n", server.address);
    if let Some(last) = last {
        head.push_str(&format!("last-event-id: {last}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let response = Response::read_head(&mut reader);
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/event-stream; charset=utf-8"));
    Stream(reader)
}

impl Stream {
    /// The next event; waits for it.
    pub fn next(&mut self) -> Event {
        self.try_next().expect("the stream goes on")
    }

    /// The next event, or nothing when the stream has ended.
    pub fn try_next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let line = self.chunk_line()?;
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

    /// A line of the body; those that only frame its parts are left out.
    fn chunk_line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let framing = line.ends_with("\r\n");
            if line == "0\r\n" {
                return None;
            }
            if !framing {
                return Some(line.trim_end_matches('\n').to_owned());
            }
        }
    }

    /// Waits for an event of this type.
    pub fn until(&mut self, kind: &str) -> Event {
        loop {
            let event = self.next();
            if event.data["type"] == kind {
                return event;
            }
        }
    }
}

#[test]
fn the_life_of_a_lease_is_told_as_it_happens() {
    let server = Server::start();
    let mut stream = listen(&server, None);
    assert_eq!(stream.next().name, "hello");
    let held = server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:1" })).expect(201);
    let told = stream.next();
    assert_eq!((told.name.as_str(), &told.data["type"]), ("lease", &json!("lease.acquired")));
    assert_eq!(told.data["lease"]["id"], held["lease"]["id"]);
    server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:2", "wait": true })).expect(202);
    let waiting = stream.until("ticket.waiting");
    assert_eq!(waiting.data["ticket"]["owner"], "test:2");
    server.delete(&format!("/api/locks/{}", held["lease"]["id"].as_str().unwrap())).expect(200);
    let ended = stream.until("lease.ended");
    assert_eq!(ended.data["lease"]["owner"], "test:1");
    assert_eq!(stream.until("lease.acquired").data["lease"]["owner"], "test:2");
}

#[test]
fn what_commands_do_is_told_too() {
    let server = Server::start();
    let mut stream = listen(&server, None);
    assert_eq!(stream.next().name, "hello");
    let guard = server.keeper.lock("db").owner("lib:1").acquire().unwrap();
    assert_eq!(stream.until("lease.acquired").data["lease"]["owner"], "lib:1");
    drop(guard);
    assert_eq!(stream.until("lease.ended").data["lease"]["owner"], "lib:1");
}

/// Invariant 4.
#[test]
fn the_death_of_a_holder_is_told_although_nobody_writes_it_down() {
    let server = Server::start();
    let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    server.post("/api/locks", &json!({ "names": ["db"], "pid": child.id() })).expect(201);
    let mut stream = listen(&server, None);
    assert_eq!(stream.until("lease.acquired").data["lease"]["state"], "alive");
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(stream.until("lease.changed").data["lease"]["state"], "dead");
}

#[test]
fn a_stream_is_resumed_where_it_was_left_without_gap_or_repetition() {
    let server = Server::start();
    let mut stream = listen(&server, None);
    assert_eq!(stream.next().name, "hello");
    server.post("/api/locks", &json!({ "names": ["a"] })).expect(201);
    let last = stream.until("lease.acquired").id;
    drop(stream);
    for name in ["b", "c"] {
        server.post("/api/locks", &json!({ "names": [name] })).expect(201);
    }
    let mut stream = listen(&server, Some(&last));
    let names: Vec<Value> = (0..2)
        .map(|_| stream.until("lease.acquired").data["lease"]["resources"][0]["name"].clone())
        .collect();
    assert_eq!(names, ["b", "c"]);
    let mut same = listen_at(&server, &format!("/api/events?last_event_id={last}"), None);
    assert_eq!(same.until("lease.acquired").data["lease"]["resources"][0]["name"], "b");
}

#[test]
fn a_reader_from_another_time_is_told_to_look_again() {
    let server = Server::start();
    for last in ["1-1", "nonsense", "ffff-999999"] {
        assert_eq!(listen(&server, Some(last)).next().name, "reset", "{last}");
    }
}

#[test]
fn only_the_topics_that_are_wanted_are_told() {
    let server = Server::start();
    let mut stream = listen_at(&server, "/api/events?topics=ticket", None);
    assert_eq!(stream.next().name, "hello");
    server.post("/api/locks", &json!({ "names": ["db"] })).expect(201);
    server.post("/api/locks", &json!({ "names": ["db"], "wait": true })).expect(202);
    assert_eq!(stream.next().data["type"], "ticket.waiting");
}

#[test]
fn a_silent_stream_says_that_it_lives() {
    let limits = Limits { keep_alive: Duration::from_millis(20), ..Limits::default() };
    assert_eq!(Limits::default().keep_alive, Duration::from_secs(15));
    let server = Server::with(Settings { limits, ..settings() });
    let mut stream = listen(&server, None);
    assert_eq!(stream.next().name, "hello");
    assert_eq!(stream.next().comment, "alive");
    assert_eq!(stream.next().comment, "alive");
}

#[test]
fn there_are_only_so_many_streams() {
    let limits = Limits { streams: 2, ..Limits::default() };
    let server = Server::with(Settings { limits, ..settings() });
    let mut open: Vec<Stream> = (0..2).map(|_| listen(&server, None)).collect();
    for stream in &mut open {
        stream.next();
    }
    let refused = server.get("/api/events").error(503, "TOO_MANY_STREAMS");
    assert_eq!(refused["context"]["limit"], 2);
    drop(open);
    // The server notices that a reader is gone when it next says something.
    server.post("/api/locks", &json!({ "names": ["db"] })).expect(201);
    while server.request("HEAD", "/api/events").send().status == 503 {
        server.post("/api/locks", &json!({ "names": ["x"], "owner": "test:1" }));
    }
}

#[test]
fn streams_end_when_the_server_drains() {
    let mut server = Server::start();
    let mut stream = listen(&server, None);
    assert_eq!(stream.next().name, "hello");
    server.drain();
    assert!(stream.try_next().is_none());
    server.ended().unwrap();
}
