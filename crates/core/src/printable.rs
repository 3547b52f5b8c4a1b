//! Printable text: escapes characters that steer a terminal, break a line, or reverse the direction of text.
//!
//! Names, reasons and titles come from other users and programs. A character that reverses the direction of text makes one name
//! look like another one. Such characters are shown as `\u{202e}`. JSON has an escape of its own, from which a program gets the
//! character itself.

use std::borrow::Cow;

/// Text for one line: line breaks and tabs are escaped, too.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_disruptive)
}

/// Text of several lines: line breaks and tabs stay.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| is_disruptive(character) && !matches!(character, '\n' | '\r' | '\t'))
}

/// JSON text, with such characters written as `\u202e`, which means the same to a program.
pub fn printable_json(text: &str) -> Cow<'_, str> {
    // JSON has escaped ASCII control characters already. The others occur only within strings, and need no more than four digits.
    let is_escaped = |character: char| character > '~' && is_disruptive(character);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            shown.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Whether a character is a control character, a line separator, or changes the direction of text.
pub fn is_disruptive(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_or_reverse_text_are_escaped() {
        assert_eq!(printable("a\x1b[2J\u{202e}b\u{9b}\n"), "a\\u{1b}[2J\\u{202e}b\\u{9b}\\n");
        assert_eq!(printable_lines("a\tb\r\n\u{2067}\u{200f}"), "a\tb\r\n\\u{2067}\\u{200f}");
    }

    #[test]
    fn json_is_escaped_in_its_own_way() {
        assert_eq!(
            printable_json("{\"a\":\"\u{202e}\u{9b}\u{7f}é\"}\n"),
            "{\"a\":\"\\u202e\\u009b\\u007fé\"}\n"
        );
        assert_eq!(printable_json("{\"数\":\"\\n\"}"), "{\"数\":\"\\n\"}");
    }

    #[test]
    fn all_other_text_stays() {
        for text in ["", "db", "数据库 – ‘x’", "שלום", "👩\u{200d}👧", "a\\b"] {
            assert_eq!(printable(text), text);
        }
    }
}
