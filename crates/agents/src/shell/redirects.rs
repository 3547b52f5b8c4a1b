//! Parser for redirections and here-documents.

use super::parse::{Parser, SyntaxError};
use super::syntax::{Piece, Redirect, Word};

/// A here-document whose body begins after the next line end.
pub(super) struct Pending {
    delimiter: String,
    quoted: bool,
    strip_tabs: bool,
    body: usize,
}

impl Parser<'_> {
    /// Parses one redirection. `None`: none begins here.
    pub(super) fn redirect(&mut self) -> Result<Option<Redirect>, SyntaxError> {
        let start = self.at;
        if self.eat("&>>") || self.eat("&>") {
            return Ok(Some(Redirect::Write(self.target()?)));
        }
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += digits;
        if digits == 0 && self.looking_at("{") {
            let rest = self.rest();
            let close = rest.bytes().take(64).position(|byte| byte == b'}').unwrap_or(0);
            let named =
                close > 1 && rest[1..close].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
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
            return Ok(Some(Redirect::HereString(self.target()?)));
        }
        if self.looking_at("<<") {
            return Ok(Some(self.here_document()?));
        }
        if self.eat(">&") || self.eat("<&") {
            return Ok(Some(Redirect::Copy(self.target()?)));
        }
        if self.eat(">>") || self.eat(">|") || self.eat("<>") || self.eat(">") {
            // `>! a` of zsh is `>| a`.
            if self.looking_at("! ") {
                self.at += 1;
            }
            return Ok(Some(Redirect::Write(self.target()?)));
        }
        self.expect("<")?;
        Ok(Some(Redirect::Read(self.target()?)))
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
    pub(super) fn read_bodies(&mut self) -> Result<(), SyntaxError> {
        for pending in std::mem::take(&mut self.pending) {
            let mut body = String::new();
            while self.at < self.text.len() {
                let rest = self.rest();
                let length = rest.find('\n').unwrap_or(rest.len());
                let line = if pending.strip_tabs {
                    rest[..length].trim_start_matches('\t')
                } else {
                    &rest[..length]
                };
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
                Word(vec![Piece::Quoted(body)])
            } else {
                self.here_document_body(&body)?
            };
        }
        Ok(())
    }
}
