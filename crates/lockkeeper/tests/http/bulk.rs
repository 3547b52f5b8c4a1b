//! Bulk operations on all requests that match a filter.

use lockkeeper_testing::http::Http;
use serde_json::{Value, json};

use super::runs::{let_go, submit, until, wait_for};
use super::server::Server;

fn status_of(server: &Server, run: &str) -> Value {
    server.get(&format!("/api/runs/{run}")).expect(200)["run"]["status"].take()
}

fn cancel(server: &Server, body: &Value) -> Value {
    server.post("/api/runs/cancel", body).expect(202)
}

#[test]
fn all_that_match_are_called_off_and_nothing_else() {
    let server = Server::start();
    let fruit: Vec<String> =
        ["apple-1", "apple-2", "Apple-3"].iter().map(|id| submit(&server, id, &json!(["true"]))).collect();
    let other = submit(&server, "pear", &json!(["true"]));
    let body = json!({ "text": "apple", "status": ["queued"], "dry_run": true });
    let forecast = server.post("/api/runs/cancel", &body).expect(200);
    assert_eq!((&forecast["matched"], &forecast["moved"]), (&json!(3), &json!(3)));
    assert_eq!(status_of(&server, &fruit[0]), "queued");
    let body = json!({ "text": "apple", "request_status": ["QUEUED"], "reason": "not needed" });
    let done = cancel(&server, &body);
    assert_eq!((&done["matched"], &done["moved"], &done["refused"]), (&json!(3), &json!(3), &json!(0)));
    assert_eq!(done["runs"][0]["status"], "canceled");
    for run in &fruit {
        let run = server.get(&format!("/api/runs/{run}")).expect(200)["run"].take();
        assert_eq!((&run["status"], &run["message"]), (&json!("canceled"), &json!("not needed")));
    }
    assert_eq!(status_of(&server, &other), "queued");
}

