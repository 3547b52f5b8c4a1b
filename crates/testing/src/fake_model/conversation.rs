//! A conversation in the words that all four protocols share.

use serde_json::Value;

use super::{Call, Script};

/// One entry of a conversation, oldest first.
#[derive(Debug, PartialEq)]
pub(super) enum Item {
    /// Text from the user, or from the agent in the user's name.
    User(String),
    /// The model called a tool.
    Called,
    /// What the tool returned.
    Result(String),
}

/// What the model does next.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Calls(Vec<Call>),
    Say(String),
}

impl Reply {
    pub(super) fn calls(&self) -> &[Call] {
        match self {
            Self::Calls(calls) => calls,
            Self::Say(_) => &[],
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Calls(_) => "",
            Self::Say(text) => text,
        }
    }
}

/// Whether the model may call tools. Codex offers them within the input to some models.
pub(super) fn offers_tools(body: &Value) -> bool {
    let some = |tools: &Value| tools.as_array().is_some_and(|tools| !tools.is_empty());
    let mut input = body["input"].as_array().into_iter().flatten();
    some(&body["tools"]) || input.any(|entry| some(&entry["tools"]))
}

/// The newest script of a conversation, and how many calls the model has made since.
pub(super) fn script(items: &[Item]) -> Option<(Script, usize)> {
    let scripts = items.iter().enumerate().rev();
    let (place, script) = scripts.filter_map(|(place, item)| Some((place, item.script()?))).next()?;
    let calls = items[place..].iter().filter(|item| matches!(item, Item::Called)).count();
    Some((script, calls))
}

/// The results of tools in a conversation.
pub(super) fn results(items: &[Item]) -> Vec<String> {
    let result = |item: &Item| match item {
        Item::Result(text) => Some(text.clone()),
        Item::User(_) | Item::Called => None,
    };
    items.iter().filter_map(result).collect()
}

impl Item {
    fn script(&self) -> Option<Script> {
        match self {
            Self::User(text) => Script::find(text),
            Self::Called | Self::Result(_) => None,
        }
    }
}

/// All strings in a JSON value, one per line. Results of tools are texts, lists of texts or objects.
pub(super) fn strings(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(strings).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => fields.values().map(strings).collect::<Vec<_>>().join("\n"),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
