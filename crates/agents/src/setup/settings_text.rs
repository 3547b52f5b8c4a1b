//! Edits of a harness's settings as text: adds and removes our entries, and leaves comments, order and blanks as they are.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use serde::de::IgnoredAny;
use serde_json::Value;
use thiserror::Error;

use super::command_line::is_ours;
use super::entries::{entry, events, has_version, reads_comments};
use crate::harness::Harness;

/// Why the text of a file is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// The harness could not read it either.
    #[error("it does not parse: {0}")]
    NotParsed(String),
    /// A comment, in settings that must not have one.
    #[error("it has a comment, so {0} ignores the whole file: {1}")]
    Comment(&'static str, String),
    /// A value that has another type than the harness reads.
    #[error("{0} is not {1}")]
    WrongType(String, &'static str),
    /// An MCP server of somebody else has our name.
    #[error("it has another MCP server that is called lockkeeper")]
    OtherServer,
}

/// Parses settings as the harness does. An empty file is an empty object.
pub fn parse(harness: Harness, text: &str) -> Result<CstRootNode, TextError> {
    let with_comments = ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: false,
        allow_trailing_commas: harness == Harness::OpenCode,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let root =
        CstRootNode::parse(text, &with_comments).map_err(|error| TextError::NotParsed(error.to_string()))?;
    if !reads_comments(harness) && root.value().is_some() {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| {
            match has_comment(&root.clone().into()) {
                true => TextError::Comment(harness.kind(), error.to_string()),
                false => TextError::NotParsed(error.to_string()),
            }
        })?;
    }
    match root.value() {
        Some(value) if value.as_object().is_none() => {
            Err(TextError::WrongType("the file".to_owned(), "a JSON object"))
        }
        Some(_) | None => Ok(root),
    }
}

/// The settings as a value. An empty file has none.
pub fn value(harness: Harness, text: &str) -> Result<Value, TextError> {
    Ok(parse(harness, text)?.to_serde_value().unwrap_or_else(|| Value::Object(serde_json::Map::new())))
}

/// Adds our entries. Entries that are there and current stay; others of ours are replaced.
pub fn with_entries(harness: Harness, text: &str, command: &str) -> Result<String, TextError> {
    let root = parse(harness, text)?;
    let settings = root.object_value_or_set();
    let hooks = match settings.get("hooks") {
        None => {
            if has_version(harness) && settings.get("version").is_none() {
                settings.append("version", CstInputValue::from(1_u64));
            }
            settings.object_value_or_set("hooks")
        }
        Some(hooks) => hooks.object_value().ok_or_else(|| not_an_object("hooks"))?,
    };
    let wanted: Vec<(&str, Value)> =
        events(harness).iter().map(|(event, tools)| (*event, entry(harness, *tools, command))).collect();
    for property in hooks.properties() {
        let name = property.decoded_name().unwrap_or_default();
        let Some(list) = property.array_value() else { continue };
        let current = wanted.iter().find(|(event, _)| *event == name).map(|(_, entry)| entry);
        if current.is_some_and(|current| ours_in(&list) == [Some(current.clone())]) {
            continue;
        }
        if remove_from(&list) && list.elements().is_empty() && current.is_none() {
            property.remove();
        }
    }
    for (event, entry) in wanted {
        let list = hooks.array_value_or_create(event).ok_or_else(|| not_a_list(event))?;
        if ours_in(&list).is_empty() {
            list.append(input_value(&entry));
        }
    }
    Ok(root.to_string())
}

/// Removes our entries, and what is empty then. `None`: there are none.
pub fn without_entries(harness: Harness, text: &str) -> Result<Option<String>, TextError> {
    let root = parse(harness, text)?;
    let Some(hooks) = root.object_value().and_then(|settings| settings.object_value("hooks")) else {
        return Ok(None);
    };
    let mut found = false;
    for property in hooks.properties() {
        let Some(list) = property.array_value() else { continue };
        if remove_from(&list) {
            found = true;
            if list.elements().is_empty() {
                property.remove();
            }
        }
    }
    if !found {
        return Ok(None);
    }
    if hooks.properties().is_empty() {
        root.object_value()
            .and_then(|settings| settings.get("hooks"))
            .into_iter()
            .for_each(|hooks| hooks.remove());
    }
    Ok(Some(root.to_string()))
}

/// Our command lines, each with its event.
pub fn commands(settings: &Value) -> Vec<(String, String)> {
    let events = settings.get("hooks").and_then(Value::as_object).into_iter().flatten();
    let mut found = Vec::new();
    for (event, list) in events {
        let entries = list.as_array().into_iter().flatten();
        let hooks = entries.flat_map(|entry| match entry.get("hooks").and_then(Value::as_array) {
            Some(hooks) => hooks.iter().collect::<Vec<_>>(),
            None => vec![entry],
        });
        let lines = hooks.filter_map(|hook| hook.get("command").and_then(Value::as_str));
        found.extend(lines.filter(|line| is_ours(line)).map(|line| (event.clone(), line.to_owned())));
    }
    found
}

fn has_comment(node: &CstNode) -> bool {
    node.is_comment() || node.children().iter().any(has_comment)
}

pub(super) fn not_an_object(name: &str) -> TextError {
    TextError::WrongType(format!("`{name}`"), "an object")
}

fn not_a_list(event: &str) -> TextError {
    TextError::WrongType(format!("`hooks.{event}`"), "a list")
}

/// The entries of a list that have a command of ours. `None` for an entry that cannot be read as a value.
fn ours_in(list: &CstArray) -> Vec<Option<Value>> {
    let elements = list.elements().into_iter();
    let ours = elements.filter(|element| {
        element.as_object().is_some_and(|entry| is_hook(&entry) || hooks_of(&entry).iter().any(is_hook))
    });
    ours.map(|element| element.to_serde_value()).collect()
}

fn hooks_of(group: &CstObject) -> Vec<CstObject> {
    let hooks = group.array_value("hooks").map(|hooks| hooks.elements()).unwrap_or_default();
    hooks.iter().filter_map(CstNode::as_object).collect()
}

fn is_hook(hook: &CstObject) -> bool {
    let command = hook.get("command").and_then(|command| command.value());
    let command = command.and_then(|value| value.as_string_lit()).and_then(|text| text.decoded_value().ok());
    command.is_some_and(|command| is_ours(&command))
}

/// Removes our hooks from the list of an event, and groups that have no other hook. Says whether there were any.
fn remove_from(list: &CstArray) -> bool {
    let mut found = false;
    for element in list.elements() {
        let Some(entry) = element.as_object() else { continue };
        if is_hook(&entry) {
            element.remove();
            found = true;
            continue;
        }
        let ours: Vec<CstObject> = hooks_of(&entry).into_iter().filter(is_hook).collect();
        if ours.is_empty() {
            continue;
        }
        found = true;
        if ours.len() == entry.array_value("hooks").map_or(0, |hooks| hooks.elements().len()) {
            element.remove();
        } else {
            ours.into_iter().for_each(|hook| hook.remove());
        }
    }
    found
}

/// A value as the syntax tree takes it.
pub(super) fn input_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(is) => CstInputValue::Bool(*is),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input_value).collect()),
        Value::Object(entries) => CstInputValue::Object(
            entries.iter().map(|(name, value)| (name.clone(), input_value(value))).collect(),
        ),
    }
}

#[cfg(test)]
mod tests;
