//! The fields of a sprint lock file, before they are checked.

use std::collections::HashSet;

use super::record::LOCK_VERSION;
use crate::safe_open::MAX_BYTES;
use crate::yaml::{self, Node, Source, Value};

/// The most characters of a version that are shown.
const MAX_SHOWN: usize = 40;

/// One mapping. Every scalar is taken as its text, so that `007` stays `007`.
pub(super) struct Fields(Vec<(Node, Node)>);

impl Fields {
    /// Reads the one mapping of a file. Refuses a key that is there twice, at any depth.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(format!("{} bytes are no record", bytes.len()));
        }
        let text = decoded(bytes)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        // The parser takes NUL for the end of the text.
        if let Some(character) =
            text.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}'))
        {
            return Err(format!("it contains {character:?}"));
        }
        let root = yaml::compose(&Source::new(text.to_owned()));
        let root = root.map_err(|error| format!("{} at {}", error.message, error.place))?;
        if let Some(key) = root.as_ref().and_then(duplicate_key) {
            return Err(format!("the key `{}` is there twice", key.escape_debug()));
        }
        match root.map(|root| root.value) {
            Some(Value::Map(entries)) => Ok(Self(entries)),
            Some(Value::Scalar { .. } | Value::List(_)) | None => Err("it is not a mapping".to_owned()),
        }
    }

    /// Returns the text of a field; `None` when it is missing or null.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, String> {
        match self.get(name) {
            Some(node) => match node.text() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(format!("{name} is {}, not a text", node.kind())),
            },
            None => Ok(None),
        }
    }

    /// Returns the version of the format, if this program does not know it.
    pub(super) fn unknown_version(&self) -> Option<String> {
        let version = self.get("lock_version")?;
        match version.text() {
            Some(text) if text == LOCK_VERSION.to_string() => None,
            Some(text) => Some(text.chars().take(MAX_SHOWN).collect()),
            None => Some("that is no number".to_owned()),
        }
    }

    /// Returns a field that is not null.
    fn get(&self, name: &str) -> Option<&Node> {
        let entry = self.0.iter().find(|(key, _)| key.text() == Some(name));
        entry.map(|(_, value)| value).filter(|value| !value.is_null())
    }
}

/// Decodes a file: UTF-8, or UTF-16 if it begins with the byte-order mark of UTF-16, as Windows programs write it.
fn decoded(bytes: &[u8]) -> Result<String, String> {
    let unit = match bytes {
        [0xff, 0xfe, ..] => u16::from_le_bytes,
        [0xfe, 0xff, ..] => u16::from_be_bytes,
        _ => {
            let text = str::from_utf8(bytes).map_err(|error| format!("it is not text in UTF-8: {error}"));
            return text.map(str::to_owned);
        }
    };
    let units = bytes.chunks(2).map(|pair| pair.try_into().ok().map(unit)).collect::<Option<Vec<u16>>>();
    let text = units.and_then(|units| String::from_utf16(&units).ok());
    text.ok_or_else(|| "it is not text in UTF-16".to_owned())
}

/// Returns a key that a mapping has twice, in this node or below it.
fn duplicate_key(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { .. } => None,
        Value::List(items) => items.iter().find_map(duplicate_key),
        Value::Map(entries) => {
            let mut seen = HashSet::new();
            let repeated = entries.iter().filter_map(|(key, _)| key.text()).find(|text| !seen.insert(*text));
            repeated.or_else(|| {
                entries.iter().find_map(|(key, value)| duplicate_key(key).or_else(|| duplicate_key(value)))
            })
        }
    }
}
