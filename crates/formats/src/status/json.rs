//! JSON as Python's `json.dumps` lays it out, which is what the protocol's own programs write.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

/// Lays a value out on one line, with a blank after each colon and comma; text is not reduced to ASCII.
pub(super) fn to_text(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::with_capacity(128);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// Separators with blanks.
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
        while let Some(at) = rest.find(ends_a_line) {
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

/// JSON lets these stand in a text, but `str.splitlines()` and others would cut the line there.
fn ends_a_line(character: char) -> bool {
    matches!(character, '\u{85}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_look_as_python_writes_them() {
        let value = json!({ "a": [1, 2.5, null], "b": { "c": "é\"\n" }, "d": {}, "e": [] });
        let text = r#"{"a": [1, 2.5, null], "b": {"c": "é\"\n"}, "d": {}, "e": []}"#;
        assert_eq!(to_text(&value).unwrap(), text);
    }

    /// Requirement 52.
    #[test]
    fn nothing_in_a_text_ends_the_line() {
        let value = json!("a\u{2028}b\u{85}\r\n\u{2029}");
        let text = to_text(&value).unwrap();
        assert_eq!(text, r#""a\u2028b\u0085\r\n\u2029""#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
