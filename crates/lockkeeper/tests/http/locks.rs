//! Leases over HTTP.

use lockkeeper_testing::Started;
use lockkeeper_testing::http::Http;
use serde_json::{Value, json};

use super::server::{Server, settings};

#[track_caller]
fn take(server: &Server, body: &Value) -> Value {
    server.post("/api/locks", body).expect(201)["lease"].take()
}

#[test]
fn a_lease_is_taken_shown_renewed_and_given_back() {
    let server = Server::start();
    let answer = server.post(
        "/api/locks",
        &json!({ "names": ["db"], "paths": ["src/**"], "owner": "test:1", "ttl": "1m", "reason": "migration" }),
    );
    let location = answer.header("location").unwrap().to_owned();
    let lease = answer.expect(201)["lease"].take();
    assert_eq!(location, format!("/api/locks/{}", lease["id"].as_str().unwrap()));
    assert_eq!(lease["owner"], "test:1");
    assert_eq!(
        lease["resources"],
        json!([{ "name": "db", "mode": "exclusive" }, { "path": "src/**", "mode": "exclusive" }])
    );
    let shown = server.get(&location).expect(200);
    assert_eq!((&shown["lease"]["token"], &shown["lease"]["reason"]), (&lease["token"], &json!("migration")));
    let listed = server.get("/api/locks").expect(200);
    assert_eq!(listed["leases"].as_array().unwrap().len(), 1);
    let renewed = server.post(&format!("{location}/renew"), &json!({ "token": lease["token"], "ttl": 90 }));
    assert_ne!(renewed.expect(200)["lease"]["expires_at"], lease["expires_at"]);
    let released = server.delete(&format!("{location}?token={}", lease["token"])).expect(200);
    assert_eq!(released["status"], "released");
    server.get(&location).error(404, "NOT_CURRENT");
    assert_eq!(
        server.get("/api/locks").expect(200),
        json!({
            "leases": [], "waiters": [], "alerts": [], "next": null, "foreign": [], "foreign_waiters": [],
        })
    );
}

/// Invariant 1.
#[test]
fn what_another_holds_is_refused_with_the_holder_and_a_witness() {
    let server = Server::start();
    let held = take(&server, &json!({ "paths": ["src/**/*.rs"], "owner": "test:1" }));
    let error = server
        .post("/api/locks", &json!({ "paths": ["src/api/**"], "owner": "test:2" }))
        .error(409, "LOCK_HELD");
    assert_eq!(error["category"], "EXECUTION");
    assert_eq!(error["context"]["holders"][0]["id"], held["id"]);
    let witness = error["context"]["witness"].as_str().unwrap();
    assert!(witness.starts_with("src/api/") && witness.ends_with(".rs"), "{witness}");
    assert!(error["message"].as_str().unwrap().contains("test:1"), "{error}");
}

#[test]
fn the_same_lease_is_seen_by_commands_and_over_http() {
    let server = Server::start();
    let guard = server.keeper.lock("db").owner("lib:1").try_acquire().unwrap();
    server.post("/api/locks", &json!({ "names": ["db"] })).error(409, "LOCK_HELD");
    drop(guard);
    take(&server, &json!({ "names": ["db"] }));
    assert!(server.keeper.lock("db").try_acquire().is_err());
}

#[test]
fn an_owner_that_asks_again_gets_the_lease_it_has() {
    let server = Server::start();
    let wish = json!({ "names": ["db"], "owner": "test:1" });
    let first = take(&server, &wish);
    let again = server.post("/api/locks", &wish).expect(200);
    assert_eq!(again["lease"]["id"], first["id"]);
}

/// Invariant 7.
#[test]
fn a_wait_never_blocks_and_is_granted_in_its_turn() {
    let server = Server::start();
    let held = take(&server, &json!({ "names": ["db"], "owner": "test:1" }));
    let answer = server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:2", "wait": true }));
    let location = answer.header("location").unwrap().to_owned();
    let waiting = answer.expect(202);
    assert_eq!((&waiting["status"], &waiting["ticket"]["position"]), (&json!("waiting"), &json!(1)));
    assert_eq!(waiting["ticket"]["waits_for"][0]["lease"], held["id"]);
    let renew = format!("{location}/renew");
    assert_eq!(server.post(&renew, &json!({})).expect(202)["status"], "waiting");
    assert_eq!(server.get(&location).expect(202)["status"], "waiting");
    server.delete(&format!("/api/locks/{}?owner=test:1", held["id"].as_str().unwrap())).expect(200);
    let granted = server.post(&renew, &json!({})).expect(201);
    assert_eq!((&granted["status"], &granted["lease"]["owner"]), (&json!("acquired"), &json!("test:2")));
}

