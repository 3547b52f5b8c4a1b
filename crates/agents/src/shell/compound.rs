//! Parser for compound commands: groups, conditions, loops, functions, tests.

use super::parse::{Parser, SyntaxError};
use super::syntax::{Command, Item, Kind, List, Word};

impl Parser<'_> {
    /// Parses a compound command. `None`: here begins a simple one.
    pub(super) fn compound(&mut self) -> Result<Option<Kind>, SyntaxError> {
        if self.looking_at("((")
            && let Some(words) = self.arithmetic_command()?
        {
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
                Kind::Loop { condition, body: self.do_group()?, until: word == "until" }
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
                Kind::Subshell(vec![Item { background: true, ..Item::of(self.command()?) }])
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
        let mut branches = Vec::new();
        loop {
            let condition = self.list_until("then")?;
            branches.push((condition, self.list(&["elif", "else", "fi"])?));
            if self.eat_word("elif") {
                continue;
            }
            let otherwise = if self.eat_word("else") { self.list(&["fi"])? } else { List::new() };
            if !self.eat_word("fi") {
                return Err(SyntaxError::Unclosed);
            }
            return Ok(Kind::If { branches, otherwise });
        }
    }

    fn for_loop(&mut self) -> Result<Kind, SyntaxError> {
        self.skip_blanks();
        if self.looking_at("((") {
            let words = self.arithmetic_command()?.ok_or(SyntaxError::Unexpected)?;
            self.skip_separators()?;
            let body = if self.eat_word("{") { self.list_until("}")? } else { self.do_group()? };
            let condition = Command { kind: Kind::Test(words), redirects: Vec::new() };
            return Ok(Kind::Loop { condition: vec![Item::of(condition)], body, until: false });
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
        let (mut lists, mut has_default) = (Vec::new(), false);
        self.skip_blank_lines()?;
        if !self.eat_word("in") {
            return Err(SyntaxError::Unexpected);
        }
        loop {
            self.skip_blank_lines()?;
            if self.eat_word("esac") {
                return Ok(Kind::Case { words, lists, has_default });
            }
            let _ = self.eat("(");
            loop {
                self.skip_blanks();
                let word = self.word()?.ok_or(SyntaxError::Unexpected)?;
                has_default |= word.plain() == Some("*");
                words.push(word);
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
}
