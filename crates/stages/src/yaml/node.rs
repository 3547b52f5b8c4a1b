//! A node of the tree, and the values that its text can stand for.

use crate::place::Place;

/// A scalar, a list or a mapping, and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) place: Place,
    /// How many nodes it is made of, itself included.
    pub(crate) size: usize,
    /// How many levels it has, itself included.
    pub(crate) depth: usize,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A text; a plain one has no quotes, and may stand for a number, a truth value or nothing.
    Scalar { text: String, plain: bool },
    /// A list.
    List(Vec<Node>),
    /// Keys with their values, in the order of the file.
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// What it is, as a person calls it.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { .. } => "a value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.plain().is_some_and(|text| matches!(text, "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar that is not null.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } if !self.is_null() => Some(text),
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// A truth value, in the spellings of YAML 1.1 too; quotes do not matter.
    pub(crate) fn truth(&self) -> Option<bool> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn count(&self) -> Option<u64> {
        let text = self.text()?.replace('_', "");
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    }

    /// The value in one short line, for listing what is not understood.
    pub(crate) fn summary(&self) -> String {
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