#[test]
fn a_place_in_line_can_be_given_up() {
    let server = Server::start();
    take(&server, &json!({ "names": ["db"] }));
    let answer = server.post("/api/locks", &json!({ "names": ["db"], "wait": true }));
    let location = answer.header("location").unwrap().to_owned();
    let ticket = answer.expect(202)["ticket"].take();
    server.delete(&format!("{location}?owner={}", ticket["owner"].as_str().unwrap())).expect(200);
    assert_eq!(server.get("/api/locks").expect(200)["waiters"], json!([]));
    server.post(&format!("{location}/renew"), &json!({})).error(404, "TICKET_REMOVED");
}

#[test]
fn only_its_owner_takes_a_ticket_out_of_the_line_unless_it_is_forced() {
    let server = Server::start();
    take(&server, &json!({ "names": ["db"], "owner": "test:1" }));
    let answer = server.post("/api/locks", &json!({ "names": ["db"], "owner": "test:2", "wait": true }));
    let location = answer.header("location").unwrap().to_owned();
    answer.expect(202);
    for who in ["", "?owner=test:3", "?token=1"] {
        let error = server.delete(&format!("{location}{who}")).error(409, "NOT_THE_OWNER");
        assert!(error["message"].as_str().unwrap().contains("T2 belongs to test:2"), "{error}");
    }
    assert_eq!(server.get("/api/locks").expect(200)["waiters"].as_array().unwrap().len(), 1);
    server.delete(&format!("{location}?force=true")).expect(200);
    assert_eq!(server.get("/api/locks").expect(200)["waiters"], json!([]));
}

/// Invariant 8.
#[test]
fn a_wait_that_would_never_end_is_refused_with_its_circle() {
    let server = Server::start();
    take(&server, &json!({ "names": ["a"], "owner": "test:1" }));
    take(&server, &json!({ "names": ["b"], "owner": "test:2" }));
    server.post("/api/locks", &json!({ "names": ["b"], "owner": "test:1", "wait": true })).expect(202);
    let error = server
        .post("/api/locks", &json!({ "names": ["a"], "owner": "test:2", "wait": true }))
        .error(409, "DEADLOCK");
    assert_eq!(error["context"]["cycle"].as_array().unwrap().len(), 2);
}

/// Invariant 2.
#[test]
fn an_old_token_renews_and_releases_nothing() {
    let server = Server::start();
    let lease = take(&server, &json!({ "names": ["db"] }));
    let path = format!("/api/locks/{}", lease["id"].as_str().unwrap());
    let old = lease["token"].as_u64().unwrap() + 1;
    server.post(&format!("{path}/renew"), &json!({ "token": old })).error(409, "NOT_CURRENT");
    server.delete(&format!("{path}?token={old}")).error(409, "NOT_CURRENT");
    server.get(&path).expect(200);
}

/// A caller over HTTP has no family that the server knows, so it names the owner or the token.
#[test]
fn only_its_owner_or_its_token_releases_a_lease() {
    let server = Server::start();
    let lease = take(&server, &json!({ "names": ["db"], "owner": "test:1" }));
    let path = format!("/api/locks/{}", lease["id"].as_str().unwrap());
    for stranger in ["", "?owner=test:2"] {
        server.delete(&format!("{path}{stranger}")).error(409, "NOT_THE_OWNER");
    }
    server.post(&format!("{path}/renew"), &json!({ "ttl": "1s" })).error(409, "NOT_THE_OWNER");
    server.post(&format!("{path}/renew"), &json!({})).expect(200);
    server.post(&format!("{path}/renew"), &json!({ "ttl": "1m", "owner": "test:1" })).expect(200);
    server.delete(&format!("{path}?owner=test:1")).expect(200);
    let guard = server.keeper.lock("db").owner("lib:1").try_acquire().unwrap();
    let path = format!("/api/locks/{}", guard.id());
    server.delete(&path).error(409, "NOT_THE_OWNER");
    let ending = server.delete(&format!("{path}?owner=lib:1")).expect(202);
    assert_eq!(ending["status"], "breaking");
}

/// Invariant 3.
#[test]
fn a_living_holder_is_displaced_only_by_force_and_nobody_waits_for_it() {
    let server = Server::with(lockkeeper_server::Settings {
        grace: std::time::Duration::from_millis(10),
        ..settings()
    });
    let guard = server.keeper.lock("db").owner("lib:1").try_acquire().unwrap();
    let id = guard.id();
    let answer = server.delete(&format!("/api/locks/{id}?force=true")).expect(202);
    assert_eq!(answer["status"], "breaking");
    let mut stream = server.listen();
    while server.get(&format!("/api/locks/{id}")).status != 404 {
        stream.event();
    }
}

