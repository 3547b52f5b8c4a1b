//! Answers to requests that need input.

use lockkeeper_testing::http::Http;
use lockkeeper_testing::until;
use serde_json::{Value, json};

use super::server::Server;

fn status(server: &Server) -> Value {
    server.get("/api/requests/RQ-1").expect(200)["request"]["status"].take()
}

#[test]
fn an_answer_is_given_from_a_terminal_too_and_only_to_a_question() {
    let server = Server::start();
    let script = "test \"$LOCKKEEPER_ANSWER\" = 'yes; rm x' || exit 10";
    server.post("/api/requests", &json!({ "id": "RQ-1", "command": ["sh", "-c", script] })).expect(201);
    let answer = |text: &str| server.world().run(["run", "answer", "RQ-1", text]);
    answer("too early").code(75);
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    until("it asks", || status(&server) == "NEEDS_INPUT");
    server.post("/api/requests/RQ-1/answer", &json!({ "answer": "" })).error(400, "BAD_INPUT");
    server.post("/api/requests/RQ-1/answer", &json!({ "answer": "a\u{0}b" })).error(400, "BAD_INPUT");
    server.post("/api/requests/RQ-9/answer", &json!({ "answer": "x" })).error(404, "NO_SUCH_REQUEST");
    assert_eq!(status(&server), "NEEDS_INPUT");
    answer("yes; rm x").code(0);
    answer("twice").code(75);
    server.post("/api/queue/run-next", &json!({})).expect(202);
    until("it is done", || status(&server) == "DONE");
    // The next run is not answered: it asks again.
    server.post("/api/requests/RQ-1/run", &json!({})).expect(202);
    until("it asks again", || status(&server) == "NEEDS_INPUT");
}
