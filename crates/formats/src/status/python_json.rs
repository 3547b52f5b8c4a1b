//! JSON in the layout of Python's `json.dumps`, which the protocol's own programs use.

use std::io::{self, Write};

use lockkeeper_core::printable::is_disruptive;
use serde::Serialize;
use serde_json::ser::Formatter;

/// Formats a value on one line, with a space after each colon and comma. Non-ASCII text is not escaped, except characters that
/// steer a terminal or reverse text.
pub(super) fn to_text(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::with_capacity(128);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Formats a text with its quotes.
pub(crate) fn quoted(text: &str) -> String {
    to_text(&text).unwrap_or_default()
}

/// A formatter whose separators have a space.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        if text.is_ascii() {
            return writer.write_all(text.as_bytes());
        }
        let mut rest = text;
        while let Some(at) = rest.find(|c| ends_a_line(c) || is_disruptive(c)) {
            let (before, found) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let mut characters = found.chars();
            if let Some(character) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(character))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

fn separate<W: ?Sized + Write>(writer: &mut W, first: bool) -> io::Result<()> {
    if first { Ok(()) } else { writer.write_all(b", ") }
}

/// JSON allows these characters in a text, but `str.splitlines()` and other programs would cut the line there.
fn ends_a_line(character: char) -> bool {
    matches!(character, '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_layout_is_that_of_python() {
        let value = json!({ "a": [1, 2.5, null], "b": { "c": "é\"\n" }, "d": {}, "e": [] });
        let text = r#"{"a": [1, 2.5, null], "b": {"c": "é\"\n"}, "d": {}, "e": []}"#;
        assert_eq!(to_text(&value).unwrap(), text);
        assert_eq!(to_text(&"é\u{202e}e").unwrap(), "\"é\\u202ee\"");
    }

    /// Requirement 52.
    #[test]
    fn no_character_of_a_text_ends_the_line() {
        let value = json!("a\u{2028}b\u{85}\r\n\u{2029}");
        let text = to_text(&value).unwrap();
        assert_eq!(text, r#""a\u2028b\u0085\r\n\u2029""#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
