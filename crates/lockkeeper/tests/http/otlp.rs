//! Spans that are sent to an OpenTelemetry collector.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use lockkeeper_server::Settings;
use lockkeeper_testing::http::{Http, Response};
use lockkeeper_testing::until_seen;
use serde_json::{Value, json};

use super::runs::{submit, wait_for};
use super::server::{Server, settings};

/// A collector that keeps the documents it receives.
struct Collector {
    address: SocketAddr,
    documents: Receiver<Value>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (told, documents) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if take(stream, &told).is_none() {
                    return;
                }
            }
        });
        Self { address, documents }
    }

    /// Every span that was sent, once the server is gone.
    fn spans(self) -> Vec<Value> {
        let all = self.documents.try_iter().flat_map(|mut document| {
            assert_eq!(document["resourceSpans"][0]["resource"]["attributes"][0]["key"], "service.name");
            let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].take();
            spans.as_array().unwrap().clone()
        });
        all.collect()
    }
}

fn take(stream: TcpStream, told: &Sender<Value>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).ok()?;
    assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
    // What follows is read as the head of an answer, whose first line is a status.
    let head = Response::read_head(&mut std::io::Read::chain(&b"HTTP/1.1 200 OK\r\n"[..], &mut reader));
    assert_eq!(head.header("content-type"), Some("application/json"));
    let mut body = vec![0; head.header("content-length").unwrap().parse().unwrap()];
    reader.read_exact(&mut body).ok()?;
    // Before the answer: a client that has the answer knows that the document is here.
    told.send(serde_json::from_slice(&body).unwrap()).ok()?;
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    reader.get_mut().write_all(answer.as_bytes()).ok()
}

fn sending_to(address: SocketAddr) -> Settings {
    Settings { otlp: Some(format!("http://{address}").parse().unwrap()), ..settings() }
}

fn attribute<'s>(span: &'s Value, key: &str) -> &'s Value {
    let all = span["attributes"].as_array().unwrap();
    let found = all.iter().find(|one| one["key"] == key).unwrap_or_else(|| panic!("{key} is not in {span}"));
    found["value"].as_object().unwrap().values().next().unwrap()
}

#[test]
fn requests_and_executions_are_told_as_spans() {
    let collector = Collector::start();
    let server = Server::with(sending_to(collector.address));
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &json!(["sh", "-c", "exit 3"]));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = server.request("POST", "/api/requests/RQ-1/run");
    request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01")).send().expect(202);
    wait_for(&server, &mut stream, &run, "failed");
    server.get("/api/runs/RUN-9").error(404, "NO_SUCH_RUN");
    drop((stream, server));
    let spans = collector.spans();
    let named = |name: &str| {
        spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no {name} in {spans:?}"))
    };
    let began = named("POST /api/requests/{id}/run");
    assert_eq!((&began["traceId"], &began["parentSpanId"]), (&json!(trace), &json!("00f067aa0ba902b7")));
    assert_eq!((attribute(began, "http.response.status_code"), &began["kind"]), (&json!("202"), &json!(2)));
    assert_eq!(attribute(began, "lockkeeper.run.id"), &json!(run));
    let executed = named("run");
    assert_eq!(attribute(executed, "lockkeeper.run.id"), &json!(run));
    assert_eq!(attribute(executed, "lockkeeper.request.id"), &json!("RQ-1"));
    assert_eq!(
        (attribute(executed, "process.exit.code"), &executed["status"]["code"]),
        (&json!("3"), &json!(2))
    );
    let time = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(time(executed, "startTimeUnixNano") <= time(executed, "endTimeUnixNano"));
    // A 404 is no failure of the server. Names of spans contain nothing that clients invented.
    assert!(named("GET /api/runs/{id}")["status"].is_null());
    assert!(!spans.iter().any(|span| span.to_string().contains("RUN-9")), "{spans:?}");
}

/// The first collector does not exist; the second never answers.
#[test]
fn a_collector_that_is_gone_or_stuck_disturbs_nobody() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let stuck = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [gone, stuck.local_addr().unwrap()] {
        let server = Server::with(sending_to(address));
        let dropped = || {
            let text = server.get("/metrics").text();
            let line = text.lines().find_map(|line| {
                line.strip_prefix("lockkeeper_otlp_spans_total{outcome=\"dropped\"} ").map(str::to_owned)
            });
            line.unwrap().parse::<u64>().unwrap()
        };
        // Nothing notifies a test when the server gives up the first spans.
        let count = || {
            server.get("/healthz").expect(200);
            dropped()
        };
        until_seen("the server gives up spans", count, |dropped| *dropped > 0);
    }
}
