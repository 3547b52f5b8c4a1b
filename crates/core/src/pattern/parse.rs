//! Parser: turns the text of a pattern into a tree.

use super::class::class;
use super::error::PatternError;
use super::set::CharSet;
use super::{MAX_DEPTH, MAX_LENGTH};

/// One element of a pattern and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) column: usize,
    pub(crate) kind: Kind,
}

/// What one element of a pattern is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A character that stands for itself.
    Char(char),
    /// The separator of components.
    Slash,
    /// `?`: one character of a component.
    Any,
    /// `[…]`: one character of the set, with the class as written.
    Set { set: CharSet, text: String },
    /// `*`: any characters within a component.
    Star,
    /// `**`: folders where it is a whole component, `*` elsewhere; `certain` when no brace can change which.
    Stars { certain: bool },
    /// `{…}`: one of several sequences.
    Alternatives(Vec<Vec<Node>>),
}

/// Reads a text, refusing what is out of bounds or malformed.
pub(crate) fn parse(text: &str) -> Result<Vec<Node>, PatternError> {
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    if text.len() > MAX_LENGTH {
        return Err(PatternError::TooLong { length: text.len(), limit: MAX_LENGTH });
    }
    let characters: Vec<char> = text.chars().collect();
    if let Some(position) = characters.iter().position(|character| *character == '\0') {
        return Err(PatternError::Nul { column: position + 1 });
    }
    Parser { characters: &characters, position: 0 }.sequence(0)
}

struct Parser<'a> {
    characters: &'a [char],
    position: usize,
}

impl Parser<'_> {
    /// Reads up to the end, or inside braces up to the `,` or `}` that ends the alternative.
    fn sequence(&mut self, depth: usize) -> Result<Vec<Node>, PatternError> {
        let mut nodes = Vec::new();
        while let Some(&character) = self.characters.get(self.position) {
            if depth > 0 && matches!(character, ',' | '}') {
                break;
            }
            let column = self.position + 1;
            self.position += 1;
            let kind = match character {
                '\\' => self.escaped(column)?,
                '/' => Kind::Slash,
                '?' => Kind::Any,
                '*' => self.stars(),
                '[' => {
                    let (set, end) = class(self.characters, self.position)?;
                    let text = self.characters[self.position - 1..end].iter().collect();
                    self.position = end;
                    Kind::Set { set, text }
                }
                '{' if depth == MAX_DEPTH => {
                    return Err(PatternError::TooDeep { column, limit: MAX_DEPTH });
                }
                '{' => self.alternatives(depth + 1, column)?,
                other => Kind::Char(other),
            };
            nodes.push(Node { column, kind });
        }
        Ok(nodes)
    }

    fn escaped(&mut self, column: usize) -> Result<Kind, PatternError> {
        let &character =
            self.characters.get(self.position).ok_or(PatternError::TrailingBackslash { column })?;
        self.position += 1;
        Ok(if character == '/' { Kind::Slash } else { Kind::Char(character) })
    }

    fn stars(&mut self) -> Kind {
        let first = self.position;
        while self.characters.get(self.position) == Some(&'*') {
            self.position += 1;
        }
        if self.position == first { Kind::Star } else { Kind::Stars { certain: false } }
    }

    fn alternatives(&mut self, depth: usize, column: usize) -> Result<Kind, PatternError> {
        let mut alternatives = Vec::new();
        loop {
            alternatives.push(self.sequence(depth)?);
            let end = self.characters.get(self.position);
            self.position += 1;
            match end {
                Some(',') => {}
                Some(_) => return Ok(Kind::Alternatives(alternatives)),
                None => return Err(PatternError::UnclosedBrace { column }),
            }
        }
    }
}
