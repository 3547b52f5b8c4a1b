//! The stream of server-sent events.

use std::time::Duration;

use lockkeeper_server::{Limits, Settings};
use lockkeeper_testing::Started;
use lockkeeper_testing::http::{Events, Http};
use serde_json::{Value, json};

use super::server::{Server, settings};

#[test]
fn the_life_of_a_lease_is_told_as_it_happens() {
    let server = Server::start();
    let mut stream = server.listen();
    assert_eq!(stream.event().name, "hello");
    let held = server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:1" })).expect(201);
    let told = stream.event();
    assert_eq!((told.name.as_str(), &told.data["type"]), ("lease", &json!("lease.acquired")));
    assert_eq!(told.data["lease"]["id"], held["lease"]["id"]);
    server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:2", "wait": true })).expect(202);
    let waiting = stream.until("ticket.waiting");
    assert_eq!(waiting.data["ticket"]["owner"], "test:2");
    let lease = &held["lease"];
    server
        .delete(&format!("/api/locks/{}?token={}", lease["id"].as_str().unwrap(), lease["token"]))
        .expect(200);
    let ended = stream.until("lease.ended");
    assert_eq!(ended.data["lease"]["owner"], "test:1");
    assert_eq!(stream.until("lease.acquired").data["lease"]["owner"], "test:2");
}

#[test]
fn what_commands_do_is_told_too() {
    let server = Server::start();
    let mut stream = server.listen();
    assert_eq!(stream.event().name, "hello");
    let guard = server.keeper.lock("db").owner("lib:1").try_acquire().unwrap();
    assert_eq!(stream.until("lease.acquired").data["lease"]["owner"], "lib:1");
    drop(guard);
    assert_eq!(stream.until("lease.ended").data["lease"]["owner"], "lib:1");
}

/// Invariant 4.
#[test]
fn the_death_of_a_holder_is_told_although_nobody_writes_it_down() {
    let server = Server::start();
    let child = Started::of(&mut std::process::Command::new("cat"));
    server.post("/api/locks", &json!({ "names": ["db"], "pid": child.pid() })).expect(201);
    let mut stream = server.listen();
    assert_eq!(stream.until("lease.acquired").data["lease"]["state"], "alive");
    child.finish().code(0);
    assert_eq!(stream.until("lease.changed").data["lease"]["state"], "dead");
}

#[test]
fn a_stream_is_resumed_where_it_was_left_without_gap_or_repetition() {
    let server = Server::start();
    let mut stream = server.listen();
    assert_eq!(stream.event().name, "hello");
    server.post("/api/locks", &json!({ "names": ["a"] })).expect(201);
    let last = stream.until("lease.acquired").id;
    drop(stream);
    for name in ["b", "c"] {
        server.post("/api/locks", &json!({ "names": [name] })).expect(201);
    }
    let mut stream = Events::open(server.address, "/api/events", Some(&last));
    let names: Vec<Value> = (0..2)
        .map(|_| stream.until("lease.acquired").data["lease"]["resources"][0]["name"].clone())
        .collect();
    assert_eq!(names, ["b", "c"]);
    let mut same = Events::open(server.address, &format!("/api/events?last_event_id={last}"), None);
    assert_eq!(same.until("lease.acquired").data["lease"]["resources"][0]["name"], "b");
}

#[test]
fn a_reader_from_another_time_is_told_to_look_again() {
    let server = Server::start();
    for last in ["1-1", "nonsense", "ffff-999999"] {
        assert_eq!(Events::open(server.address, "/api/events", Some(last)).event().name, "reset", "{last}");
    }
}

#[test]
fn only_the_topics_that_are_wanted_are_told() {
    let server = Server::start();
    let mut stream = Events::open(server.address, "/api/events?topics=ticket", None);
    assert_eq!(stream.event().name, "hello");
    server.post("/api/locks", &json!({ "names": ["db"] })).expect(201);
    server.post("/api/locks", &json!({ "names": ["db"], "wait": true })).expect(202);
    assert_eq!(stream.event().data["type"], "ticket.waiting");
}

#[test]
fn a_silent_stream_says_that_it_lives() {
    let limits = Limits { keep_alive: Duration::from_millis(20), ..Limits::default() };
    assert_eq!(Limits::default().keep_alive, Duration::from_secs(15));
    let server = Server::with(Settings { limits, ..settings() });
    let mut stream = server.listen();
    assert_eq!(stream.event().name, "hello");
    assert_eq!(stream.event().comment, "alive");
    assert_eq!(stream.event().comment, "alive");
}

#[test]
fn there_are_only_so_many_streams() {
    let limits = Limits { streams: 2, ..Limits::default() };
    let server = Server::with(Settings { limits, ..settings() });
    let mut open: Vec<Events> = (0..2).map(|_| server.listen()).collect();
    for stream in &mut open {
        stream.event();
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
    let mut stream = server.listen();
    assert_eq!(stream.event().name, "hello");
    server.drain();
    assert!(stream.try_event().is_none());
    server.ended().unwrap();
}

#[test]
fn answers_are_compressed_for_clients_that_say_so_and_events_are_not() {
    let server = Server::start();
    let asked = |path: &str| server.request("GET", path).header("accept-encoding", "gzip").send();
    for path in ["/", "/api/openapi.json", "/assets/page.css"] {
        assert_eq!(asked(path).header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(server.get(path).header("content-encoding"), None, "{path}");
    }
    let headers = [("accept-encoding", "gzip")];
    let mut events = Events::open_as(server.address, "/api/events", None, &headers);
    server.post("/api/locks", &json!({ "names": ["db"] })).expect(201);
    events.until("lease.acquired");
}
