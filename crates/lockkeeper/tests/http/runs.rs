//! Requests and runs over HTTP.

use std::fs;

use lockkeeper_engine::work;
use lockkeeper_formats::aiflow::Aiflow;
use lockkeeper_server::Settings;
use lockkeeper_testing::http::{Events, Http};
use lockkeeper_testing::processes;
use serde_json::{Value, json};

use super::server::{Server, settings};

/// A command that runs until a file is there.
pub fn until(file: &str) -> Value {
    json!(["sh", "-c", format!("echo begun; while [ ! -e {file} ]; do sleep 0.02; done; echo over")])
}

/// Lets that command end.
pub fn let_go(server: &Server, file: &str) {
    fs::write(server.folder().join(file), "").unwrap();
}

#[track_caller]
pub fn submit(server: &Server, id: &str, command: &Value) -> String {
    let body = json!({ "id": id, "title": format!("title of {id}"), "command": command });
    let answer = server.post("/api/requests", &body).expect(201);
    answer["run_id"].as_str().unwrap().to_owned()
}

/// Waits until a run has this status.
pub fn wait_for(server: &Server, stream: &mut Events, run: &str, status: &str) -> Value {
    let show = || server.get(&format!("/api/runs/{run}")).expect(200);
    stream.until_seen(show, |shown| shown["run"]["status"] == status)
}

#[test]
fn a_request_comes_in_is_run_and_its_output_is_read() {
    let server = Server::start();
    let mut stream = server.listen();
    let command = json!(["sh", "-c", "printf 'one\\ntwo\\n'; exit 0"]);
    let body =
        json!({ "title": "print", "command": command, "locks": ["db"], "priority": 5, "timeout": "1m" });
    let answer = server.post("/api/requests", &body);
    let location = answer.header("location").unwrap().to_owned();
    let submitted = answer.expect(201);
    let request = server.get(&location).expect(200)["request"].take();
    assert_eq!((&request["status"], &request["locked"]), (&json!("QUEUED"), &json!(false)));
    assert_eq!(request["latest_run"]["id"], submitted["run_id"]);
    let answer = server.post(&format!("{location}/run"), &json!({}));
    let run = answer.header("location").unwrap().strip_prefix("/api/runs/").unwrap().to_owned();
    assert_eq!(answer.expect(202)["run_id"], submitted["run_id"]);
    let shown = wait_for(&server, &mut stream, &run, "succeeded");
    assert_eq!(shown["run"]["exit_code"], 0);
    let kinds: Vec<&str> =
        shown["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"submitted"), Some(&"ended")));
    let log = server.get(&format!("/api/runs/{run}/log")).expect(200);
    assert_eq!((&log["text"], &log["ended"]), (&json!("one\ntwo\n"), &json!(true)));
    assert_eq!(server.get(&format!("/api/runs/{run}/log?from=4")).expect(200)["text"], "two\n");
    assert_eq!(server.get(&format!("/api/runs/{run}/log?lines=1")).expect(200)["text"], "two\n");
    assert_eq!(server.get(&format!("/api/runs/{run}/log?from=0&limit=2")).expect(200)["text"], "on");
    assert_eq!(server.get(&location).expect(200)["request"]["status"], "DONE");
}

#[test]
fn who_reads_a_log_is_answered_as_soon_as_there_is_more() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    let path = format!("/api/runs/{run}/log");
    server.get(&format!("{path}?wait=26")).error(400, "BAD_INPUT");
    // A client that asks before the run began gets its first output.
    let first = std::thread::scope(|scope| {
        let asking = scope.spawn(|| server.get(&format!("{path}?from=0&wait=25")).expect(200));
        server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
        asking.join().unwrap()
    });
    let more = format!("{path}?from={}&wait=25", first["to"]);
    let second = std::thread::scope(|scope| {
        let asking = scope.spawn(|| server.get(&more).expect(200));
        let_go(&server, "go");
        asking.join().unwrap()
    });
    assert_eq!((&first["text"], &first["ended"]), (&json!("begun\n"), &json!(false)));
    assert_eq!(second["text"], "over\n");
    wait_for(&server, &mut stream, &run, "succeeded");
    let end = server.get(&format!("/api/runs/{run}/log?from=11&wait=25")).expect(200);
    assert_eq!((&end["text"], &end["ended"]), (&json!(""), &json!(true)));
}

