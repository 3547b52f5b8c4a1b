//! The fake model, asked directly in each protocol.

use serde_json::json;

use super::{Call, FakeModel, Script};
use crate::http::Http;

fn script() -> Script {
    let inner = Script::new().call(Call::new("Write", json!({ "n": 2 }))).prompt();
    Script::new()
        .together([Call::new("Task", json!({ "prompt": inner })), Call::new("Read", json!({}))])
        .gate("middle")
        .call(Call::new("apply_patch", json!("*** Begin Patch")))
        .say("bye")
}

#[test]
fn a_script_is_found_in_a_prompt_with_text_around_it() {
    let prompt = format!("Do this.\n{}\nThank you.", script().prompt());
    assert_eq!(Script::find(&prompt), Some(script()));
}

#[test]
fn messages_follow_the_script_and_record_what_the_tools_returned() {
    let model = FakeModel::start();
    let tools = json!([{ "name": "Read" }]);
    let prompt = json!({ "role": "user", "content": script().prompt() });
    let body = json!({ "messages": [prompt], "tools": tools });
    let first = model.post("/v1/messages", &body).expect(200);
    assert_eq!(first["stop_reason"], "tool_use");
    assert_eq!(first["content"][1]["name"], "Read");

    let called = json!({ "role": "assistant", "content": first["content"] });
    let result = json!({ "type": "tool_result", "content": [{ "type": "text", "text": "denied: held" }] });
    let results = json!({ "role": "user", "content": [result, result] });
    let body = json!({ "messages": [prompt, called, results], "tools": tools, "stream": true });
    model.open("middle");
    let second = model.post("/v1/messages", &body).text();
    assert!(second.contains("event: content_block_start"), "{second}");
    assert!(second.contains("apply_patch"), "{second}");
    assert!(model.was_told("denied: held"), "{:?}", model.results());
}

#[test]
fn a_conversation_waits_at_a_gate_until_it_is_open() {
    let model = FakeModel::start();
    let prompt = Script::new().gate("first").say("bye").prompt();
    let body = json!({ "messages": [{ "role": "user", "content": prompt }], "tools": [{}] });
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| model.post("/v1/chat/completions", &body).expect(200));
        model.until_at("first");
        model.open("first");
        assert_eq!(asked.join().unwrap()["choices"][0]["message"]["content"], "bye");
    });
}

#[test]
fn responses_call_functions_with_objects_and_custom_tools_with_text() {
    let model = FakeModel::start();
    let calls = [("shell", json!({ "a": 1 })), ("apply_patch", json!("text")), ("agents/spawn", json!({}))];
    let prompt = Script::new().together(calls.map(|(tool, input)| Call::new(tool, input))).prompt();
    let input =
        json!([{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": prompt }] }]);
    let body = json!({ "input": input, "tools": [{}] });
    let output = model.post("/v1/responses", &body).expect(200)["output"].take();
    assert_eq!(output[0]["type"], "function_call");
    assert_eq!(output[1]["type"], "custom_tool_call");
    assert_eq!(output[1]["input"], "text");
    assert_eq!((&output[2]["namespace"], &output[2]["name"]), (&json!("agents"), &json!("spawn")));
}

#[test]
fn gemini_gets_function_calls() {
    let model = FakeModel::start();
    let prompt = Script::new().call(Call::new("write_file", json!({ "a": 1 }))).prompt();
    let contents = json!([{ "role": "user", "parts": [{ "text": prompt }] }]);
    let body = json!({ "contents": contents, "tools": [{}] });
    let answer = model.post("/v1beta/models/m:generateContent", &body).expect(200);
    assert_eq!(answer["candidates"][0]["content"]["parts"][0]["functionCall"]["name"], "write_file");
}
