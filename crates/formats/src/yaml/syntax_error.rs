//! Syntax errors: turns an error of the parser into a message with a hint.

use saphyr_parser::ScanError;

use super::YamlError;
use super::place::{Place, Source};

/// Explains an error of the parser, with the usual reason for it.
pub(super) fn explain(error: &ScanError, source: &Source) -> YamlError {
    let marker = error.marker();
    let line = source.line(marker.line()).unwrap_or_default();
    let place = Place { line: marker.line().max(1), column: marker.col() + 1, width: 1 };
    if let Some((place, pattern)) = unquoted_star(line, place) {
        return YamlError::new(
            "YAML_ALIAS",
            place,
            format!("`{pattern}` is read as an alias, not as a pattern"),
        )
        .with_hint(format!(
            "a `*` that comes first means an alias in YAML: quote the pattern, \"{pattern}\""
        ));
    }
    let explained = YamlError::new("YAML", place, format!("this is not YAML: {}", error.info()));
    // In the middle of a list or mapping in brackets, the first character of the line is not the problem.
    let in_brackets = error.info().contains("expected ','");
    match hint(line, place).filter(|_| !in_brackets) {
        Some(hint) => explained.with_hint(hint),
        None => explained,
    }
}

/// Returns an alias without an anchor, at the place or just before it.
fn unquoted_star(line: &str, near: Place) -> Option<(Place, String)> {
    let characters: Vec<char> = line.chars().collect();
    let begins_value = |at: usize| {
        characters[at] == '*' && (at == 0 || matches!(characters[at - 1], ' ' | ',' | '[' | '\t'))
    };
    let last = near.column.min(characters.len());
    let start = (0..last).rev().find(|at| begins_value(*at))?;
    let ends = |c: &char| c.is_whitespace() || matches!(c, ',' | ']' | '}');
    let text: String = characters[start..].iter().take_while(|c| !ends(c)).collect();
    let place = Place { line: near.line, column: start + 1, width: text.chars().count() };
    Some((place, text))
}

fn hint(line: &str, place: Place) -> Option<String> {
    let before: String = line.chars().take(place.column).collect();
    if line.trim_start_matches(' ').starts_with('\t') || before.starts_with('\t') {
        return Some("indent with spaces: YAML has no tabs there".to_owned());
    }
    let value = line.trim_start().trim_start_matches("- ");
    let value = value.split_once(": ").map_or(value, |(_, value)| value).trim_start();
    match value.chars().next() {
        Some(mark @ ('{' | '[' | '!' | '&' | '@' | '`' | '%' | '|' | '>')) => {
            Some(format!("a text that begins with `{mark}` needs quotes"))
        }
        _ if value.contains(": ") => Some("a text with `: ` in it needs quotes".to_owned()),
        _ => None,
    }
}
