//! Anthropic Messages.

use serde_json::{Value, json};

use super::connection::Answer;
use super::conversation::{Item, Reply, strings};

/// The conversation in a request.
pub(super) fn read(body: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        if let Some(text) = message["content"].as_str() {
            if message["role"] == "user" {
                items.push(Item::User(text.to_owned()));
            }
            continue;
        }
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("text") if message["role"] == "user" => items.push(Item::User(strings(&block["text"]))),
                Some("tool_use") => items.push(Item::Called),
                Some("tool_result") => items.push(Item::Result(strings(&block["content"]))),
                _ => {}
            }
        }
    }
    items
}

/// The answer, as a stream if the request asks for one.
pub(super) fn write(body: &Value, reply: &Reply, first_id: u64) -> Answer {
    let mut blocks = Vec::new();
    if let Reply::Say(text) = reply {
        blocks.push(json!({ "type": "text", "text": text }));
    }
    for (call, number) in reply.calls().iter().zip(first_id..) {
        let id = format!("toolu_{number:024}");
        blocks.push(json!({ "type": "tool_use", "id": id, "name": call.tool, "input": call.input }));
    }
    let stop = if reply.calls().is_empty() { "end_turn" } else { "tool_use" };
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let mut message = json!({ "id": format!("msg_{first_id:024}"), "type": "message", "role": "assistant",
        "model": body["model"], "content": blocks, "stop_reason": stop, "stop_sequence": null, "usage": usage });
    if body["stream"] != json!(true) {
        return Answer::Json(message);
    }
    message["content"] = json!([]);
    message["stop_reason"] = Value::Null;
    let mut events = vec![json!({ "type": "message_start", "message": message })];
    for (index, block) in blocks.into_iter().enumerate() {
        let (start, delta) = if block["type"] == "text" {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": block["text"] }))
        } else {
            let empty = json!({ "type": "tool_use", "id": block["id"], "name": block["name"], "input": {} });
            (empty, json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() }))
        };
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let delta = json!({ "stop_reason": stop, "stop_sequence": null });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": usage }));
    events.push(json!({ "type": "message_stop" }));
    Answer::named_events(events)
}
