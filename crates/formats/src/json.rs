//! JSON without loss: a number keeps its digits, an object its order. For files of other programs that we write back.

use serde::de::{Error as _, IgnoredAny};
use serde_json::{Error, Map, Value};

/// The most nested levels that are read.
const MAX_DEPTH: usize = 128;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number of any size, as it is written.
    Number(String),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        // After this check, the reader only has to find the parts of valid JSON.
        serde_json::from_str::<IgnoredAny>(text)?;
        Reader { rest: text }.value(MAX_DEPTH)
    }

    /// Returns the value of a key; `None` if this is not an object, or does not have it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::List(_) => None,
        }
    }

    /// Sets the value of a key of an object. A new key comes last.
    pub fn set(&mut self, key: &str, value: impl Into<Self>) {
        let Self::Object(fields) = self else { return };
        match fields.iter_mut().rev().find(|(name, _)| name == key) {
            Some((_, known)) => *known = value.into(),
            None => fields.push((key.to_owned(), value.into())),
        }
    }

    /// Removes a key of an object.
    pub fn remove(&mut self, key: &str) {
        if let Self::Object(fields) = self {
            fields.retain(|(name, _)| name != key);
        }
    }

    /// Returns a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// Formats it in the layout of Python's `json.dumps(…, indent=2, ensure_ascii=False)`.
    pub fn to_pretty(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, Some(0), &|part| serde_json::to_string(part).unwrap_or_default());
        text
    }

    /// Formats it on one line, in the layout of Python's `json.dumps`.
    pub fn to_line(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, None, &|part| crate::status::python_text(part));
        text
    }

    fn write(&self, text: &mut String, level: Option<usize>, quoted: &dyn Fn(&str) -> String) {
        let inner = level.map(|level| level + 1);
        let line = |text: &mut String, level: Option<usize>| {
            if let Some(level) = level {
                text.push('\n');
                text.extend(std::iter::repeat_n("  ", level));
            }
        };
        let separate = |text: &mut String, place: usize| match (place, level) {
            (0, _) => {}
            (_, Some(_)) => text.push(','),
            (_, None) => text.push_str(", "),
        };
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits) => text.push_str(digits),
            Self::Text(part) => text.push_str(&quoted(part)),
            Self::List(values) => {
                text.push('[');
                for (place, value) in values.iter().enumerate() {
                    separate(text, place);
                    line(text, inner);
                    value.write(text, inner, quoted);
                }
                line(text, level.filter(|_| !values.is_empty()));
                text.push(']');
            }
            Self::Object(fields) => {
                text.push('{');
                for (place, (key, value)) in fields.iter().enumerate() {
                    separate(text, place);
                    line(text, inner);
                    text.push_str(&quoted(key));
                    text.push_str(": ");
                    value.write(text, inner, quoted);
                }
                line(text, level.filter(|_| !fields.is_empty()));
                text.push('}');
            }
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(number.to_string()),
            Value::String(text) => Self::Text(text),
            Value::Array(values) => Self::List(values.into_iter().map(Self::from).collect()),
            Value::Object(fields) => Self::from(fields),
        }
    }
}

impl From<Map<String, Value>> for Json {
    fn from(fields: Map<String, Value>) -> Self {
        Self::Object(fields.into_iter().map(|(key, value)| (key, Self::from(value))).collect())
    }
}

/// Reads text that is known to be valid JSON.
struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Json, Error> {
        self.skip_space();
        if depth == 0 {
            return Err(Error::custom("it is nested too deep"));
        }
        Ok(match self.rest.as_bytes().first() {
            Some(b'{') => {
                let mut fields = Vec::new();
                while self.next_part('}') {
                    let key = self.text()?;
                    self.skip_space();
                    self.skip(1);
                    fields.push((key, self.value(depth - 1)?));
                }
                Json::Object(fields)
            }
            Some(b'[') => {
                let mut values = Vec::new();
                while self.next_part(']') {
                    values.push(self.value(depth - 1)?);
                }
                Json::List(values)
            }
            Some(b'"') => Json::Text(self.text()?),
            _ => match self.word() {
                "null" => Json::Null,
                "true" => Json::Bool(true),
                "false" => Json::Bool(false),
                digits => Json::Number(digits.to_owned()),
            },
        })
    }

    /// Skips the bracket or comma before the next part; false at the closing bracket, which is skipped, too.
    fn next_part(&mut self, close: char) -> bool {
        self.skip_space();
        if !self.rest.starts_with(close) {
            self.skip(1);
            self.skip_space();
        }
        let is_over = self.rest.starts_with(close);
        if is_over {
            self.skip(1);
        }
        !is_over
    }

    fn text(&mut self) -> Result<String, Error> {
        let mut is_escaped = false;
        let end = self.rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let token = self.skip(end.map_or(self.rest.len(), |end| end + 2));
        serde_json::from_str(token)
    }

    fn word(&mut self) -> &str {
        let is_end =
            |character: char| matches!(character, ',' | '}' | ']') || character.is_ascii_whitespace();
        self.skip(self.rest.find(is_end).unwrap_or(self.rest.len()))
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t']);
    }

    fn skip(&mut self, count: usize) -> &str {
        let (token, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_was_read_is_written_back_unchanged() {
        for text in [
            r#"{"n": 123456789012345678901234567890, "m": -0.10, "e": 1E400, "z": [], "o": {}}"#,
            r#"[1, [2, {"a\"b": "é\\", "c": null}], true, false, ""]"#,
            "7",
        ] {
            assert_eq!(Json::parse(text).unwrap().to_line(), text);
            let pretty = Json::parse(text).unwrap().to_pretty();
            assert_eq!(Json::parse(&pretty).unwrap().to_line(), text, "{pretty}");
        }
        let spaced = "{\n \"a\" : [ 1 ,2 ] ,\"b\":{ } }";
        assert_eq!(Json::parse(spaced).unwrap().to_line(), r#"{"a": [1, 2], "b": {}}"#);
        assert_eq!(
            Json::parse(spaced).unwrap().to_pretty(),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}"
        );
    }

    #[test]
    fn a_key_is_set_in_its_place() {
        let mut value = Json::parse(r#"{"a": 1, "b": 2}"#).unwrap();
        value.set("a", "x");
        value.set("c", "y");
        assert_eq!(value.to_line(), r#"{"a": "x", "b": 2, "c": "y"}"#);
        assert_eq!((value.get("c").and_then(Json::as_text), value.get("d")), (Some("y"), None));
    }

    #[test]
    fn a_text_that_is_no_json_is_refused() {
        for text in ["", "{", "[1,]", "nul", "1 2", "\"\\ud800\"", &"[".repeat(100_000)] {
            assert!(Json::parse(text).is_err(), "{}", &text[..text.len().min(9)]);
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert!(Json::parse(&deep).is_err());
    }
}