#[test]
fn no_letter_of_a_log_is_cut_in_two() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &json!(["printf", "aé日🦀é"]));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "succeeded");
    let (mut read, mut from) = (String::new(), 0);
    while from < 12 {
        let part = server.get(&format!("/api/runs/{run}/log?from={from}&limit=5")).expect(200);
        read.push_str(part["text"].as_str().unwrap());
        from = part["to"].as_u64().unwrap();
    }
    assert_eq!(read, "aé日🦀é");
    assert_eq!(server.get(&format!("/api/runs/{run}/log?limit=4")).expect(200)["text"], "é");
}

/// Requirements 173, 174, 175, 187 and 195.
#[test]
fn a_request_that_runs_is_locked_and_cannot_run_twice() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    let request = server.get("/api/requests/RQ-1").expect(200)["request"].take();
    assert_eq!((&request["status"], &request["locked"]), (&json!("RUNNING"), &json!(true)));
    let refused = server.request("POST", "/api/requests/RQ-1/run").header("accept-language", "ja").send();
    assert_eq!(refused.header("location"), Some(format!("/api/runs/{run}").as_str()));
    let error = refused.error(409, "RUN_IN_PROGRESS");
    assert_eq!(
        (&error["category"], &error["message"]),
        (&json!("EXECUTION"), &json!("同一RequestのRunが実行中です"))
    );
    assert_eq!((&error["context"]["request_id"], &error["context"]["run_id"]), (&json!("RQ-1"), &json!(run)));
    assert_eq!(error["context"]["latest_run_url"], format!("/api/runs/{run}"));
    assert_eq!(server.get(&format!("/api/runs/{run}")).expect(200)["run"]["id"], run);
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    let again = server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    assert_ne!(again["run_id"], run);
    wait_for(&server, &mut stream, again["run_id"].as_str().unwrap(), "succeeded");
    assert_eq!(server.get("/api/runs?request=RQ-1").expect(200)["runs"].as_array().unwrap().len(), 2);
}

/// Requirement 195.
#[test]
fn of_many_who_run_one_request_at_once_one_does() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let ask = || server.post("/api/requests/RQ-1/run", &json!({})).status;
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 202).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 202 | 409)), "{statuses:?}");
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    assert_eq!(server.get("/api/runs").expect(200)["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_run_is_called_off_with_its_command() {
    let server = Server::start();
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &json!(["sleep", "1000"]));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    server.post(&format!("/api/runs/{run}/cancel"), &json!({ "reason": "not needed" })).expect(202);
    let shown = wait_for(&server, &mut stream, &run, "canceled");
    assert_eq!(shown["run"]["reason_code"], "USER_CANCELED");
    server.post(&format!("/api/runs/{run}/cancel"), &json!({})).error(409, "TRANSITION_REFUSED");
}

#[test]
fn what_a_run_needs_and_another_holds_is_refused_with_its_holder() {
    let server = Server::start();
    let guard = server.keeper.lock("db").owner("lib:1").try_acquire().unwrap();
    let body = json!({ "id": "RQ-1", "command": ["true"], "locks": ["db"] });
    server.post("/api/requests", &body).expect(201);
    let error = server.post("/api/requests/RQ-1/run", &json!({})).error(409, "LOCK_HELD");
    assert_eq!(error["context"]["holders"][0]["owner"], "lib:1");
    assert_eq!(server.get("/api/requests/RQ-1").expect(200)["request"]["status"], "QUEUED");
    drop(guard);
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
}

