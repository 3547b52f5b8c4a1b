//! Character classes: parses `[…]` by the rules of git's wildmatch.

use super::error::PatternError;
use super::set::CharSet;

/// Reads the class whose `[` stands before `start`; returns its set and the position after its `]`.
///
/// `!` or `^` negates, a `]` that comes first is a member, `\` escapes, `a-z` is a range, and `[:name:]` is a
/// POSIX class of ASCII characters. Whatever is written, a class never matches `/`.
pub(super) fn class(characters: &[char], start: usize) -> Result<(CharSet, usize), PatternError> {
    let unclosed = PatternError::UnclosedClass { column: start };
    let negated = matches!(characters.get(start), Some('!' | '^'));
    let first = start + usize::from(negated);
    let mut ranges = Vec::new();
    // The member that a following `-` would make the start of a range, and its column.
    let mut previous: Option<(char, usize)> = None;
    let mut position = first;
    loop {
        let column = position + 1;
        let Some(&character) = characters.get(position) else { return Err(unclosed) };
        if character == ']' && position > first {
            let set = CharSet::new(ranges);
            return Ok((if negated { set.complement() } else { set }, position + 1));
        }
        if character == '[' && characters.get(position + 1) == Some(&':') {
            let Some(length) = characters[position + 2..].iter().position(|c| *c == ']') else {
                return Err(unclosed);
            };
            let name: String = characters[position + 2..position + 2 + length].iter().collect();
            // Without `:]` the bracket is a member like any other.
            if let Some(name) = name.strip_suffix(':') {
                let members = named(name)
                    .ok_or_else(|| PatternError::UnknownClass { column, name: name.to_owned() })?;
                ranges.extend_from_slice(members);
                (previous, position) = (None, position + 3 + length);
                continue;
            }
        }
        let range_end = characters.get(position + 1).is_some_and(|next| *next != ']');
        if let (Some((low, column)), '-', true) = (previous, character, range_end) {
            let (high, next) = member(characters, position + 1).ok_or(unclosed.clone())?;
            if high < low {
                return Err(PatternError::ReversedRange { column, start: low, end: high });
            }
            ranges.push((low, high));
            (previous, position) = (None, next);
        } else {
            let (single, next) = member(characters, position).ok_or(unclosed.clone())?;
            ranges.push((single, single));
            (previous, position) = (Some((single, column)), next);
        }
    }
}

/// Reads one member, escaped or not; `None` when the text ends first.
fn member(characters: &[char], position: usize) -> Option<(char, usize)> {
    match *characters.get(position)? {
        '\\' => Some((*characters.get(position + 1)?, position + 2)),
        character => Some((character, position + 1)),
    }
}

/// Returns the characters of a POSIX class; ASCII only, as git does.
fn named(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "blank" => &[(' ', ' '), ('\t', '\t')],
        "cntrl" => &[('\u{1}', '\u{1f}'), ('\u{7f}', '\u{7f}')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[(' ', ' '), ('\t', '\r')],
        "upper" => &[('A', 'Z')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return None,
    })
}
