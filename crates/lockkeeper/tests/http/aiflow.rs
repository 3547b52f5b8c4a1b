//! Requests that a program of aiflow has locked by its files.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_engine::work;
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_platform::wall_clock::WallTime;
use lockkeeper_server::Settings;
use lockkeeper_testing::files;
use lockkeeper_testing::http::Http;
use serde_json::json;

use super::runs::{let_go, submit, until, wait_for};
use super::server::{Server, settings};

/// A server whose runs lock the files of aiflow.
fn start(folder: &tempfile::TempDir) -> Server {
    let execution = work::Settings { aiflow: Some(Aiflow::new(folder.path())), ..work::Settings::default() };
    Server::over(folder.path(), Settings { execution, ..settings() })
}

fn file(server: &Server, name: &str) -> PathBuf {
    server.folder().join(".aiflow/locks").join(name)
}

/// Locks a request as another program does, for half an hour.
fn lock_as_another(server: &Server, request: &str) {
    let now = WallTime::now();
    let record = json!({
        "version": "1.0", "lock_type": "request", "request_id": request, "run_id": "RUN-THEIRS", "pid": 1,
        "host": "127.0.0.1", "created_at": now.local(), "expires_at": now.after(Duration::from_secs(1800)).local(),
    });
    files::write(&file(server, &format!("request.{request}.lock.json")), record.to_string());
}

/// Requirements 173, 174 and 195. Whatever became of our last run.
#[test]
fn a_request_that_another_program_runs_is_refused_and_nothing_is_queued() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let mut stream = server.listen();
    for (id, code, status) in [("RQ-1", 0, "succeeded"), ("RQ-2", 1, "failed")] {
        let run = submit(&server, id, &json!(["sh", "-c", format!("exit {code}")]));
        server.post(&format!("/api/requests/{id}/run"), &json!({})).expect(202);
        wait_for(&server, &mut stream, &run, status);
        // Our own lock file goes after the end of the run.
        let ours = file(&server, &format!("request.{id}.lock.json"));
        stream.until_seen(|| ours.exists(), |there| !there);
        lock_as_another(&server, id);
        let refused = server.post(&format!("/api/requests/{id}/run"), &json!({}));
        let error = refused.error(409, "RUN_IN_PROGRESS");
        assert_eq!(error["context"]["run_id"], "RUN-THEIRS");
        assert_eq!(error["context"]["latest_run_url"], format!("/api/runs/{run}"));
        assert!(error["actions"].to_string().contains("locks --format aiflow"), "{error}");
        let runs = server.get("/api/runs?status=queued,running").expect(200);
        assert_eq!(runs["runs"], json!([]), "{runs}");
    }
    // One that waits in the queue stays there, and the queue passes it over.
    submit(&server, "RQ-3", &json!(["true"]));
    lock_as_another(&server, "RQ-3");
    server.post("/api/requests/RQ-3/run", &json!({})).error(409, "RUN_IN_PROGRESS");
    let queue = server.get("/api/queue").expect(200);
    assert_eq!(queue["next"], json!(null), "{queue}");
    let passed = queue["passed_over"].as_array().unwrap();
    assert!(
        passed.iter().any(|one| one["request_id"] == "RQ-3" && one["reason"] == "REQUEST_LOCKED"),
        "{queue}"
    );
    assert_eq!(server.post("/api/queue/run-next", &json!({})).expect(200)["next"], json!(null));
    fs::remove_file(file(&server, "request.RQ-3.lock.json")).unwrap();
    assert_eq!(server.get("/api/queue").expect(200)["next"], "RQ-3");
    assert_eq!(server.post("/api/queue/run-next", &json!({})).expect(202)["next"], "RQ-3");
}

/// Requirements 173 and 203. The program of the format has a plain file with the id of its run.
#[test]
fn the_plain_lock_file_of_the_program_is_honoured_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    let plain = file(&server, "RQ-1.lock");
    files::write(&plain, "RUN-20251214-150102-abcdef");
    let error = server.post("/api/requests/RQ-1/run", &json!({})).error(409, "RUN_IN_PROGRESS");
    assert_eq!(error["context"]["run_id"], "RUN-20251214-150102-abcdef");
    assert!(error["context"]["lock_file"].as_str().unwrap().ends_with("RQ-1.lock"), "{error}");
    let locks = server.get("/api/locks").expect(200);
    assert_eq!(locks["foreign"][0]["format"], "aiflow", "{locks}");
    assert_eq!(locks["foreign"][0]["holder"], "RUN-20251214-150102-abcdef");
    assert_eq!(locks["foreign"][0]["path"], plain.to_str().unwrap());
    fs::remove_file(&plain).unwrap();
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "running");
    // Their program creates it exclusively.
    let theirs = fs::OpenOptions::new().write(true).create_new(true).open(&plain);
    assert_eq!(theirs.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&plain).unwrap(), run);
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    let json = file(&server, "request.RQ-1.lock.json");
    stream.until_seen(|| plain.exists() || json.exists(), |there| !there);
}

/// Requirement 188. The queue and its page say what run-next would say.
#[test]
fn a_queue_that_another_program_works_through_is_running() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &json!(["true"]));
    server.post("/api/queue/run-next", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "succeeded");
    stream.until_seen(|| file(&server, "queue.lock.json").exists(), |there| !there);
    submit(&server, "RQ-2", &json!(["true"]));
    let now = WallTime::now();
    let record = json!({
        "version": "1.0", "lock_type": "queue", "request_id": "RQ-9", "run_id": "RUN-THEIRS", "pid": 1,
        "host": "127.0.0.1", "created_at": now.local(), "expires_at": now.after(Duration::from_secs(1800)).local(),
    });
    files::write(&file(&server, "queue.lock.json"), record.to_string());
    let error = server.post("/api/queue/run-next", &json!({})).error(409, "QUEUE_IN_PROGRESS");
    assert_eq!(error["context"], json!({ "holder": "RUN-THEIRS", "run_id": "RUN-THEIRS" }));
    let queue = server.get("/api/queue").expect(200);
    let shown = (&queue["running"], &queue["held_by"], &queue["next"]);
    assert_eq!(shown, (&json!(true), &json!("RUN-THEIRS"), &json!(null)), "{queue}");
    assert!(server.get("/").text().contains("RUN-THEIRS"));
    fs::remove_file(file(&server, "queue.lock.json")).unwrap();
    let queue = server.get("/api/queue").expect(200);
    assert_eq!((&queue["running"], &queue["next"]), (&json!(false), &json!("RQ-2")), "{queue}");
}

#[test]
fn executors_of_one_store_lock_in_one_format() {
    let folder = tempfile::tempdir().unwrap();
    let (server, other) = (start(&folder), Server::over(folder.path(), settings()));
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    submit(&server, "RQ-2", &json!(["true"]));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "running");
    let error = other.post("/api/requests/RQ-2/run", &json!({})).error(409, "LOCK_FORMAT_DIFFERS");
    assert_eq!(error["context"]["lock_format"], "aiflow");
    other.post("/api/queue/run-next", &json!({})).error(409, "LOCK_FORMAT_DIFFERS");
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
}
