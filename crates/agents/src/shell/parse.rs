//! Recursive-descent parser for bash command lines: one pass, no backtracking over commands.
//!
//! Input comes from strangers, so the depth of nesting is limited and no input makes the parser panic. Time grows with the length, times
//! the depth at most: only `((` is looked at twice.

use super::syntax::{Assignment, Command, Item, Join, Kind, List, Redirect, Script, Word};
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

/// A here-document whose body begins after the next line end.
pub(super) struct Pending {
    delimiter: String,
    quoted: bool,
    strip_tabs: bool,
    body: usize,
}

pub(super) struct Parser<'text> {
    pub(super) text: &'text str,
    pub(super) at: usize,
    pub(super) depth: usize,
    pending: Vec<Pending>,
    bodies: Vec<Word>,
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
            let pipeline = self.pipeline()?;
            let mut item = Item { join, pipeline, background: false };
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

    fn pipeline(&mut self) -> Result<Vec<Command>, SyntaxError> {
        let mut commands = Vec::new();
        loop {
            self.skip_blank_lines()?;
            while self.eat_word("!") || self.eat_word("time") {
                self.skip_blanks();
                let _ = self.eat_word("-p");
                self.skip_blanks();
            }
            commands.push(self.command()?);
            self.skip_blanks();
            let pipe = !self.looking_at("||") && (self.eat("|&") || self.eat("|"));
            if !pipe {
                return Ok(commands);
            }
        }
    }

    fn command(&mut self) -> Result<Command, SyntaxError> {
        let kind = self.deeper(Self::compound)?;
        let Some(kind) = kind else { return self.simple() };
        let mut redirects = Vec::new();
        loop {
            self.skip_blanks();
            let Some(redirect) = self.redirect()? else { return Ok(Command { kind, redirects }) };
            redirects.extend(redirect);
        }
    }

    /// Parses a compound command. `None`: here begins a simple one.
    fn compound(&mut self) -> Result<Option<Kind>, SyntaxError> {
        if self.looking_at("((") && let Some(words) = self.arithmetic_command()? {
            return Ok(Some(Kind::Test(words)));
        }
        if self.eat("(") {
            let list = self.list(&[])?;
            return if self.eat(")") { Ok(Some(Kind::Subshell(list))) } else { Err(SyntaxError::Unclosed) };
        }
        let words = ["{", "if", "while", "until", "for", "select", "case", "function", "[[", "coproc"];
        let Some(word) = self.reserved_word(&words) else { return self.function_without_keyword() };
        self.at += word.len();
        let kind = match word {
            "{" => Kind::Group(self.list_until("}")?),
            "if" => self.branches_of_if()?,
            "while" | "until" => {
                let condition = self.list(&["do"])?;
                Kind::Branches { words: Vec::new(), lists: vec![condition, self.do_group()?], repeats: true }
            }
            "for" | "select" => self.for_loop()?,
            "case" => self.case()?,
            "function" => {
                self.skip_blanks();
                let name = self.name().ok_or(SyntaxError::Unexpected)?;
                self.skip_blanks();
                if self.eat("(") {
                    self.skip_blanks();
                    self.expect(")")?;
                }
                self.function_body(name)?
            }
            "coproc" => {
                self.skip_blanks();
                let item = Item { join: Join::Next, pipeline: vec![self.command()?], background: true };
                Kind::Subshell(vec![item])
            }
            _ => Kind::Test(self.test_words()?),
        };
        Ok(Some(kind))
    }

    fn list_until(&mut self, ending: &'static str) -> Result<List, SyntaxError> {
        let list = self.list(&[ending])?;
        if self.eat_word(ending) { Ok(list) } else { Err(SyntaxError::Unclosed) }
    }

    fn do_group(&mut self) -> Result<List, SyntaxError> {
        self.skip_blank_lines()?;
        if self.eat_word("do") { self.list_until("done") } else { Err(SyntaxError::Unexpected) }
    }

    fn branches_of_if(&mut self) -> Result<Kind, SyntaxError> {
        let mut lists = vec![self.list_until("then")?];
        loop {
            lists.push(self.list(&["elif", "else", "fi"])?);
            if self.eat_word("elif") {
                lists.push(self.list_until("then")?);
            } else if self.eat_word("else") {
                lists.push(self.list_until("fi")?);
                break;
            } else if self.eat_word("fi") {
                break;
            } else {
                return Err(SyntaxError::Unclosed);
            }
        }
        Ok(Kind::Branches { words: Vec::new(), lists, repeats: false })
    }

    fn for_loop(&mut self) -> Result<Kind, SyntaxError> {
        self.skip_blanks();
        if self.looking_at("((") {
            let words = self.arithmetic_command()?.ok_or(SyntaxError::Unexpected)?;
            self.skip_separators()?;
            let body = if self.eat_word("{") { self.list_until("}")? } else { self.do_group()? };
            return Ok(Kind::Branches { words, lists: vec![body], repeats: true });
        }
        let name = self.name().ok_or(SyntaxError::Unexpected)?;
        self.skip_blank_lines()?;
        let mut words = None;
        if self.eat_word("in") {
            let mut found = Vec::new();
            self.skip_blanks();
            while let Some(word) = self.word()? {
                found.push(word);
                self.skip_blanks();
            }
            words = Some(found);
        }
        self.skip_separators()?;
        let body = if self.eat_word("{") { self.list_until("}")? } else { self.do_group()? };
        Ok(Kind::For { name, words, body })
    }

    fn case(&mut self) -> Result<Kind, SyntaxError> {
        self.skip_blanks();
        let mut words = vec![self.word()?.ok_or(SyntaxError::Unexpected)?];
        let mut lists = Vec::new();
        self.skip_blank_lines()?;
        if !self.eat_word("in") {
            return Err(SyntaxError::Unexpected);
        }
        loop {
            self.skip_blank_lines()?;
            if self.eat_word("esac") {
                return Ok(Kind::Branches { words, lists, repeats: false });
            }
            let _ = self.eat("(");
            loop {
                self.skip_blanks();
                words.push(self.word()?.ok_or(SyntaxError::Unexpected)?);
                self.skip_blanks();
                if !self.eat("|") {
                    break;
                }
            }
            self.expect(")")?;
            lists.push(self.list(&["esac"])?);
            let _ = self.eat(";;&") || self.eat(";;") || self.eat(";&");
        }
    }

    fn test_words(&mut self) -> Result<Vec<Word>, SyntaxError> {
        let mut words = Vec::new();
        loop {
            self.skip_blank_lines()?;
            if self.eat_word("]]") {
                return Ok(words);
            }
            // Within a test these compare and group; they neither redirect nor end the word list.
            let operators = ["&&", "||", "|", "(", ")", "<", ">"];
            if operators.into_iter().any(|operator| self.eat(operator)) {
                continue;
            }
            words.push(self.word()?.ok_or(SyntaxError::Unclosed)?);
        }
    }

    fn function_without_keyword(&mut self) -> Result<Option<Kind>, SyntaxError> {
        let start = self.at;
        if let Some(name) = self.name() {
            self.skip_blanks();
            if self.eat("(") {
                self.skip_blanks();
                if self.eat(")") {
                    return self.function_body(name).map(Some);
                }
            }
        }
        self.at = start;
        Ok(None)
    }

    fn function_body(&mut self, name: String) -> Result<Kind, SyntaxError> {
        self.skip_blank_lines()?;
        let body = Box::new(self.command()?);
        Ok(Kind::Function { name, body })
    }

    fn simple(&mut self) -> Result<Command, SyntaxError> {
        let (mut assignments, mut words, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                redirects.extend(redirect);
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
            let Some(close) = rest[end..].bytes().take(200).position(|byte| byte == b']') else { return Ok(None) };
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
                    return Ok(Some(Assignment { name, value: None, append, elements }));
                }
                elements.push(self.word()?.ok_or(SyntaxError::Unclosed)?);
            }
        }
        let value = self.word()?.unwrap_or_default();
        if is_element {
            return Ok(Some(Assignment { name, value: None, append, elements: vec![value] }));
        }
        Ok(Some(Assignment { name, value: Some(value), append, elements: Vec::new() }))
    }

    /// Parses one redirection. `Some(None)`: one that names no file, such as `2>&1`.
    #[expect(clippy::option_option, reason = "no redirection, and one without a file, are different answers")]
    fn redirect(&mut self) -> Result<Option<Option<Redirect>>, SyntaxError> {
        let start = self.at;
        if self.eat("&>>") || self.eat("&>") {
            return Ok(Some(Some(Redirect::Write(self.target()?))));
        }
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += digits;
        if digits == 0 && self.looking_at("{") {
            let rest = self.rest();
            let close = rest.bytes().take(64).position(|byte| byte == b'}').unwrap_or(0);
            let named = close > 1 && rest[1..close].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if named && rest[close + 1..].starts_with(['<', '>']) {
                self.at += close + 1;
            }
        }
        let process = self.looking_at("<(") || self.looking_at(">(");
        if process || !matches!(self.peek(), Some(b'<' | b'>')) {
            self.at = start;
            return Ok(None);
        }
        if self.eat("<<<") {
            return Ok(Some(Some(Redirect::Read(self.target()?))));
        }
        if self.looking_at("<<") {
            return Ok(Some(Some(self.here_document()?)));
        }
        if self.eat(">&") || self.eat("<&") {
            let word = self.target()?;
            // `>&2`, `2>&-` copy or close a descriptor; `>&file` writes a file.
            let descriptor = word
                .plain()
                .is_some_and(|text| text.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit()));
            return Ok(Some((!descriptor).then_some(Redirect::Write(word))));
        }
        if self.eat(">>") || self.eat(">|") || self.eat("<>") || self.eat(">") {
            return Ok(Some(Some(Redirect::Write(self.target()?))));
        }
        self.expect("<")?;
        Ok(Some(Some(Redirect::Read(self.target()?))))
    }

    fn target(&mut self) -> Result<Word, SyntaxError> {
        self.skip_blanks();
        self.word()?.ok_or(SyntaxError::Unexpected)
    }

    fn here_document(&mut self) -> Result<Redirect, SyntaxError> {
        self.expect("<<")?;
        let strip_tabs = self.eat("-");
        self.skip_blanks();
        let start = self.at;
        let word = self.word()?.ok_or(SyntaxError::Unexpected)?;
        let raw = &self.text[start..self.at];
        let quoted = raw.contains(['\'', '"', '\\']);
        let delimiter = if quoted { word.literal().ok_or(SyntaxError::Unexpected)? } else { raw.to_owned() };
        let body = self.bodies.len();
        self.bodies.push(Word::default());
        self.pending.push(Pending { delimiter, quoted, strip_tabs, body });
        Ok(Redirect::HereDocument(body))
    }

    /// Reads the bodies of the here-documents that the line before named.
    fn read_bodies(&mut self) -> Result<(), SyntaxError> {
        for pending in std::mem::take(&mut self.pending) {
            let mut body = String::new();
            while self.at < self.text.len() {
                let rest = self.rest();
                let length = rest.find('\n').unwrap_or(rest.len());
                let line = if pending.strip_tabs { rest[..length].trim_start_matches('\t') } else { &rest[..length] };
                let ends = line == pending.delimiter;
                if !ends {
                    body.push_str(line);
                    body.push('\n');
                }
                self.at = (self.at + length + 1).min(self.text.len());
                if ends {
                    break;
                }
            }
            self.bodies[pending.body] = if pending.quoted {
                Word(vec![super::syntax::Piece::Quoted(body)])
            } else {
                self.here_document_body(&body)?
            };
        }
        Ok(())
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
        !matches!(self.text.as_bytes()[self.at - 1], b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')')
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

    fn skip_separators(&mut self) -> Result<(), SyntaxError> {
        self.skip_blank_lines()?;
        if self.eat(";") {
            self.skip_blank_lines()?;
        }
        Ok(())
    }

    fn expect(&mut self, token: &str) -> Result<(), SyntaxError> {
        if self.eat(token) { Ok(()) } else { Err(SyntaxError::Unexpected) }
    }

    /// The one of `words` that stands here as a whole word.
    fn reserved_word<'word>(&self, words: &[&'word str]) -> Option<&'word str> {
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
    fn name(&mut self) -> Option<String> {
        let rest = self.rest();
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(byte);
        let length = rest.bytes().take_while(fits).count();
        let name = rest[..length].to_owned();
        self.at += length;
        (!name.is_empty()).then_some(name)
    }
}
