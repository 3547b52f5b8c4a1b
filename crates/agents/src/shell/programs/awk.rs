//! `awk`: files that it edits in place, and those that its program prints to.

use std::collections::HashMap;

use super::Call;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

/// What a program does besides printing. None: only awk knows the name or the command.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    /// `print > "file"`, `printf >> "file"`.
    Writes(Option<String>),
    /// `print | "command"`, `"command" | getline`, `system("command")`.
    Runs(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    Name(String),
    /// A number or a regular expression.
    Operand,
    /// An operator. Operators of two characters that matter here are one token.
    Symbol(&'static str),
    Other(char),
}

impl Reader<'_> {
    pub(super) fn awk(&mut self, call: &Call<'_>, state: &State) {
        let with_value = [
            "-i",
            "--include",
            "-v",
            "--assign",
            "-F",
            "--field-separator",
            "-f",
            "--file",
            "-e",
            "--source",
            "-E",
            "--exec",
            "-l",
            "-W",
        ];
        let arguments = Arguments::parse(call.arguments, &with_value);
        let in_file = arguments.has(&["-f", "--file", "-E", "--exec"]);
        let has_source = arguments.has(&["-e", "--source"]);
        let operand = usize::from(!in_file && !has_source);
        let files = arguments.operands.get(operand..).unwrap_or_default();
        let is_assignment = |value: &&Value| value.text().is_some_and(|text| text.contains('='));
        if arguments.values(&["-i", "--include"]).any(|value| value.text() == Some("inplace")) {
            let files: Vec<Value> = files.iter().filter(|file| !is_assignment(file)).cloned().collect();
            self.write_all(&files, state, Extent::File);
        }
        if in_file {
            self.writes.not_known("an awk program in a file");
        }
        let assigned = arguments.values(&["-v", "--assign"]).chain(files.iter().filter(is_assignment));
        let variables: HashMap<&str, &str> =
            assigned.filter_map(|value| value.text()?.split_once('=')).collect();
        let sources = arguments.values(&["-e", "--source"]).chain(arguments.operands.iter().take(operand));
        for program in sources {
            let Some(program) = program.text() else {
                self.writes.not_known("an awk program that only the shell knows");
                continue;
            };
            self.spend(program.len());
            for effect in effects(&tokens(program), &variables) {
                match effect {
                    Effect::Writes(Some(file)) => self.write(&Value::Text(file), state, Extent::File),
                    Effect::Runs(Some(command)) => self.run_elsewhere(&command, state),
                    Effect::Writes(None) => self.writes.not_known("a file that awk names"),
                    Effect::Runs(None) => self.writes.not_known("a command that awk makes"),
                }
            }
        }
    }
}

fn effects(tokens: &[Token], variables: &HashMap<&str, &str>) -> Vec<Effect> {
    let text = |token: Option<&Token>| match token? {
        Token::Text(text) => Some(text.clone()),
        Token::Name(name) => variables.get(name.as_str()).map(|text| (*text).to_owned()),
        Token::Operand | Token::Symbol(_) | Token::Other(_) => None,
    };
    let is_one_of = |at: Option<usize>, symbols: &[char]| match at.and_then(|at| tokens.get(at)) {
        None => true,
        Some(Token::Other(symbol)) => symbols.contains(symbol),
        Some(_) => false,
    };
    // Only a single text or name counts: the value of an expression with several parts is not worked out.
    let after =
        |at: usize| text(tokens.get(at + 1).filter(|_| is_one_of(Some(at + 2), &[';', '\n', '}', ')'])));
    let before = |at: usize| {
        let one = at.checked_sub(1)?;
        text(tokens.get(one).filter(|_| is_one_of(one.checked_sub(1), &[';', '\n', '{', '}', '('])))
    };
    let mut effects = Vec::new();
    let mut depth = 0_usize;
    // The parentheses around the `print` whose statement is read.
    let mut print: Option<usize> = None;
    for (at, token) in tokens.iter().enumerate() {
        let next = tokens.get(at + 1);
        match token {
            Token::Name(name) if name == "print" || name == "printf" => print = Some(depth),
            Token::Name(name) if name == "system" && next == Some(&Token::Other('(')) => {
                effects.push(Effect::Runs(after(at + 1)));
            }
            Token::Other('(') => depth += 1,
            Token::Other(')') => depth = depth.saturating_sub(1),
            Token::Other(';' | '\n' | '}') => print = None,
            // Elsewhere `>` compares.
            Token::Other('>') | Token::Symbol(">>") if print == Some(depth) => {
                effects.push(Effect::Writes(after(at)));
            }
            Token::Other('|') | Token::Symbol("|&") => {
                let reads = matches!(next, Some(Token::Name(name)) if name == "getline");
                effects.push(Effect::Runs(if reads { before(at) } else { after(at) }));
            }
            _ => {}
        }
    }
    effects
}