#[test]
fn a_lease_can_be_tied_to_a_process_of_this_machine() {
    let server = Server::start();
    let child = Started::of(&mut std::process::Command::new("cat"));
    let lease = take(&server, &json!({ "names": ["db"], "pid": child.pid() }));
    assert_eq!((&lease["pid"], &lease["proof"]), (&json!(child.pid()), &json!("process")));
    child.finish().code(0);
    take(&server, &json!({ "names": ["db"] }));
}

#[test]
fn shared_and_counted_names_work_as_on_the_command_line() {
    let server = Server::start();
    take(&server, &json!({ "names": ["docs"], "shared": true }));
    take(&server, &json!({ "resources": [{ "name": "docs", "mode": "shared" }] }));
    server.post("/api/locks", &json!({ "names": ["docs"] })).error(409, "LOCK_HELD");
    take(&server, &json!({ "names": ["build"], "slots": 2 }));
    take(&server, &json!({ "names": ["build"], "slots": 2 }));
    server.post("/api/locks", &json!({ "names": ["build"], "slots": 2 })).error(409, "LOCK_HELD");
}

/// Requirement 204.
#[test]
fn what_cannot_be_is_refused_before_anything_is_touched() {
    let server = Server::start();
    for wish in [
        json!({}),
        json!({ "names": [] }),
        json!({ "names": ["../etc"] }),
        json!({ "names": ["a\u{0}b"] }),
        json!({ "names": ["x".repeat(300)] }),
        json!({ "names": ["db"], "ttl": 0 }),
        json!({ "names": ["db"], "ttl": "-1s" }),
        json!({ "names": ["db"], "ttl": -1 }),
        json!({ "names": ["db"], "ttl": 1e300 }),
        json!({ "names": ["db"], "owner": "" }),
        json!({ "names": ["db"], "owner": "nobody" }),
        json!({ "names": ["db"], "priority": 101 }),
        json!({ "names": ["db"], "slots": 0 }),
        json!({ "names": ["db"], "slots": 2, "shared": true }),
        json!({ "paths": ["src"], "slots": 2 }),
        json!({ "names": ["db"], "reason": "x".repeat(1001) }),
        json!({ "names": ["db"], "pid": 0 }),
        json!({ "names": ["db"], "unknown": 1 }),
        json!({ "names": "db" }),
        json!({ "resources": [{ "name": "a", "path": "b" }] }),
        json!({ "resources": [{ "name": "a", "mode": "both" }] }),
        json!([]),
    ] {
        server.post("/api/locks", &wish).error(400, "BAD_INPUT");
    }
    for wish in
        [json!({ "paths": ["../outside"] }), json!({ "paths": ["/etc/passwd"] }), json!({ "paths": ["[a"] })]
    {
        server.post("/api/locks", &wish).error(400, "BAD_PATTERN");
    }
    assert_eq!(server.get("/api/locks").expect(200)["leases"], json!([]));
}

#[test]
fn long_lists_come_in_pages() {
    let server = Server::start();
    for number in 0..5 {
        take(&server, &json!({ "names": [format!("n{number}")] }));
    }
    let (mut seen, mut address) = (Vec::new(), "/api/locks?limit=2".to_owned());
    loop {
        let page = server.get(&address).expect(200);
        let leases = page["leases"].as_array().unwrap();
        assert!(leases.len() <= 2);
        seen.extend(leases.iter().map(|lease| lease["resources"][0]["name"].clone()));
        match page["next"].as_str() {
            Some(next) => address = format!("/api/locks?limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["n0", "n1", "n2", "n3", "n4"]);
    for bad in ["limit=0", "limit=1001", "limit=x", "after=x"] {
        server.get(&format!("/api/locks?{bad}")).error(400, "BAD_INPUT");
    }
}

#[test]
fn patterns_are_compared_with_a_witness() {
    let server = Server::start();
    let answer =
        server.get("/api/conflicts?pattern=src/**/*.rs&pattern=src/api/**&pattern=docs/*").expect(200);
    let conflicts = answer["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), 1, "{answer}");
    assert_eq!(conflicts[0]["type"], "OVERLAP");
    assert!(conflicts[0]["witness"].is_string());
    server.get("/api/conflicts?pattern=src").error(400, "BAD_INPUT");
    server.get("/api/conflicts?pattern=src&pattern=[x").error(400, "BAD_PATTERN");
}