#[test]
fn what_cannot_be_changed_is_named_with_the_reason() {
    let server = Server::start();
    submit(&server, "RQ-1", &json!(["true"]));
    let ended = submit(&server, "RQ-2", &json!(["true"]));
    server.post(&format!("/api/runs/{ended}/cancel"), &json!({})).expect(202);
    let done = cancel(&server, &json!({ "requests": ["RQ-1", "RQ-2"] }));
    assert_eq!((&done["matched"], &done["moved"], &done["refused"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(done["runs"][0]["request_id"], "RQ-1");
    assert_eq!(
        (&done["refusals"][0]["request_id"], &done["refusals"][0]["reason_code"]),
        (&json!("RQ-2"), &json!("TRANSITION_REFUSED"))
    );
    let again = server.post("/api/runs/retry", &json!({ "status": ["canceled"], "all": false })).expect(202);
    assert_eq!((&again["moved"], &again["runs"][0]["status"]), (&json!(2), &json!("queued")));
    let again = server.post("/api/runs/retry", &json!({ "requests": ["RQ-1"] })).expect(202);
    assert_eq!(again["refusals"][0]["reason_code"], "RUN_IN_PROGRESS");
}

#[test]
fn what_runs_is_called_off_with_its_command() {
    let server = Server::start();
    let mut stream = server.listen();
    let runs: Vec<String> = ["RQ-1", "RQ-2"].iter().map(|id| submit(&server, id, &until("go"))).collect();
    for id in ["RQ-1", "RQ-2"] {
        server.post(&format!("/api/requests/{id}/run"), &json!({})).expect(202);
    }
    let worker = server.get(&format!("/api/runs/{}", runs[0])).expect(200)["run"]["worker"].take();
    let listed = server.get(&format!("/api/requests?worker={}", worker.as_str().unwrap())).expect(200);
    assert_eq!(listed["requests"].as_array().unwrap().len(), 2);
    let done = cancel(&server, &json!({ "worker": worker }));
    assert_eq!((&done["moved"], &done["runs"][0]["status"]), (&json!(2), &json!("cancelling")));
    for run in &runs {
        wait_for(&server, &mut stream, run, "canceled");
    }
    let_go(&server, "go");
}

#[test]
fn many_are_changed_part_by_part_and_later_ones_are_not_meant() {
    let server = Server::start();
    for number in 0..5 {
        submit(&server, &format!("RQ-{number}"), &json!(["true"]));
    }
    let forecast =
        server.post("/api/runs/cancel", &json!({ "status": ["queued"], "dry_run": true })).expect(200);
    assert_eq!((&forecast["moved"], &forecast["newest"]), (&json!(5), &json!("RQ-4")));
    let late = submit(&server, "RQ-late", &json!(["true"]));
    let (mut seen, mut after) = (Vec::new(), Value::Null);
    loop {
        let body = json!({ "status": ["queued"], "newest": "RQ-4", "limit": 2, "after": after });
        let mut part = cancel(&server, &body);
        assert!(part["moved"].as_u64().unwrap() <= 2, "{part}");
        let runs = part["runs"].as_array().unwrap();
        seen.extend(runs.iter().map(|one| one["request_id"].as_str().unwrap().to_owned()));
        after = part["next"].take();
        if after.is_null() {
            break;
        }
    }
    assert_eq!(seen, ["RQ-4", "RQ-3", "RQ-2", "RQ-1", "RQ-0"]);
    assert_eq!(status_of(&server, &late), "queued");
}

#[test]
fn it_has_to_be_said_which_are_meant() {
    let server = Server::start();
    let run = submit(&server, "RQ-1", &json!(["true"]));
    for body in [
        json!({}),
        json!({ "text": "" }),
        json!({ "newest": "RQ-1" }),
        json!({ "all": true, "text": "RQ" }),
        json!({ "status": ["lost"] }),
        json!({ "request_status": ["LOST"] }),
        json!({ "requests": ["../x"] }),
        json!({ "all": true, "limit": 0 }),
        json!({ "all": true, "limit": 10_001 }),
        json!({ "all": true, "surprise": 1 }),
        json!({ "all": true, "reason": "x".repeat(1_001) }),
    ] {
        server.post("/api/runs/cancel", &body).error(400, "BAD_INPUT");
    }
    server.post("/api/runs/retry", &json!({ "all": true, "reason": "x" })).error(400, "BAD_INPUT");
    assert_eq!(status_of(&server, &run), "queued");
    assert_eq!(cancel(&server, &json!({ "all": true }))["moved"], 1);
}

#[test]
fn a_repeated_call_changes_nothing_twice() {
    let server = Server::start();
    let run = submit(&server, "RQ-1", &json!(["true"]));
    server.post(&format!("/api/runs/{run}/cancel"), &json!({})).expect(202);
    let ask = || {
        let request = server.request("POST", "/api/runs/retry").header("idempotency-key", "k-1");
        request.json(&json!({ "request_status": ["CANCELED"] })).send()
    };
    let (first, second) = (ask(), ask());
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(first.expect(202), second.expect(202));
    assert_eq!(server.get("/api/runs?request=RQ-1").expect(200)["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn the_board_shows_only_what_matches_and_says_how_many() {
    let server = Server::start();
    for id in ["apple-1", "apple-2", "pear"] {
        submit(&server, id, &json!(["true"]));
    }
    let board = server.get("/?text=apple&status=QUEUED&worker=").text();
    assert!(board.contains("title of apple-1") && !board.contains("title of pear"), "{board}");
    assert!(board.contains("<strong id=\"matching-count\">2</strong>"), "{board}");
    assert!(board.contains("data-filter=\"{&#34;request_status&#34;:[&#34;QUEUED&#34;],"), "{board}");
    assert!(server.get("/?text=plum").text().contains("Nothing matches"));
    assert!(!server.get("/").text().contains("cancel-matching"));
    server.get("/?status=LOST").error(400, "BAD_INPUT");
}