/// Invariant 9.
#[test]
fn an_executor_outside_moves_a_run_by_compare_and_set() {
    let server = Server::start();
    let run = submit(&server, "RQ-1", &json!(["true"]));
    let path = format!("/api/runs/{run}/transition");
    let taken =
        server.post(&path, &json!({ "to": "running", "expect": "queued", "worker": "w-1" })).expect(200);
    assert_eq!((&taken["run"]["status"], &taken["run"]["worker"]), (&json!("running"), &json!("w-1")));
    let lost =
        server.post(&path, &json!({ "to": "running", "expect": "queued" })).error(409, "TRANSITION_REFUSED");
    assert_eq!(lost["context"]["status"], "running");
    let claim = taken["run"]["claim"].as_u64().unwrap();
    server.post(&path, &json!({ "to": "succeeded", "claim": claim + 1 })).error(409, "TRANSITION_REFUSED");
    let ended = server
        .post(&path, &json!({ "to": "succeeded", "expect": "running", "claim": claim, "exit_code": 0 }));
    assert_eq!(ended.expect(200)["run"]["status"], "succeeded");
    server.post(&path, &json!({ "to": "failed" })).error(409, "TRANSITION_REFUSED");
    server.post(&path, &json!({ "to": "nowhere" })).error(400, "BAD_INPUT");
}

#[test]
fn what_happens_to_runs_is_told_as_it_happens() {
    let server = Server::start();
    let mut stream = server.listen();
    assert_eq!(stream.event().name, "hello");
    let run = submit(&server, "RQ-1", &json!(["true"]));
    let told = stream.until("run.submitted");
    assert_eq!((told.name.as_str(), &told.data["event"]["run_id"]), ("run", &json!(run)));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    assert_eq!(stream.until("run.ended").data["event"]["to"], "succeeded");
}

#[test]
fn a_request_that_comes_twice_with_one_key_is_one() {
    let server = Server::start();
    let body = json!({ "command": ["true"], "key": "nightly" });
    let first = server.post("/api/requests", &body).expect(201);
    let second = server.post("/api/requests", &body).expect(200);
    assert_eq!((&first["request_id"], &second["existing"]), (&second["request_id"], &json!(true)));
    submit(&server, "RQ-1", &json!(["true"]));
    server.post("/api/requests", &json!({ "id": "RQ-1", "command": ["true"] })).error(409, "DUPLICATE");
}

#[test]
fn a_request_is_put_in_the_place_of_another() {
    let server = Server::start();
    let first = server.put("/api/requests/nightly", &json!({ "command": ["true"] })).expect(201);
    assert_eq!((&first["request_id"], &first["replaced"]), (&json!("nightly"), &json!(false)));
    let second =
        server.put("/api/requests/nightly", &json!({ "id": "nightly", "command": ["false"] })).expect(200);
    assert_eq!(second["replaced"], true);
    let shown = server.get("/api/requests/nightly").expect(200);
    assert_eq!(shown["request"]["command"], json!(["false"]));
    assert_eq!(shown["runs"][0]["id"], second["run_id"]);
    assert_eq!(shown["runs"][1]["status"], "canceled");
    server.put("/api/requests/nightly", &json!({ "id": "b", "command": ["true"] })).error(400, "BAD_INPUT");
    server.put("/api/requests/b", &json!({ "command": ["true"], "key": "k" })).error(400, "BAD_INPUT");
}

/// Requirement 204.
#[test]
fn requests_and_runs_that_cannot_be_are_refused() {
    let server = Server::start();
    for body in [
        json!({}),
        json!({ "command": [] }),
        json!({ "command": "true" }),
        json!({ "command": ["a\u{0}b"] }),
        json!({ "command": ["true"], "id": "../x" }),
        json!({ "command": ["true"], "timeout": "soon" }),
        json!({ "command": ["true"], "surprise": 1 }),
    ] {
        server.post("/api/requests", &body).error(400, "BAD_INPUT");
    }
    server
        .post("/api/requests", &json!({ "command": ["true"], "paths": ["../x"] }))
        .error(400, "BAD_PATTERN");
    server
        .post("/api/requests", &json!({ "command": ["true"], "after": ["RQ-9"] }))
        .error(404, "NO_SUCH_REQUEST");
    server.get("/api/requests/RQ-9").error(404, "NO_SUCH_REQUEST");
    server.post("/api/requests/RQ-9/run", &json!({})).error(404, "NO_SUCH_REQUEST");
    server.get("/api/runs/RUN-9").error(404, "NO_SUCH_RUN");
    for id in ["..%2f..%2fetc%2fpasswd", "%2e%2e", "a%00b", "..%5c.."] {
        for path in [format!("/api/runs/{id}"), format!("/api/runs/{id}/log"), format!("/api/requests/{id}")]
        {
            let status = server.get(&path).status;
            assert!(matches!(status, 400 | 404), "{path}: {status}");
        }
    }
    server.get("/api/runs/RUN-9/log?limit=0").error(400, "BAD_INPUT");
    assert_eq!(server.get("/api/requests").expect(200)["requests"], json!([]));
}

