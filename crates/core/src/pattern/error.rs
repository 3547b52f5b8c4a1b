//! Pattern errors, and what to write instead.

use thiserror::Error;

/// Says why a text was refused as a pattern; columns count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// The text is empty.
    #[error("a pattern is empty")]
    Empty,
    /// The text is longer than [`MAX_LENGTH`](super::MAX_LENGTH).
    #[error("a pattern of {length} bytes is longer than {limit}")]
    TooLong {
        /// Bytes of the text.
        length: usize,
        /// The most a pattern may have.
        limit: usize,
    },
    /// Braces are nested deeper than [`MAX_DEPTH`](super::MAX_DEPTH).
    #[error("braces are nested more than {limit} deep at column {column}")]
    TooDeep {
        /// Where the first brace too many opens.
        column: usize,
        /// The most levels a pattern may have.
        limit: usize,
    },
    /// The automaton of the pattern would be too large to compare quickly.
    #[error("pattern `{pattern}` needs more than {limit} transitions")]
    TooComplex {
        /// The pattern.
        pattern: String,
        /// The most transitions an automaton may have.
        limit: usize,
    },
    /// A NUL character, which no path can contain.
    #[error("a pattern has a NUL character at column {column}")]
    Nul {
        /// Where it is.
        column: usize,
    },
    /// A `[` without its `]`.
    #[error("`[` at column {column} is never closed")]
    UnclosedClass {
        /// Where the class opens.
        column: usize,
    },
    /// A `{` without its `}`.
    #[error("`{{` at column {column} is never closed")]
    UnclosedBrace {
        /// Where the brace opens.
        column: usize,
    },
    /// A backslash with nothing after it to escape.
    #[error("the backslash at column {column} escapes nothing")]
    TrailingBackslash {
        /// Where it is.
        column: usize,
    },
    /// A range such as `[z-a]`, which holds no character.
    #[error("range `{start}-{end}` at column {column} runs backwards")]
    ReversedRange {
        /// Where the range starts.
        column: usize,
        /// Its first character as written.
        start: char,
        /// Its last character as written.
        end: char,
    },
    /// A class such as `[[:letters:]]` that POSIX does not name.
    #[error("`[:{name}:]` at column {column} is not a character class")]
    UnknownClass {
        /// Where the name's bracket opens.
        column: usize,
        /// The name as written.
        name: String,
    },
    /// A `..` component, which could leave the repository.
    #[error("`..` at column {column} leaves the folder")]
    ParentFolder {
        /// Where it is.
        column: usize,
    },
    /// A `.` component made by braces; outside them it is normalised away.
    #[error("`.` at column {column} is a whole path component inside braces")]
    CurrentFolder {
        /// Where it is.
        column: usize,
    },
    /// A path that starts at the root of the file system.
    #[error("`/` at column {column} makes an absolute path")]
    Absolute {
        /// Where the leading slash is.
        column: usize,
    },
    /// A well-formed pattern that matches no path, such as `a[/]b`.
    #[error("pattern `{pattern}` matches no path")]
    MatchesNothing {
        /// The pattern.
        pattern: String,
    },
}

impl PatternError {
    /// Returns where in the text the mistake is, if it is at one place.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::TooDeep { column, .. }
            | Self::Nul { column }
            | Self::UnclosedClass { column }
            | Self::UnclosedBrace { column }
            | Self::TrailingBackslash { column }
            | Self::ReversedRange { column, .. }
            | Self::UnknownClass { column, .. }
            | Self::ParentFolder { column }
            | Self::CurrentFolder { column }
            | Self::Absolute { column } => Some(*column),
            Self::Empty | Self::TooLong { .. } | Self::TooComplex { .. } | Self::MatchesNothing { .. } => {
                None
            }
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "write `.` for the whole repository",
            Self::TooLong { .. } => "name a folder above these paths, or split the pattern",
            Self::TooDeep { .. } => "write the alternatives side by side: `{a,b,c}`",
            Self::TooComplex { .. } => "use fewer braces, or several patterns",
            Self::Nul { .. } => "remove the character: no path contains it",
            Self::UnclosedClass { .. } => "close it with `]`, or write `\\[` for the character itself",
            Self::UnclosedBrace { .. } => "close it with `}`, or write `\\{` for the character itself",
            Self::TrailingBackslash { .. } => "write `\\\\` for a backslash, and `/` between folders",
            Self::ReversedRange { .. } => "swap its ends, or write `\\-` for the character itself",
            Self::UnknownClass { .. } => {
                "the classes are alnum, alpha, blank, cntrl, digit, graph, lower, print, punct, space, upper \
                 and xdigit"
            }
            Self::ParentFolder { .. } => "write the path from the root of the repository, without `..`",
            Self::CurrentFolder { .. } => "leave `.` out of the alternatives",
            Self::Absolute { .. } => {
                "write the path from the root of the repository, without the leading `/`"
            }
            Self::MatchesNothing { .. } => {
                "a class never matches `/`, and a path component is never empty, `.` or `..`"
            }
        }
    }
}
