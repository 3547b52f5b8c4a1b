//! Gemini `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use super::connection::Answer;
use super::conversation::{Item, Reply, strings};

/// The conversation in a request.
pub(super) fn read(body: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    for content in body["contents"].as_array().into_iter().flatten() {
        for part in content["parts"].as_array().into_iter().flatten() {
            if part["functionCall"].is_object() {
                items.push(Item::Called);
            } else if part["functionResponse"].is_object() {
                items.push(Item::Result(strings(&part["functionResponse"]["response"])));
            } else if content["role"] == "user" && part["text"].is_string() {
                items.push(Item::User(strings(&part["text"])));
            }
        }
    }
    items
}

/// The answer, as a stream if the path asks for one.
pub(super) fn write(path: &str, reply: &Reply) -> Answer {
    let mut parts: Vec<Value> = reply
        .calls()
        .iter()
        .map(|call| json!({ "functionCall": { "name": call.tool, "args": call.input } }))
        .collect();
    if parts.is_empty() {
        parts.push(json!({ "text": reply.text() }));
    }
    let content = json!({ "role": "model", "parts": parts });
    let usage = json!({ "promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2 });
    let answer = json!({ "candidates": [{ "content": content, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": usage });
    if path.contains(":streamGenerateContent") {
        Answer::events([answer.to_string()])
    } else {
        Answer::Json(answer)
    }
}
