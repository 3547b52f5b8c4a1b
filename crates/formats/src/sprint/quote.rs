//! YAML quoting: double-quoted text that every YAML reader reads back unchanged.

use std::fmt::Write;

/// Quotes a text. Without quotes some readers would read `2026-02-07T22:30:00Z` as a time, and `007` as a number.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            _ if is_printable(character) => quoted.push(character),
            _ => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(character));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Says whether YAML allows the character in a quoted text. Line breaks are excluded, because YAML folds them.
fn is_printable(character: char) -> bool {
    matches!(character, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}'
        | '\u{10000}'..='\u{10ffff}')
        && !matches!(character, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_so_that_it_stays_text() {
        assert_eq!(quoted("冲刺 007"), "\"冲刺 007\"");
        assert_eq!(quoted("a\"b\\c\nd\te"), r#""a\"b\\c\nd\te""#);
        assert_eq!(quoted("\u{1b}\u{85}\u{2028}\u{feff}"), r#""\U0000001B\U00000085\U00002028\U0000FEFF""#);
    }
}
