//! Positions in a text: line, column and width.

use std::fmt;

/// A range of characters in one line. Lines and columns count from 1. Columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The first character.
    pub column: usize,
    /// The number of characters, at least one.
    pub width: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// The text of a file, with an index of its lines.
#[derive(Clone, Debug, Default)]
pub struct Source {
    text: String,
    /// The byte offset at which each line starts.
    starts: Vec<usize>,
}

impl Source {
    /// Indexes a text.
    pub fn new(text: String) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let starts = std::iter::once(0).chain(ends).filter(|start| *start < text.len()).collect();
        Self { text, starts }
    }

    /// Returns the whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns a line, counted from 1, without its line break.
    pub fn line(&self, number: usize) -> Option<&str> {
        let start = *self.starts.get(number.checked_sub(1)?)?;
        let end = self.starts.get(number).copied().unwrap_or(self.text.len());
        let line = &self.text[start..end];
        let line = line.strip_suffix('\n').unwrap_or(line);
        Some(line.strip_suffix('\r').unwrap_or(line))
    }
}
