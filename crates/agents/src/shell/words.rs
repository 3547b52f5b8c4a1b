//! Parser for the words of a command line: quotes, variables, substitutions, arithmetic.

use super::parse::{Parser, SyntaxError, parse_at_depth};
use super::syntax::{Form, List, Piece, Word};

/// Pieces of one word while it is read.
#[derive(Default)]
struct Pieces {
    done: Vec<Piece>,
    plain: String,
}

impl Pieces {
    fn plain(&mut self, text: &str) {
        self.plain.push_str(text);
    }

    fn push(&mut self, piece: Piece) {
        if !self.plain.is_empty() {
            self.done.push(Piece::Plain(std::mem::take(&mut self.plain)));
        }
        self.done.push(piece);
    }

    fn quoted(&mut self, text: &str) {
        if self.plain.is_empty()
            && let Some(Piece::Quoted(last)) = self.done.last_mut()
        {
            last.push_str(text);
        } else {
            self.push(Piece::Quoted(text.to_owned()));
        }
    }

    fn finish(mut self) -> Word {
        if !self.plain.is_empty() {
            self.done.push(Piece::Plain(self.plain));
        }
        Word(self.done)
    }
}

impl Parser<'_> {
    /// Parses one word. `None`: none begins here.
    pub(super) fn word(&mut self) -> Result<Option<Word>, SyntaxError> {
        let start = self.at;
        let mut pieces = Pieces::default();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b')' => break,
                b'<' | b'>' if self.rest()[1..].starts_with('(') => {
                    self.at += 2;
                    let list = self.list_in_parentheses()?;
                    pieces.push(Piece::Process(list));
                }
                b'<' | b'>' => break,
                b'(' => {
                    // `@(a|b)` and the like are wildcards; any other parenthesis ends the word.
                    if !pieces.plain.ends_with(['@', '!', '?', '*', '+']) {
                        break;
                    }
                    let group = self.wildcard_group()?;
                    pieces.plain(&group);
                }
                b'\\' => self.escape(&mut pieces),
                b'\'' => {
                    self.at += 1;
                    let length = self.rest().find('\'').ok_or(SyntaxError::Unclosed)?;
                    pieces.quoted(&self.text[self.at..self.at + length]);
                    self.at += length + 1;
                }
                b'"' => {
                    self.at += 1;
                    self.deeper(|parser| parser.double_quoted(&mut pieces, Some(b'"')))?;
                }
                b'$' => self.deeper(|parser| parser.dollar(&mut pieces, false))?,
                b'`' => self.deeper(|parser| parser.backquote(&mut pieces, false))?,
                _ => self.copy(&mut pieces, false),
            }
        }
        Ok((self.at > start).then(|| pieces.finish()))
    }

    /// Copies the character that stands here.
    fn copy(&mut self, pieces: &mut Pieces, quoted: bool) {
        let Some(character) = self.rest().chars().next() else { return };
        let end = self.at + character.len_utf8();
        let text = &self.text[self.at..end];
        if quoted {
            pieces.quoted(text);
        } else {
            pieces.plain(text);
        }
        self.at = end;
    }

    fn escape(&mut self, pieces: &mut Pieces) {
        self.at += 1;
        if !self.eat("\n") {
            self.copy(pieces, true);
        }
    }

    /// Copies a wildcard group with its parentheses.
    fn wildcard_group(&mut self) -> Result<String, SyntaxError> {
        let mut depth = 0_usize;
        for (offset, byte) in self.rest().bytes().enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b'\n' => return Err(SyntaxError::Unexpected),
                _ => {}
            }
            if depth == 0 {
                let end = self.at + offset + 1;
                let group = self.text[self.at..end].to_owned();
                self.at = end;
                return Ok(group);
            }
        }
        Err(SyntaxError::Unclosed)
    }

    /// Reads what is between double quotes, or to the end of the text.
    fn double_quoted(&mut self, pieces: &mut Pieces, end: Option<u8>) -> Result<(), SyntaxError> {
        pieces.quoted("");
        loop {
            match self.peek() {
                None => return if end.is_none() { Ok(()) } else { Err(SyntaxError::Unclosed) },
                byte if byte == end => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    if self.eat("\n") {
                        continue;
                    }
                    let special = matches!(self.peek(), Some(b'$' | b'`' | b'\\')) || self.peek() == end;
                    if !special {
                        pieces.quoted("\\");
                    }
                    self.copy(pieces, true);
                }
                Some(b'$') => self.deeper(|parser| parser.dollar(pieces, true))?,
                Some(b'`') => self.deeper(|parser| parser.backquote(pieces, true))?,
                Some(_) => {
                    let plain = |byte: &u8| !b"\"\\$`".contains(byte);
                    let length = self.rest().bytes().take_while(plain).count().max(1);
                    pieces.quoted(&self.text[self.at..self.at + length]);
                    self.at += length;
                }
            }
        }
    }

    /// Reads an unquoted here-document: as between double quotes, but a `"` is nothing special.
    pub(super) fn here_document_body(&mut self, body: &str) -> Result<Word, SyntaxError> {
        self.nested_text(body)
    }

    fn nested_text(&mut self, text: &str) -> Result<Word, SyntaxError> {
        self.deeper(|parser| {
            let mut inner = Parser::nested(text, parser.depth);
            let mut pieces = Pieces::default();
            inner.double_quoted(&mut pieces, None)?;
            if inner.has_here_documents() {
                return Err(SyntaxError::Unexpected);
            }
            Ok(pieces.finish())
        })
    }

    fn dollar(&mut self, pieces: &mut Pieces, quoted: bool) -> Result<(), SyntaxError> {
        self.at += 1;
        match self.peek() {
            Some(b'(') => {
                if self.looking_at("((")
                    && let Some(piece) = self.arithmetic()?
                {
                    pieces.push(piece);
                    return Ok(());
                }
                self.at += 1;
                let list = self.list_in_parentheses()?;
                pieces.push(Piece::Substitution { list, quoted });
            }
            Some(b'{') => self.braced(pieces, quoted)?,
            Some(b'\'') if !quoted => {
                self.at += 1;
                match self.ansi_quoted()? {
                    Some(text) => pieces.quoted(&text),
                    None => pieces.push(Piece::Opaque { lists: Vec::new(), changes: Vec::new() }),
                }
            }
            // `$"…"` is translated; the text is the same for programs.
            Some(b'"') if !quoted => {}
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                let length = self.rest().bytes().take_while(fits).count();
                let name = self.rest()[..length].to_owned();
                self.at += length;
                pieces.push(Piece::Variable { name, quoted });
            }
            Some(byte) if byte.is_ascii_digit() || b"@*".contains(&byte) => {
                let name = char::from(byte).to_string();
                self.at += 1;
                pieces.push(Piece::Variable { name, quoted });
            }
            Some(b'#' | b'?' | b'!' | b'$' | b'-') => {
                self.at += 1;
                pieces.push(Piece::Opaque { lists: Vec::new(), changes: Vec::new() });
            }
            _ if quoted => pieces.quoted("$"),
            _ => pieces.plain("$"),
        }
        Ok(())
    }

    fn list_in_parentheses(&mut self) -> Result<List, SyntaxError> {
        let list = self.list(&[])?;
        if self.eat(")") { Ok(list) } else { Err(SyntaxError::Unclosed) }
    }

    /// Reads `${…}`. Forms whose value the reader does not work out are opaque.
    fn braced(&mut self, pieces: &mut Pieces, quoted: bool) -> Result<(), SyntaxError> {
        self.at += 1;
        let name = self.parameter();
        if !name.is_empty() && self.eat("}") {
            pieces.push(Piece::Variable { name, quoted });
            return Ok(());
        }
        let form = if name.is_empty() { None } else { self.form() };
        let mut inner = Pieces::default();
        loop {
            match self.peek().ok_or(SyntaxError::Unclosed)? {
                b'}' => break,
                b'\\' => self.escape(&mut inner),
                b'\'' if !quoted => {
                    self.at += 1;
                    let length = self.rest().find('\'').ok_or(SyntaxError::Unclosed)?;
                    inner.quoted(&self.text[self.at..self.at + length]);
                    self.at += length + 1;
                }
                b'"' => {
                    self.at += 1;
                    self.deeper(|parser| parser.double_quoted(&mut inner, Some(b'"')))?;
                }
                b'$' => self.deeper(|parser| parser.dollar(&mut inner, true))?,
                b'`' => self.deeper(|parser| parser.backquote(&mut inner, true))?,
                _ => self.copy(&mut inner, false),
            }
        }
        self.at += 1;
        let word = inner.finish();
        pieces.push(match form {
            Some(form) => Piece::Parameter { name, quoted, form, word },
            None => opaque(word),
        });
        Ok(())
    }

    /// The name of a parameter, also `NAME[0]` and `NAME[@]`.
    fn parameter(&mut self) -> String {
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let start = self.at;
        self.at += self.rest().bytes().take_while(fits).count();
        if self.at > start && self.looking_at("[") {
            let inside = &self.rest()[1..];
            let length = inside.bytes().take(4).take_while(|byte| b"0123456789@*".contains(byte)).count();
            if length > 0 && inside[length..].starts_with(']') {
                self.at += length + 2;
            }
        }
        self.text[start..self.at].to_owned()
    }

    /// The operator behind the name of a parameter, if it is one that the reader works out.
    fn form(&mut self) -> Option<Form> {
        let default = |if_empty, assigns| Form::Default { if_empty, assigns };
        let forms = [
            (":-", default(true, false)),
            (":=", default(true, true)),
            (":+", Form::Instead { if_empty: true }),
            ("-", default(false, false)),
            ("=", default(false, true)),
            ("+", Form::Instead { if_empty: false }),
            ("##", Form::WithoutBeginning { longest: true }),
            ("#", Form::WithoutBeginning { longest: false }),
            ("%%", Form::WithoutEnd { longest: true }),
            ("%", Form::WithoutEnd { longest: false }),
        ];
        forms.into_iter().find(|(operator, _)| self.eat(operator)).map(|(_, form)| form)
    }

    /// Reads `$'…'`. None: bytes that are no text, or a NUL.
    fn ansi_quoted(&mut self) -> Result<Option<String>, SyntaxError> {
        let mut bytes: Vec<u8> = Vec::new();
        let add = |bytes: &mut Vec<u8>, character: char| {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        };
        let mut is_text = true;
        loop {
            let character = self.rest().chars().next().ok_or(SyntaxError::Unclosed)?;
            self.at += character.len_utf8();
            match character {
                '\'' => break,
                '\\' => {
                    let escaped = self.rest().chars().next().ok_or(SyntaxError::Unclosed)?;
                    self.at += escaped.len_utf8();
                    match escaped {
                        'n' => add(&mut bytes, '\n'),
                        't' => add(&mut bytes, '\t'),
                        'r' => add(&mut bytes, '\r'),
                        'a' => add(&mut bytes, '\x07'),
                        'b' => add(&mut bytes, '\x08'),
                        'e' | 'E' => add(&mut bytes, '\x1b'),
                        'f' => add(&mut bytes, '\x0c'),
                        'v' => add(&mut bytes, '\x0b'),
                        '\\' | '\'' | '"' | '?' => add(&mut bytes, escaped),
                        'x' | '0'..='7' => {
                            self.at -= usize::from(escaped != 'x');
                            let (base, most) = if escaped == 'x' { (16, 2) } else { (8, 3) };
                            let byte = self.code(base, most).and_then(|code| u8::try_from(code & 0xff).ok());
                            bytes.extend(byte);
                            is_text &= byte.is_some_and(|byte| byte != 0);
                        }
                        'u' | 'U' => {
                            let code = self.code(16, if escaped == 'u' { 4 } else { 8 });
                            match code.and_then(char::from_u32).filter(|character| *character != '\0') {
                                Some(character) => add(&mut bytes, character),
                                None => is_text = false,
                            }
                        }
                        // A control character by its letter, which is in no path that anybody writes to.
                        'c' => is_text = false,
                        _ => {
                            add(&mut bytes, '\\');
                            add(&mut bytes, escaped);
                        }
                    }
                }
                _ => add(&mut bytes, character),
            }
        }
        Ok(String::from_utf8(bytes).ok().filter(|_| is_text))
    }

    /// Reads the code of a character: at most this number of digits.
    fn code(&mut self, base: u32, most: usize) -> Option<u32> {
        let digits: String =
            self.rest().chars().take(most).take_while(|digit| digit.is_digit(base)).collect();
        self.at += digits.len();
        u32::from_str_radix(&digits, base).ok()
    }

    /// Reads a substitution in backquotes: its text is parsed once the escapes are taken off.
    fn backquote(&mut self, pieces: &mut Pieces, quoted: bool) -> Result<(), SyntaxError> {
        self.at += 1;
        let mut inner = String::new();
        loop {
            let character = self.rest().chars().next().ok_or(SyntaxError::Unclosed)?;
            self.at += character.len_utf8();
            match character {
                '`' => break,
                '\\' => {
                    let escaped = self.rest().chars().next().ok_or(SyntaxError::Unclosed)?;
                    self.at += escaped.len_utf8();
                    if !matches!(escaped, '$' | '`' | '\\') {
                        inner.push('\\');
                    }
                    inner.push(escaped);
                }
                _ => inner.push(character),
            }
        }
        let script = parse_at_depth(&inner, self.depth)?;
        if !script.bodies.is_empty() {
            return Err(SyntaxError::Unexpected);
        }
        pieces.push(Piece::Substitution { list: script.list, quoted });
        Ok(())
    }

    /// Reads `(( … ))` at this place. `None`: these are two parentheses of subshells; nothing is consumed.
    fn arithmetic(&mut self) -> Result<Option<Piece>, SyntaxError> {
        let inside = self.at + 2;
        let (mut depth, mut at) = (0_usize, inside);
        let bytes = self.text.as_bytes();
        while at < bytes.len() {
            match bytes[at] {
                b'(' => depth += 1,
                b')' if depth == 0 => {
                    if bytes.get(at + 1) != Some(&b')') {
                        return Ok(None);
                    }
                    self.at = at + 2;
                    let text = self.text[inside..at].to_owned();
                    let mut piece = opaque(self.nested_text(&text)?);
                    if let Piece::Opaque { changes, .. } = &mut piece {
                        changes.extend(changed_names(&text));
                    }
                    return Ok(Some(piece));
                }
                b')' => depth -= 1,
                b'\'' => return Ok(None),
                _ => {}
            }
            at += 1;
        }
        Ok(None)
    }

    /// Reads the command `(( … ))`. `None`: nested subshells begin here.
    pub(super) fn arithmetic_command(&mut self) -> Result<Option<Vec<Word>>, SyntaxError> {
        let piece = self.arithmetic()?;
        Ok(piece.map(|piece| vec![Word(vec![piece])]))
    }
}

/// The substitutions, and the names of changed variables, of a word whose value is not worked out.
fn opaque(word: Word) -> Piece {
    let (mut lists, mut changes) = (Vec::new(), Vec::new());
    for piece in word.0 {
        match piece {
            Piece::Substitution { list, .. } | Piece::Process(list) => lists.push(list),
            Piece::Opaque { lists: inner, changes: names } => {
                lists.extend(inner);
                changes.extend(names);
            }
            Piece::Parameter { name, form, word, .. } => {
                changes.extend(Some(name).filter(|_| matches!(form, Form::Default { assigns: true, .. })));
                if let Piece::Opaque { lists: inner, changes: names } = opaque(word) {
                    lists.extend(inner);
                    changes.extend(names);
                }
            }
            Piece::Plain(_) | Piece::Quoted(_) | Piece::Variable { .. } => {}
        }
    }
    Piece::Opaque { lists, changes }
}

/// The names in an arithmetic text that assigns; which of them it changes is not worked out.
pub(super) fn changed_names(text: &str) -> Vec<String> {
    if !text.contains('=') && !text.contains("++") && !text.contains("--") {
        return Vec::new();
    }
    let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
    names.take(100).map(str::to_owned).collect()
}
