//! Recursive-descent parser for bash command lines: one pass, no backtracking over commands.
//!
//! Input is not trusted, so the depth of nesting is limited and no input makes the parser panic. Time grows with the length, times
//! the depth at most: only `((` is looked at twice.

use super::redirects::Pending;
use super::syntax::{Assignment, Command, Item, Join, Kind, List, Script, Word};
use thiserror::Error;

/// How deep commands, substitutions and quotes may nest.
const MAX_DEPTH: usize = 100;
/// The longest command line, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// Why a command line was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum SyntaxError {
    #[error("the command is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the command nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("the command ends within a quote or an expansion")]
    Unclosed,
    #[error("the command is not understood as bash")]
    Unexpected,
}

/// Parses a command line that was found `depth` levels deep.
pub(super) fn parse_at_depth(text: &str, depth: usize) -> Result<Script, SyntaxError> {
    if text.len() > MAX_BYTES {
        return Err(SyntaxError::TooLong);
    }
    let mut parser = Parser::nested(text, depth);
    let list = parser.list(&[])?;
    if parser.at < text.len() {
        return Err(SyntaxError::Unexpected);
    }
    // Bash ends a here-document at the end of the text as well.
    parser.read_bodies()?;
    Ok(Script { list, bodies: parser.bodies })
}

pub(super) struct Parser<'text> {
    pub(super) text: &'text str,
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) pending: Vec<Pending>,
    pub(super) bodies: Vec<Word>,
}

/// Words that end a list in command position.
const ENDINGS: [&str; 8] = ["then", "else", "elif", "fi", "do", "done", "esac", "}"];

impl<'text> Parser<'text> {
    /// A parser for text that was found `depth` levels deep.
    pub(super) fn nested(text: &'text str, depth: usize) -> Self {
        Self { text, at: 0, depth, pending: Vec::new(), bodies: Vec::new() }
    }

    /// Whether the text names here-documents. Within a here-document or arithmetic they are not followed.
    pub(super) fn has_here_documents(&self) -> bool {
        !self.bodies.is_empty()
    }
}

