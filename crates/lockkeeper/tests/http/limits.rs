//! Limits on sizes, times and connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use lockkeeper_server::{Limits, Settings};
use lockkeeper_testing::http::{Http, Response, connect};
use serde_json::json;

use super::server::{Server, settings};

fn limited(limits: Limits) -> Server {
    Server::with(Settings { limits, ..settings() })
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = limited(Limits { body_bytes: 1_000, ..Limits::default() });
    let wish = json!({ "names": ["db"], "reason": "x".repeat(2_000) });
    let error = server.post("/api/locks", &wish).error(413, "BODY_TOO_LARGE");
    assert_eq!(error["context"]["limit"], 1_000);
    let keyed = server.request("POST", "/api/locks").header("idempotency-key", "k").json(&wish);
    keyed.send().error(413, "BODY_TOO_LARGE");
}

#[test]
fn a_body_without_an_announced_length_is_limited_too() {
    let server = limited(Limits { body_bytes: 1_000, ..Limits::default() });
    let mut stream = connect(server.address);
    let head = format!(
        "POST /api/locks HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\
         connection: close\r\n\r\n",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let part = format!("400\r\n{}\r\n", "x".repeat(1_024));
    // The server may have heard enough before all was sent.
    let _ = stream.write_all(part.repeat(4).as_bytes());
    Response::read(stream).error(413, "BODY_TOO_LARGE");
}

#[test]
fn a_body_that_never_comes_is_not_waited_for() {
    let server = limited(Limits { request_time: Duration::from_millis(100), ..Limits::default() });
    let mut stream = connect(server.address);
    let head = format!(
        "POST /api/locks HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        server.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    Response::read(stream).error(408, "REQUEST_TIMEOUT");
}

#[test]
fn a_head_that_comes_too_slowly_is_not_waited_for() {
    let server = limited(Limits { head_time: Duration::from_millis(100), ..Limits::default() });
    let mut stream = connect(server.address);
    stream.write_all(b"GET /healthz HT").unwrap();
    assert_eq!(stream.read(&mut [0; 64]).unwrap_or(0), 0);
    let mut silent = connect(server.address);
    assert_eq!(silent.read(&mut [0; 64]).unwrap_or(0), 0);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let server = Server::start();
    let answer = server.request("GET", "/healthz").header("x-large", "x".repeat(200_000)).send();
    assert_eq!(answer.status, 431);
}

#[test]
fn many_idle_connections_keep_nobody_out_for_long() {
    let limits = Limits { connections: 8, head_time: Duration::from_millis(300), ..Limits::default() };
    let server = limited(limits);
    let idle: Vec<TcpStream> = (0..8).map(|_| connect(server.address)).collect();
    // Nobody can tell from outside when all of them were taken in, so that the first refusal is waited for.
    let mut answer = server.get("/healthz");
    let mut refusals = 0;
    while answer.status == 503 {
        refusals += 1;
        answer = server.get("/healthz");
    }
    assert_eq!(answer.status, 200, "after {refusals} refusals");
    drop(idle);
}

#[test]
fn who_is_turned_away_is_told_in_the_shape_of_every_error() {
    let server = limited(Limits { connections: 1, ..Limits::default() });
    let mut first = connect(server.address);
    // Its answer shows that it was taken in.
    first.write_all(format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", server.address).as_bytes()).unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    let refused = server.get("/healthz").expect(503);
    assert_eq!(refused["error"]["reason_code"], "TOO_MANY_CONNECTIONS");
}
