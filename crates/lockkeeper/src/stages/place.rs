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
}

impl Source {
    pub(super) fn new(text: String) -> Self {
        Self { text }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A line, counted from 1, without its end.
    pub fn line(&self, number: usize) -> Option<&str> {
        self.text.lines().nth(number.checked_sub(1)?)
    }
}
