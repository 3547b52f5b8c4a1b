//! Auto-run of the queue over HTTP.

use std::path::Path;
use std::process::Command;

use lockkeeper_formats::group::Folders;
use lockkeeper_server::{DoctorSettings, Settings};
use lockkeeper_testing::http::Http;
use lockkeeper_testing::{Started, until_seen};
use serde_json::json;

use super::runs::{let_go, submit, until, wait_for};
use super::server::{Server, settings};

/// Requirements 176, 183 and 196.
#[test]
fn a_queue_that_is_worked_through_is_not_begun_twice() {
    let server = Server::start();
    let mut stream = server.listen();
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
    // The server publishes it a moment after the run began.
    while server.get("/api/queue").expect(200)["auto_run"]["current_run_id"] != run {
        stream.event();
    }
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    stream.until_seen(|| server.get("/api/queue").expect(200)["running"].take(), |runs| *runs == false);
}

/// Requirement 196.
#[test]
fn two_servers_do_not_work_through_one_queue() {
    let folder = tempfile::tempdir().unwrap();
    let one = Server::over(folder.path(), settings());
    let two = Server::over(folder.path(), settings());
    let mut stream = one.listen();
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
    let mut stream = server.listen();
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
        let mut stream = server.listen();
        let run = submit(&server, "RQ-1", &json!(["sh", "-c", format!("exit {code}")]));
        let next = submit(&server, "RQ-2", &json!(["true"]));
        server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
        wait_for(&server, &mut stream, &run, "failed");
        assert_eq!(server.get("/api/requests/RQ-1").expect(200)["request"]["status"], status);
        while server.get("/api/queue").expect(200)["running"] == true {
            stream.event();
        }
        let stop = server.get("/api/queue").expect(200)["last_stop"].take();
        assert_eq!((&stop["reason"], &stop["run_id"]), (&json!(status), &json!(run)), "{stop}");
        assert!(server.get("/").text().contains("The queue has stopped"), "for {status}");
        assert_eq!(server.get(&format!("/api/runs/{next}")).expect(200)["run"]["status"], "queued");
    }
}

/// Starts two shells. Each holds a group lock and waits for that of the other.
fn start_deadlock(locks: &Path) -> [Started; 2] {
    let script = r#"
        exec 200<>"$("$0" group path "$1")" 201<>"$("$0" group path "$2")"
        "$0" group acquire "$1" --fd 200; echo held; read line
        exec "$0" group acquire "$2" --fd 201"#;
    let mut both = [("a", "b"), ("b", "a")].map(|(held, wanted)| {
        let mut command = Command::new("bash");
        command.args(["-c", script, env!("CARGO_BIN_EXE_lockkeeper"), held, wanted]).env("LOCK_DIR", locks);
        Started::of(&mut command)
    });
    for one in &mut both {
        assert_eq!(one.line(), "held");
    }
    for one in &mut both {
        one.close_input();
    }
    both
}

/// Requirement 185. What the doctor finds while the first request runs keeps the second from being begun.
#[test]
fn the_queue_ends_when_the_doctor_finds_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("groups");
    let variables = |name: &str| (name == "LOCK_DIR").then(|| locks.clone().into_os_string());
    let doctor = DoctorSettings { groups: Folders::from_variables(&variables), ..settings().doctor };
    let server = Server::over(folder.path(), Settings { doctor, ..settings() });
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    let next = submit(&server, "RQ-2", &json!(["true"]));
    server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    wait_for(&server, &mut stream, &run, "running");
    let stuck = start_deadlock(&locks);
    // Nothing notifies a test when the kernel has put both to sleep.
    let status = || server.get("/api/doctor").expect(200)["summary"]["status"].take();
    until_seen("the doctor finds the deadlock", status, |status| status == "FAIL");
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    let ended = loop {
        let told = stream.until("queue.changed");
        if !told.data["auto_run"]["ended"].is_null() {
            break told.data["auto_run"]["ended"].clone();
        }
    };
    assert_eq!(ended, "DOCTOR_FAILED");
    stream.until_seen(|| server.get("/api/queue").expect(200)["running"].take(), |runs| *runs == false);
    assert_eq!(server.get("/api/locks").expect(200)["leases"], json!([]));
    assert_eq!(server.get(&format!("/api/runs/{next}")).expect(200)["run"]["status"], "queued");
    // Why it stopped is told, with the check that failed.
    let stop = server.get("/api/queue?lang=ja").expect(200)["last_stop"].take();
    assert_eq!((&stop["reason"], &stop["check"]["id"]), (&json!("DOCTOR_FAILED"), &json!("deadlocks")));
    assert!(stop["message"].as_str().unwrap().contains("Doctorの確認項目"), "{stop}");
    let page = server.get("/").text();
    assert!(page.contains("queue-stopped") && page.contains("wait for each other: a, b"), "{page}");
    // One request alone is refused, too.
    let error = server.post("/api/queue/run-next", &json!({})).error(409, "DOCTOR_FAILED");
    assert_eq!(error["context"]["check"]["id"], "deadlocks");
    assert_eq!(server.get(&format!("/api/runs/{next}")).expect(200)["run"]["status"], "queued");
    // Once the fault is gone, it goes on.
    drop(stuck);
    server.post("/api/queue/run-next", &json!({ "auto": true })).expect(202);
    wait_for(&server, &mut stream, &next, "succeeded");
}

/// Requirement 188.
#[test]
fn a_queue_is_stopped_after_the_present_run() {
    let server = Server::start();
    let mut stream = server.listen();
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
    stream.until_seen(|| server.get("/api/queue").expect(200)["running"].take(), |runs| *runs == false);
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

/// Requirement 183. What the queue cannot execute is not next, and what can never start is told as such.
#[test]
fn what_needs_a_label_and_what_can_never_start_are_told() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "bad", &json!(["false"]));
    server.post("/api/requests/bad/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "failed");
    let more = |id: &str, field: &str, value: &str| {
        let body = json!({ "id": id, "command": ["true"], field: [value] });
        server.post("/api/requests", &body).expect(201)
    };
    more("child", "after", "bad");
    more("gpu", "needs", "gpu");
    let queue = server.get("/api/queue").expect(200);
    let passed = |id: &str| {
        let all = queue["passed_over"].as_array().unwrap();
        all.iter().find(|one| one["request_id"] == id).unwrap_or_else(|| panic!("{id} in {queue}"))
    };
    assert_eq!((&queue["next"], &passed("gpu")["reason"]), (&json!(null), &json!("NEEDS_LABEL")));
    let child = passed("child");
    assert_eq!((&child["reason"], &child["failed"]), (&json!("DEPENDS_NOT_DONE"), &json!(["bad"])));
    assert_eq!(child["message"], "can never start: bad did not succeed; `lockkeeper run retry bad`");
    let request = server.get("/api/requests/child").expect(200);
    assert_eq!(request["request"]["blocked"]["failed"], json!(["bad"]), "{request}");
    let page = server.get("/").text();
    assert!(page.contains("Can never start: <a href=\"/requests/bad\""), "{page}");
    assert_eq!(server.post("/api/queue/run-next", &json!({})).expect(200)["next"], json!(null));
}