#[test]
fn long_lists_of_requests_and_runs_come_in_pages() {
    let server = Server::start();
    for number in 0..5 {
        submit(&server, &format!("RQ-{number}"), &json!(["true"]));
    }
    for (kind, key) in [("requests", "id"), ("runs", "request_id")] {
        let (mut seen, mut address) = (Vec::new(), format!("/api/{kind}?limit=2"));
        loop {
            let page = server.get(&address).expect(200);
            seen.extend(page[kind].as_array().unwrap().iter().map(|one| one[key].clone()));
            match page["next"].as_str() {
                Some(next) => address = format!("/api/{kind}?limit=2&after={next}"),
                None => break,
            }
        }
        assert_eq!(seen, ["RQ-4", "RQ-3", "RQ-2", "RQ-1", "RQ-0"], "{kind}");
    }
    assert_eq!(server.get("/api/requests?status=DONE").expect(200)["requests"], json!([]));
    server.get("/api/requests?status=LOST").error(400, "BAD_INPUT");
}

/// Requirement 190. Those who look, ask again or go away change nothing about a lock; the server's own process has it.
#[test]
fn only_the_server_takes_and_frees_its_locks() {
    let folder = tempfile::tempdir().unwrap();
    let execution = work::Settings { aiflow: Some(Aiflow::new(folder.path())), ..work::Settings::default() };
    let mut server = Server::over(folder.path(), Settings { execution, ..settings() });
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    let locks = folder.path().join(".aiflow/locks");
    let look = || {
        for path in
            ["/", "/requests/RQ-1", "/runs", "/locks", "/doctor", "/api/requests", "/api/queue", "/api/locks"]
        {
            assert_eq!(server.get(path).status, 200, "{path}");
        }
    };
    let kept = || {
        let entries = fs::read_dir(&locks).into_iter().flatten();
        let mut files: Vec<_> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().ends_with(".lock.json"))
            .collect();
        files.sort();
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect::<Vec<_>>()
    };
    look();
    assert_eq!(kept(), []);
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    stream.until("run.started");
    let held = kept();
    assert_eq!(held.len(), 1);
    let record: Value = serde_json::from_slice(&held[0].1).unwrap();
    assert_eq!((&record["pid"], &record["request_id"]), (&json!(std::process::id()), &json!("RQ-1")));
    look();
    server.post("/api/requests/RQ-1/run", &json!({})).error(409, "RUN_IN_PROGRESS");
    server.post("/api/runs/retry", &json!({ "requests": ["RQ-1"] })).expect(202);
    assert_eq!(kept(), held);
    // Nobody is connected any more when it ends.
    drop(stream);
    let_go(&server, "go");
    server.drain();
    server.ended().unwrap();
    assert_eq!(kept(), []);
    let server = Server::over(folder.path(), settings());
    assert_eq!(server.get(&format!("/api/runs/{run}")).expect(200)["run"]["status"], "succeeded");
}

