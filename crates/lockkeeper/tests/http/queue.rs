//! Working through the queue over HTTP.

use serde_json::json;

use super::events::listen;
use super::runs::{let_go, submit, until, wait_for};
use super::server::{Server, settings};

/// Requirements 176, 183 and 196.
#[test]
fn a_queue_that_is_worked_through_is_not_begun_twice() {
    let server = Server::start();
    let mut stream = listen(&server, None);
    let run = submit(&server, "RQ-1", &until("go"));
    let begun = server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    assert_eq!((&begun["running"], &begun["next"]), (&json!(true), &json!("RQ-1")));
    wait_for(&server, &mut stream, &run, "running");
    let held = server.get("/api/locks").expect(200).to_string();
    assert!(held.contains("\"queue\""), "{held}");
    let refused = server.request("POST", "/api/queue/run-next").header("accept-language", "ja").send();
    let error = refused.error(409, "QUEUE_IN_PROGRESS");
    assert_eq!(error["message"], "キュー実行がすでに動作中です");
    assert_eq!(error["actions"].as_array().unwrap().len(), 3);
    // It is told a moment after the run began.
    while server.get("/api/queue").expect(200)["auto_run"]["current_run_id"] != run {
        stream.next();
    }
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    while server.get("/api/queue").expect(200)["running"] == true {
        stream.next();
    }
}

/// Requirement 196.
#[test]
fn two_servers_do_not_work_through_one_queue() {
    let folder = tempfile::tempdir().unwrap();
    let one = Server::over(folder.path(), settings());
    let two = Server::over(folder.path(), settings());
    let mut stream = listen(&one, None);
    let run = submit(&one, "RQ-1", &until("go"));
    one.post("/api/queue/run-next", &json!({})).expect(202);
    two.post("/api/queue/run-next", &json!({})).error(409, "QUEUE_IN_PROGRESS");
    let_go(&one, "go");
    wait_for(&one, &mut stream, &run, "succeeded");
}

/// Requirement 184.
#[test]
fn one_request_after_the_other_is_run_under_one_lock() {
    let server = Server::start();
    let mut stream = listen(&server, None);
    let runs: Vec<String> = (1..=3)
        .map(|number| submit(&server, &format!("RQ-{number}"), &until(&format!("go-{number}"))))
        .collect();
    server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    let mut tokens = Vec::new();
    for (place, run) in runs.iter().enumerate() {
        wait_for(&server, &mut stream, run, "running");
        let locks = server.get("/api/locks").expect(200);
        let leases = locks["leases"].as_array().unwrap();
        let queue = leases.iter().find(|lease| lease["resources"][0]["name"] == "queue").unwrap();
        tokens.push(queue["token"].clone());
        for later in &runs[place + 1..] {
            assert_eq!(server.get(&format!("/api/runs/{later}")).expect(200)["run"]["status"], "queued");
        }
        let_go(&server, &format!("go-{}", place + 1));
        wait_for(&server, &mut stream, run, "succeeded");
    }
    assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]), "{tokens:?}");
}

/// Requirement 185.
#[test]
fn the_queue_ends_when_help_is_needed_or_a_run_fails() {
    for (code, status) in [(10, "NEEDS_INPUT"), (1, "FAILED")] {
        let server = Server::start();
        let mut stream = listen(&server, None);
        let run = submit(&server, "RQ-1", &json!(["sh", "-c", format!("exit {code}")]));
        let next = submit(&server, "RQ-2", &json!(["true"]));
        server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
        wait_for(&server, &mut stream, &run, "failed");
        assert_eq!(server.get("/api/requests/RQ-1").expect(200)["request"]["status"], status);
        while server.get("/api/queue").expect(200)["running"] == true {
            stream.next();
        }
        assert_eq!(server.get(&format!("/api/runs/{next}")).expect(200)["run"]["status"], "queued");
    }
}

/// Requirement 188.
#[test]
fn a_queue_is_stopped_after_the_present_run() {
    let server = Server::start();
    let mut stream = listen(&server, None);
    let run = submit(&server, "RQ-1", &until("go"));
    let next = submit(&server, "RQ-2", &json!(["true"]));
    assert_eq!(server.post("/api/queue/stop", &json!({})).expect(202)["stopping"], false);
    server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    wait_for(&server, &mut stream, &run, "running");
    let page = server.get("/").text();
    assert!(page.contains("Queue running") && page.contains("POST /api/queue/stop"), "{page}");
    assert_eq!(server.post("/api/queue/stop", &json!({})).expect(202)["stopping"], true);
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    while server.get("/api/queue").expect(200)["running"] == true {
        stream.next();
    }
    assert_eq!(server.get(&format!("/api/runs/{next}")).expect(200)["run"]["status"], "queued");
    assert!(!server.get("/").text().contains("POST /api/queue/stop"));
}

#[test]
fn an_empty_queue_is_told_as_such() {
    let server = Server::start();
    let answer = server.post("/api/queue/run-next", &json!({ "auto": true })).expect(200);
    assert_eq!((&answer["running"], &answer["next"]), (&json!(false), &json!(null)));
    assert_eq!(server.get("/api/locks").expect(200)["leases"], json!([]));
}
