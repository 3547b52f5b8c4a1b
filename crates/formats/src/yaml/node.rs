//! Nodes of the tree, and the values that their text can stand for.

use super::place::Place;

/// A scalar, a list or a mapping, and its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it holds.
    pub value: Value,
    /// Where it starts.
    pub place: Place,
    /// The number of nodes in it, itself included.
    pub(super) size: usize,
    /// The number of levels in it, itself included.
    pub(super) depth: usize,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text.
    Scalar {
        /// The text, without quotes and with escapes resolved.
        text: String,
        /// Whether it has no quotes, so that it may stand for a number, a boolean or null.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// Keys with their values, in the order of the file.
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// Returns what kind of node it is, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { .. } => "a value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// Says whether it is null: empty, `~` or `null` without quotes.
    pub fn is_null(&self) -> bool {
        self.plain().is_some_and(|text| matches!(text, "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Returns the text of a scalar that is not null.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Returns a boolean, in the spellings of YAML 1.1 too. Quotes do not matter.
    pub fn truth(&self) -> Option<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// Returns a whole number that is not negative.
    pub fn count(&self) -> Option<u64> {
        let text = self.text()?.replace('_', "");
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    }

    /// Returns the value in one short line, to list keys that are not understood.
    pub fn summary(&self) -> String {
        match &self.value {
            Value::Scalar { text, .. } => {
                let mut short: String = text.chars().take(60).collect();
                if short.len() < text.len() {
                    short.push('…');
                }
                short
            }
            Value::List(items) => format!("a list of {}", items.len()),
            Value::Map(entries) => format!("a mapping of {}", entries.len()),
        }
    }

    fn plain(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, plain: true } => Some(text),
            Value::Scalar { plain: false, .. } | Value::List(_) | Value::Map(_) => None,
        }
    }
}
