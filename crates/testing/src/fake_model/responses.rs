//! OpenAI Responses. A tool of a namespace is called `NAMESPACE/NAME` in a script.

use serde_json::{Value, json};

use super::connection::Answer;
use super::conversation::{Item, Reply, strings};

/// The conversation in a request.
pub(super) fn read(body: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    if let Some(text) = body["input"].as_str() {
        items.push(Item::User(text.to_owned()));
    }
    for entry in body["input"].as_array().into_iter().flatten() {
        match entry["type"].as_str() {
            Some("function_call" | "custom_tool_call") => items.push(Item::Called),
            Some("function_call_output" | "custom_tool_call_output") => {
                items.push(Item::Result(strings(&entry["output"])));
            }
            Some("message") | None if entry["role"] == "user" => {
                items.push(Item::User(strings(&entry["content"])));
            }
            _ => {}
        }
    }
    items
}

/// The answer, as a stream if the request asks for one.
pub(super) fn write(body: &Value, reply: &Reply, first_id: u64) -> Answer {
    let mut output = Vec::new();
    if let Reply::Say(text) = reply {
        let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
        output.push(json!({ "type": "message", "id": format!("msg_{first_id}"), "role": "assistant",
            "status": "completed", "content": content }));
    }
    for (call, number) in reply.calls().iter().zip(first_id..) {
        let (namespace, name) = match call.tool.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, call.tool.as_str()),
        };
        let mut item = match call.input.as_str() {
            Some(text) => json!({ "type": "custom_tool_call", "id": format!("ctc_{number}"), "input": text }),
            None => json!({ "type": "function_call", "id": format!("fc_{number}"),
                "arguments": call.input.to_string() }),
        };
        item["call_id"] = json!(format!("call_{number}"));
        item["name"] = json!(name);
        item["status"] = json!("completed");
        if let Some(namespace) = namespace {
            item["namespace"] = json!(namespace);
        }
        output.push(item);
    }
    let usage = json!({ "input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
        "input_tokens_details": { "cached_tokens": 0 }, "output_tokens_details": { "reasoning_tokens": 0 } });
    let response = json!({ "id": format!("resp_{first_id}"), "object": "response", "created_at": 0,
        "model": body["model"], "status": "completed", "output": output, "usage": usage });
    if body["stream"] != json!(true) {
        return Answer::Json(response);
    }
    let mut started = response.clone();
    started["status"] = json!("in_progress");
    started["output"] = json!([]);
    let mut events = vec![json!({ "type": "response.created", "response": started })];
    for (index, item) in output.into_iter().enumerate() {
        events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
        events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    events.push(json!({ "type": "response.completed", "response": response }));
    Answer::named_events(events)
}
