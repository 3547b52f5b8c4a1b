//! OpenAI Chat Completions.

use serde_json::{Value, json};

use super::connection::Answer;
use super::conversation::{Item, Reply, strings};

/// The conversation in a request.
pub(super) fn read(body: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        match message["role"].as_str() {
            Some("user") => items.push(Item::User(strings(&message["content"]))),
            Some("assistant") => {
                let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
                items.extend((0..calls).map(|_| Item::Called));
            }
            Some("tool") => items.push(Item::Result(strings(&message["content"]))),
            _ => {}
        }
    }
    items
}

/// The answer, as a stream if the request asks for one.
pub(super) fn write(body: &Value, reply: &Reply, first_id: u64) -> Answer {
    let calls: Vec<Value> = reply
        .calls()
        .iter()
        .zip(first_id..)
        .enumerate()
        .map(|(index, (call, number))| {
            let function = json!({ "name": call.tool, "arguments": call.input.to_string() });
            json!({ "index": index, "id": format!("call_{number}"), "type": "function", "function": function })
        })
        .collect();
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    let mut message = json!({ "role": "assistant", "content": reply.text() });
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 });
    let frame = |object: &str, choices: Value| {
        json!({ "id": format!("chatcmpl-{first_id}"), "object": object, "created": 1, "model": body["model"],
            "choices": choices, "usage": usage })
    };
    if body["stream"] != json!(true) {
        let choice = json!([{ "index": 0, "message": message, "finish_reason": finish }]);
        return Answer::Json(frame("chat.completion", choice));
    }
    let object = "chat.completion.chunk";
    let first = json!([{ "index": 0, "delta": message, "finish_reason": null }]);
    let last = json!([{ "index": 0, "delta": {}, "finish_reason": finish }]);
    let frames = [frame(object, first), frame(object, last)].map(|frame| frame.to_string());
    Answer::events(frames.into_iter().chain(["[DONE]".to_owned()]))
}