impl Parser<'_> {
    pub(super) fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn looking_at(&self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let found = self.looking_at(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Runs `inner` one level deeper.
    pub(super) fn deeper<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth >= MAX_DEPTH {
            return Err(SyntaxError::TooDeep);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Parses commands up to one of the endings, a `)` or `;;`, none of which is consumed.
    pub(super) fn list(&mut self, endings: &[&str]) -> Result<List, SyntaxError> {
        self.deeper(|parser| parser.list_here(endings))
    }

    fn list_here(&mut self, endings: &[&str]) -> Result<List, SyntaxError> {
        let mut items: List = Vec::new();
        let mut join = Join::Next;
        loop {
            self.skip_blank_lines()?;
            if self.at_end_of_list() {
                return if join == Join::Next { Ok(items) } else { Err(SyntaxError::Unexpected) };
            }
            if let Some(word) = self.reserved_word(&ENDINGS) {
                let ends = endings.contains(&word) && join == Join::Next;
                return if ends { Ok(items) } else { Err(SyntaxError::Unexpected) };
            }
            let (pipeline, negated) = self.pipeline()?;
            let mut item = Item { join, pipeline, negated, background: false };
            self.skip_blanks();
            join = if self.eat("&&") {
                Join::And
            } else if self.eat("||") {
                Join::Or
            } else {
                if !self.looking_at(";;") && !self.looking_at(";&") && !self.eat(";") {
                    item.background = self.eat("&");
                    if !item.background && !self.at_end_of_list() && self.peek() != Some(b'\n') {
                        return Err(SyntaxError::Unexpected);
                    }
                }
                Join::Next
            };
            items.push(item);
        }
    }

    fn at_end_of_list(&self) -> bool {
        matches!(self.peek(), None | Some(b')')) || self.looking_at(";;") || self.looking_at(";&")
    }

    /// Parses commands with pipes between them, and whether a `!` is before them.
    fn pipeline(&mut self) -> Result<(Vec<Command>, bool), SyntaxError> {
        let (mut commands, mut negated) = (Vec::new(), false);
        loop {
            self.skip_blank_lines()?;
            loop {
                if self.eat_word("!") {
                    negated = !negated;
                } else if !self.eat_word("time") {
                    break;
                }
                self.skip_blanks();
                let _ = self.eat_word("-p");
                self.skip_blanks();
            }
            commands.push(self.command()?);
            self.skip_blanks();
            let pipe = !self.looking_at("||") && (self.eat("|&") || self.eat("|"));
            if !pipe {
                return Ok((commands, negated));
            }
        }
    }

    pub(super) fn command(&mut self) -> Result<Command, SyntaxError> {
        let kind = self.deeper(Self::compound)?;
        let Some(kind) = kind else { return self.simple() };
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            let Some(redirect) = self.redirect()? else { return Ok(Command { kind, redirects }) };
            redirects.push(redirect);
        }
    }

    fn simple(&mut self) -> Result<Command, SyntaxError> {
        let (mut assignments, mut words, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
                continue;
            }
            // `export A=(…)` and the like take arrays as well.
            if let Some(assignment) = self.assignment(words.is_empty())? {
                assignments.push(assignment);
                continue;
            }
            let Some(word) = self.word()? else { break };
            words.push(word);
        }
        if assignments.is_empty() && words.is_empty() && redirects.is_empty() {
            return Err(SyntaxError::Unexpected);
        }
        Ok(Command { kind: Kind::Simple { assignments, words }, redirects })
    }

    /// Parses `NAME=value`, `NAME+=value`, `NAME[…]=value`, `NAME=(…)`. After the program's name only arrays count.
    fn assignment(&mut self, before_program: bool) -> Result<Option<Assignment>, SyntaxError> {
        let rest = self.rest();
        let length = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        if length == 0 || rest.as_bytes()[0].is_ascii_digit() {
            return Ok(None);
        }
        let mut end = length;
        if rest[end..].starts_with('[') {
            let Some(close) = rest[end..].bytes().take(200).position(|byte| byte == b']') else {
                return Ok(None);
            };
            end += close + 1;
        }
        let append = rest[end..].starts_with('+');
        end += usize::from(append);
        if !rest[end..].starts_with('=') || (!before_program && !rest[end..].starts_with("=(")) {
            return Ok(None);
        }
        let is_element = rest[length..].starts_with('[');
        let name = rest[..length].to_owned();
        self.at += end + 1;
        if self.eat("(") {
            let mut elements = Vec::new();
            loop {
                self.skip_blank_lines()?;
                if self.eat(")") {
                    return Ok(Some(Assignment { name, value: None, append, elements, is_array: true }));
                }
                elements.push(self.word()?.ok_or(SyntaxError::Unclosed)?);
            }
        }
        let value = self.word()?.unwrap_or_default();
        let (value, elements) = if is_element { (None, vec![value]) } else { (Some(value), Vec::new()) };
        Ok(Some(Assignment { name, value, append, elements, is_array: false }))
    }

    pub(super) fn skip_blanks(&mut self) {
        loop {
            if self.looking_at("\\\n") {
                self.at += 2;
            } else if matches!(self.peek(), Some(b' ' | b'\t' | b'\r')) {
                self.at += 1;
            } else {
                break;
            }
        }
        if self.peek() == Some(b'#') && (self.at == 0 || !self.word_goes_on()) {
            let length = self.rest().find('\n').unwrap_or(self.rest().len());
            self.at += length;
        }
    }

    /// Whether the byte before here belongs to a word, so that a `#` is no comment.
    fn word_goes_on(&self) -> bool {
        !matches!(
            self.text.as_bytes()[self.at - 1],
            b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')'
        )
    }

    pub(super) fn skip_blank_lines(&mut self) -> Result<(), SyntaxError> {
        loop {
            self.skip_blanks();
            if !self.eat("\n") {
                return Ok(());
            }
            self.read_bodies()?;
        }
    }

    pub(super) fn skip_separators(&mut self) -> Result<(), SyntaxError> {
        self.skip_blank_lines()?;
        if self.eat(";") {
            self.skip_blank_lines()?;
        }
        Ok(())
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<(), SyntaxError> {
        if self.eat(token) { Ok(()) } else { Err(SyntaxError::Unexpected) }
    }

    /// The one of `words` that stands here as a whole word.
    pub(super) fn reserved_word<'word>(&self, words: &[&'word str]) -> Option<&'word str> {
        let rest = self.rest();
        let length = rest.bytes().take_while(|byte| !b" \t\r\n;&|<>()".contains(byte)).count();
        words.iter().copied().find(|word| rest[..length] == **word)
    }

    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.reserved_word(&[word]).is_some();
        if found {
            self.at += word.len();
        }
        found
    }

    /// A name of a variable or function.
    pub(super) fn name(&mut self) -> Option<String> {
        let rest = self.rest();
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(byte);
        let length = rest.bytes().take_while(fits).count();
        let name = rest[..length].to_owned();
        self.at += length;
        (!name.is_empty()).then_some(name)
    }
}