fn tokens(program: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut rest = program;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (token, length) = match first {
            ' ' | '\t' | '\r' => (None, 1),
            '\\' if after.starts_with('\n') => (None, 2),
            '#' => (None, rest.find('\n').unwrap_or(rest.len())),
            '"' => {
                let (text, length) = quoted(after, '"');
                (Some(Token::Text(text)), 1 + length)
            }
            '/' if !divides(tokens.last()) => (Some(Token::Operand), 1 + quoted(after, '/').1),
            _ if first.is_ascii_digit() => {
                let is_number = |c: char| c.is_ascii_alphanumeric() || c == '.';
                (Some(Token::Operand), rest.len() - rest.trim_start_matches(is_number).len())
            }
            _ if is_name(first) => {
                let length = rest.len() - rest.trim_start_matches(is_name).len();
                (Some(Token::Name(rest[..length].to_owned())), length)
            }
            _ => {
                let pair = ["||", "&&", ">>", ">=", "|&", "++", "--"];
                match pair.into_iter().find(|pair| rest.starts_with(pair)) {
                    Some(pair) => (Some(Token::Symbol(pair)), 2),
                    None => (Some(Token::Other(first)), first.len_utf8()),
                }
            }
        };
        tokens.extend(token);
        rest = &rest[length..];
    }
    tokens
}

/// Whether a `/` after this token divides. Otherwise a regular expression begins with it.
fn divides(before: Option<&Token>) -> bool {
    match before {
        None => false,
        Some(Token::Name(name)) => !matches!(name.as_str(), "print" | "printf" | "return" | "in"),
        Some(Token::Text(_) | Token::Operand) => true,
        Some(Token::Symbol(symbol)) => matches!(*symbol, "++" | "--"),
        Some(Token::Other(symbol)) => matches!(symbol, ')' | ']'),
    }
}

/// The text up to the mark, and its length with the mark.
fn quoted(rest: &str, mark: char) -> (String, usize) {
    let mut text = String::new();
    let mut characters = rest.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => text.extend(characters.next().map(|(_, escaped)| escaped)),
            _ if character == mark => return (text, at + character.len_utf8()),
            _ => text.push(character),
        }
    }
    (text, rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(program: &str) -> Vec<Effect> {
        effects(&tokens(program), &HashMap::from([("out", "o.txt")]))
    }

    #[test]
    fn programs_that_print_have_no_effects() {
        for program in [
            "{print $1}",
            "$3 > 5 {n++} END {print n}",
            "/a|b/ {print \"x > y | z\"}",
            "{print ($1 > 2), n}",
            "$1 / 2 > 3 || $2 >= 1 {print}",
            "{ n = n++ / 2; print # > \"x\"\n}",
            "{while ((getline line < \"f\") > 0) print line}",
            "",
        ] {
            assert_eq!(found(program), [], "{program}");
        }
    }

    #[test]
    fn files_and_commands_of_a_program_are_found() {
        let writes = |file: &str| vec![Effect::Writes(Some(file.to_owned()))];
        let runs = |command: &str| vec![Effect::Runs(Some(command.to_owned()))];
        assert_eq!(found("{print > \"a\"}"), writes("a"));
        assert_eq!(found("{printf(\"%s\", $1) >> \"a/b\"; n++}"), writes("a/b"));
        assert_eq!(found("{print $1, $2 > out}"), writes("o.txt"));
        assert_eq!(found("{print > $1 \".txt\"}"), [Effect::Writes(None)]);
        assert_eq!(found("{print | \"sort > b\"}"), runs("sort > b"));
        assert_eq!(found("BEGIN {system(\"rm a\")}"), runs("rm a"));
        assert_eq!(found("{system(\"rm \" $1)}"), [Effect::Runs(None)]);
        assert_eq!(found("BEGIN {\"rm a\" | getline x}"), runs("rm a"));
        assert_eq!(found("{while ((\"rm a\" | getline line) > 0) n++}"), runs("rm a"));
        assert_eq!(found("{cmd | getline}"), [Effect::Runs(None)]);
    }
}
