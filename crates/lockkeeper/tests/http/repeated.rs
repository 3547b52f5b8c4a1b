//! Repeated requests with one idempotency key.

use lockkeeper_testing::http::Http;
use serde_json::json;

use super::server::Server;

#[test]
fn a_repeated_request_happens_once_and_gets_the_same_answer() {
    let server = Server::start();
    let ask = || {
        let request = server.request("POST", "/api/locks").header("idempotency-key", "key-1");
        request.json(&json!({ "names": ["db"] })).send()
    };
    let (first, second) = (ask(), ask());
    assert_eq!(
        (first.header("idempotency-replayed"), second.header("idempotency-replayed")),
        (None, Some("true"))
    );
    assert_eq!(first.header("location"), second.header("location"));
    assert_eq!(first.header("content-type"), second.header("content-type"));
    assert_eq!(first.expect(201), second.expect(201));
    assert_eq!(server.get("/api/locks").expect(200)["leases"].as_array().unwrap().len(), 1);
}

#[test]
fn a_key_belongs_to_one_body() {
    let server = Server::start();
    let ask = |name: &str| {
        let request = server.request("POST", "/api/locks").header("idempotency-key", "key-1");
        request.json(&json!({ "names": [name] })).send()
    };
    ask("a").expect(201);
    ask("b").error(422, "IDEMPOTENCY_MISMATCH");
    assert_eq!(server.get("/api/locks").expect(200)["leases"].as_array().unwrap().len(), 1);
}

#[test]
fn what_was_refused_is_asked_anew() {
    let server = Server::start();
    let guard = server.keeper.lock("db").try_acquire().unwrap();
    let ask = || {
        let request = server.request("POST", "/api/locks").header("idempotency-key", "key-1");
        request.json(&json!({ "names": ["db"] })).send()
    };
    ask().error(409, "LOCK_HELD");
    drop(guard);
    ask().expect(201);
}

#[test]
fn a_key_that_is_none_is_refused() {
    let server = Server::start();
    for key in [String::new(), "x".repeat(256)] {
        let request = server.request("POST", "/api/locks").header("idempotency-key", key);
        request.json(&json!({ "names": ["db"] })).send().error(400, "BAD_INPUT");
    }
}
