//! What others put into the folders and texts that the server shows.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread;

use lockkeeper_testing::files::{make_fifo, names};
use lockkeeper_testing::http::Http;
use serde_json::json;

use super::runs::{submit, wait_for};
use super::server::Server;

/// More than the server has threads for calls to the engine.
const READERS: usize = 24;

fn run_folder(server: &Server, run: &str) -> PathBuf {
    server.folder().join("state/runs").join(run)
}

/// Executes a request that prints something, and returns its run.
fn finished(server: &Server) -> String {
    let mut stream = server.listen();
    let run = submit(server, "RQ-1", &json!(["echo", "printed"]));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    wait_for(server, &mut stream, &run, "succeeded");
    run
}

#[test]
fn a_pipe_in_the_place_of_the_output_keeps_nobody_waiting() {
    let server = Server::start();
    let run = finished(&server);
    let folder = run_folder(&server, &run);
    for name in ["output.log", "output.cut"] {
        let _ = fs::remove_file(folder.join(name));
        make_fifo(&folder.join(name));
    }
    let path = format!("/api/runs/{run}/log");
    thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| server.get(&path).error(500, "UNREADABLE"));
        }
    });
    fs::remove_file(folder.join("output.log")).unwrap();
    fs::write(folder.join("output.log"), "printed\n").unwrap();
    server.get(&path).error(500, "UNREADABLE");
    server.get("/api/locks").expect(200);
}

#[test]
fn a_pipe_that_is_there_before_the_run_ends_it_as_failed() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &json!(["echo", "printed"]));
    fs::create_dir_all(run_folder(&server, &run)).unwrap();
    make_fifo(&run_folder(&server, &run).join("output.log"));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    let shown = wait_for(&server, &mut stream, &run, "failed");
    assert!(shown["run"]["message"].as_str().unwrap().contains("regular file"), "{shown}");
}

#[test]
fn a_run_folder_that_is_a_link_is_neither_read_nor_written() {
    let server = Server::start();
    let run = finished(&server);
    let other = server.folder().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("output.log"), "of somebody else\n").unwrap();
    let folder = run_folder(&server, &run);
    fs::remove_dir_all(&folder).unwrap();
    symlink(&other, &folder).unwrap();
    let refused = server.get(&format!("/api/runs/{run}/log")).error(500, "UNREADABLE");
    assert!(!refused.to_string().contains("somebody"), "{refused}");
    let page = server.request("GET", &format!("/runs/{run}")).header("accept", "text/html").send();
    assert!(!page.text().contains("somebody"));
    let mut stream = server.listen();
    let next = submit(&server, "RQ-2", &json!(["echo", "printed"]));
    let before = names(&other);
    symlink(&other, run_folder(&server, &next)).unwrap();
    server.post("/api/requests/RQ-2/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &next, "failed");
    assert_eq!(names(&other), before);
    assert_eq!(fs::read_to_string(other.join("output.log")).unwrap(), "of somebody else\n");
}

fn browse(server: &Server, path: &str) -> String {
    server.request("GET", path).header("accept", "text/html").send().text()
}

#[test]
fn characters_that_turn_text_around_are_escaped_on_every_page() {
    let server = Server::start();
    let lock =
        json!({ "names": ["d\u{202e}b"], "owner": "test:x\u{200f}y", "reason": "a\u{2066}b\u{1b}[2J" });
    server.post("/api/locks", &lock).expect(201);
    let request = json!({ "id": "RQ-1", "title": "t\u{202e}itle", "command": ["echo", "\u{202d}"] });
    let run = server.post("/api/requests", &request).expect(201)["run_id"].as_str().unwrap().to_owned();
    let found = browse(&server, "/?text=t%E2%80%AEitle");
    let pages =
        ["/", "/locks", "/requests/RQ-1", "/runs", &format!("/runs/{run}")].map(|path| browse(&server, path));
    for page in pages.iter().chain([&found]) {
        let is_unsafe =
            |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200f}' | '\u{1b}');
        assert!(!page.contains(is_unsafe), "{page}");
    }
    assert!(pages[1].contains("d\\u{202e}b") && pages[1].contains("a\\u{2066}b\\u{1b}[2J"), "{}", pages[1]);
    assert!(pages[2].contains("t\\u{202e}itle"), "{}", pages[2]);
    // The body of a bulk call stays the JSON that it is.
    assert!(found.contains("t\\u202eitle"), "{found}");
}

/// Programs get the characters as they are, in the escapes of JSON.
#[test]
fn characters_that_turn_text_around_are_escaped_in_answers() {
    let server = Server::start();
    let lock = json!({ "names": ["d\u{202e}b"], "owner": "test:x\u{200f}y", "reason": "a\u{2066}b" });
    server.post("/api/locks", &lock).expect(201);
    let text = server.request("GET", "/api/locks").send().text();
    let is_unsafe = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200f}');
    assert!(!text.contains(is_unsafe) && text.contains("d\\u202eb"), "{text}");
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["leases"][0]["resources"][0]["name"], "d\u{202e}b");
    assert_eq!(found["leases"][0]["reason"], "a\u{2066}b");
}

#[test]
fn secrets_in_commands_are_neither_on_pages_nor_in_answers_nor_in_events() {
    let server = Server::start();
    let mut stream = server.listen();
    let script =
        "test \"$0\" = --password=hush1 || exit 3; curl() { :; }; curl -H 'Authorization: Bearer hush2'";
    let command = json!(["sh", "-c", script, "--password=hush1", "--token", "hush3", "http://me:hush4@host"]);
    let answer = server.post("/api/requests", &json!({ "id": "RQ-1", "command": command })).expect(201);
    let run = answer["run_id"].as_str().unwrap().to_owned();
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    // It succeeds, because it was started with its secrets.
    let mut seen = String::new();
    while seen != "run.ended" {
        let event = stream.event();
        assert!(!event.data.to_string().contains("hush"), "{event:?}");
        seen = event.data["type"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(server.get(&format!("/api/runs/{run}")).expect(200)["run"]["status"], "succeeded");
    for path in [
        "/",
        "/requests/RQ-1",
        "/runs",
        &format!("/runs/{run}"),
        "/api/requests",
        "/api/requests/RQ-1",
        "/api/runs",
    ] {
        let shown = browse(&server, path);
        assert!(!shown.contains("hush"), "{path}: {shown}");
    }
    assert!(browse(&server, "/requests/RQ-1").contains("--password=***"));
}