/// Requirement 192.
#[test]
fn the_servers_locks_are_files_of_the_format_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let execution = work::Settings { aiflow: Some(Aiflow::new(folder.path())), ..work::Settings::default() };
    let mut server = Server::over(folder.path(), Settings { execution, ..settings() });
    let mut stream = server.listen();
    let run = submit(&server, "RQ-1", &until("go"));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    let lock = folder.path().join(".aiflow/locks/request.RQ-1.lock.json");
    let record: Value = serde_json::from_slice(&fs::read(&lock).unwrap()).unwrap();
    assert_eq!((&record["lock_type"], &record["run_id"]), (&json!("request"), &json!(run)));
    stream.until("run.started");
    let stage = folder.path().join("state/runs").join(&run).join("stage.json");
    let stage: Value = serde_json::from_slice(&fs::read(stage).unwrap()).unwrap();
    assert!(stage.to_string().contains("RQ-1"), "{stage}");
    server.post("/api/requests/RQ-1/run", &json!({})).error(409, "RUN_IN_PROGRESS");
    let_go(&server, "go");
    wait_for(&server, &mut stream, &run, "succeeded");
    // The server removes the file a moment after it published the end. Draining waits for that.
    server.drain();
    server.ended().unwrap();
    assert!(!lock.exists());
}

/// Requirements 182 and 193.
#[test]
fn before_a_run_a_stale_lock_file_is_put_away() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join(".aiflow/locks");
    fs::create_dir_all(&locks).unwrap();
    let pid = processes::exited_pid();
    let stale = json!({
        "version": "1.0", "lock_type": "request", "request_id": "RQ-OLD", "run_id": "RUN-OLD", "pid": pid,
        "host": "127.0.0.1", "created_at": "2025-12-14T15:01:02+09:00", "expires_at": "2025-12-14T15:31:02+09:00",
    });
    fs::write(locks.join("request.RQ-OLD.lock.json"), stale.to_string()).unwrap();
    let execution = work::Settings { aiflow: Some(Aiflow::new(folder.path())), ..work::Settings::default() };
    let server = Server::over(folder.path(), Settings { execution, ..settings() });
    submit(&server, "RQ-1", &json!(["true"]));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    assert!(!locks.join("request.RQ-OLD.lock.json").exists());
}

#[test]
fn the_doctor_looks_over_http_and_only_our_own_page_has_it_change_anything() {
    let server = Server::start();
    let found = server.get("/api/doctor").expect(200);
    assert!(matches!(found["summary"]["status"].as_str(), Some("PASS" | "WARN" | "FAIL")), "{found}");
    assert!(!found["checks"].as_array().unwrap().is_empty());
    let foreign = server.request("POST", "/api/doctor").header("origin", "http://evil.example");
    foreign.json(&json!({ "mode": "full" })).send().error(403, "FOREIGN_ORIGIN");
    server.get("/api/doctor?mode=half").error(400, "BAD_INPUT");
}

/// Invariant 10.
#[test]
fn a_server_that_drains_waits_for_what_it_runs_and_one_that_stops_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::over(folder.path(), settings());
    let run = submit(&server, "RQ-1", &json!(["sleep", "1000"]));
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    server.drain();
    server.stop();
    server.ended().unwrap();
    let server = Server::over(folder.path(), settings());
    let mut stream = server.listen();
    let shown = wait_for(&server, &mut stream, &run, "canceled");
    assert_eq!(shown["run"]["reason_code"], "USER_CANCELED");
}

/// A request that comes after another one starts before it only if somebody confirms that.
#[test]
fn a_dependent_is_not_run_before_what_it_comes_after() {
    let server = Server::start();
    let mut stream = server.listen();
    submit(&server, "first", &json!(["true"]));
    let body = json!({ "id": "second", "command": ["true"], "after": ["first"] });
    let run = server.post("/api/requests", &body).expect(201)["run_id"].as_str().unwrap().to_owned();
    let refused = server.post("/api/requests/second/run", &json!({})).error(409, "DEPENDS_NOT_DONE");
    assert_eq!(refused["context"]["unmet"], json!(["first"]));
    assert_eq!(server.get(&format!("/api/runs/{run}")).expect(200)["run"]["status"], "queued");
    server.post("/api/requests/second/run?force=true", &json!({})).expect(202);
    wait_for(&server, &mut stream, &run, "succeeded");
}
