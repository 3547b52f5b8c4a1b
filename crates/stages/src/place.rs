//! Where in a file something stands.

use std::fmt;

/// A stretch of one line. Lines and columns count from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The first character.
    pub column: usize,
    /// How many characters, at least one.
    pub width: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// A value together with where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub place: Place,
}

impl<T> Placed<T> {
    pub(super) fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }
}

/// The text of a file, by lines.
#[derive(Clone, Debug, Default)]
pub struct Source {
    text: String,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl Source {
    pub(super) fn new(text: String) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let starts = std::iter::once(0).chain(ends).filter(|start| *start < text.len()).collect();
        Self { text, starts }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A line, counted from 1, without its end.
    pub fn line(&self, number: usize) -> Option<&str> {
        let start = *self.starts.get(number.checked_sub(1)?)?;
        let end = self.starts.get(number).copied().unwrap_or(self.text.len());
        let line = &self.text[start..end];
        let line = line.strip_suffix('\n').unwrap_or(line);
        Some(line.strip_suffix('\r').unwrap_or(line))
    }
}
