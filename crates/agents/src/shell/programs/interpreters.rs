//! Short programs for interpreters: `python3 - <<EOF`, `node -e`, `ruby -e`, `perl -e`.
//!
//! Such a program may write anything, so it stays unknown. But the usual calls that write a file with a plain name are found
//! before they run: `open("a", "w")`, `Path("a").write_text(…)`, `fs.writeFileSync("a", …)`, `File.write("a", …)`.

use std::collections::HashMap;

use super::Call;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Input, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

/// Calls that write the files at these places of their arguments.
const WRITING: [(&str, &[usize]); 38] = [
    ("File.delete", &[0]),
    ("File.rename", &[0, 1]),
    ("File.unlink", &[0]),
    ("File.write", &[0]),
    ("FileUtils.cp", &[1]),
    ("FileUtils.mv", &[0, 1]),
    ("FileUtils.rm", &[0]),
    ("FileUtils.rm_f", &[0]),
    ("FileUtils.touch", &[0]),
    ("IO.write", &[0]),
    ("appendFile", &[0]),
    ("appendFileSync", &[0]),
    ("copyFile", &[1]),
    ("copyFileSync", &[1]),
    ("createWriteStream", &[0]),
    ("os.link", &[1]),
    ("os.remove", &[0]),
    ("os.rename", &[0, 1]),
    ("os.renames", &[0, 1]),
    ("os.replace", &[0, 1]),
    ("os.rmdir", &[0]),
    ("os.symlink", &[1]),
    ("os.truncate", &[0]),
    ("os.unlink", &[0]),
    ("renameSync", &[0, 1]),
    ("rmSync", &[0]),
    ("shutil.copy", &[1]),
    ("shutil.copy2", &[1]),
    ("shutil.copyfile", &[1]),
    ("shutil.move", &[0, 1]),
    ("shutil.rmtree", &[0]),
    ("symlinkSync", &[1]),
    ("truncateSync", &[0]),
    ("unlinkSync", &[0]),
    ("file_put_contents", &[0]),
    ("writeFile", &[0]),
    ("writeFileSync", &[0]),
    ("writeTextFileSync", &[0]),
];
/// Methods that write the file whose path they belong to.
const METHODS: [&str; 6] = ["write_text", "write_bytes", "unlink", "touch", "rename", "replace"];
/// Calls that open a file, in a mode that follows the name.
const OPENING: [&str; 5] = ["open", "openSync", "fopen", "File.open", "File.new"];
/// Calls that hand a text to a shell.
const SHELLS: [&str; 4] = ["os.system", "system", "execSync", "os.popen"];

/// The arguments of a call are looked for in this many tokens: nested calls are read again for each level.
const MAX_TOKENS: usize = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    /// A name with the names before its dots: `fs.writeFileSync`.
    Name(String),
    Symbol(char),
}

impl Reader<'_> {
    /// Reads a program that is an argument or the input of an interpreter. False: it is no interpreter, or has no such program.
    pub(super) fn interpreter(&mut self, call: &Call<'_>, state: &State) -> bool {
        let flags: &[&str] = match call.name {
            "python" | "python3" | "python2" | "pypy3" => &["-c"],
            "node" | "bun" => &["-e", "--eval", "-p", "--print"],
            "ruby" | "perl" => &["-e", "-E"],
            "php" => &["-r"],
            _ => return false,
        };
        let arguments = Arguments::parse(call.arguments, &[flags, &["-W", "-X", "-r", "-I", "-M"]].concat());
        let mut programs: Vec<&str> = arguments.values(flags).filter_map(Value::text).collect();
        let is_input =
            programs.is_empty() && arguments.operands.first().is_none_or(|file| file.text() == Some("-"));
        if let Input::Text(text) = call.input
            && is_input
        {
            programs.push(text);
        }
        for program in &programs {
            self.program_text(program, state);
        }
        if !programs.is_empty() {
            self.writes.not_known(format!("a program of {}", call.name));
        }
        !programs.is_empty()
    }

    fn program_text(&mut self, program: &str, state: &State) {
        self.spend(program.len());
        let tokens = tokens(program);
        // After a change of the working folder, relative paths cannot be resolved.
        let is_chdir = |token: &Token| matches!(token, Token::Name(name) if name.ends_with("chdir"));
        if tokens.iter().any(is_chdir) {
            return;
        }
        let variables = variables(&tokens);
        for (at, token) in tokens.iter().enumerate() {
            let Token::Name(name) = token else { continue };
            let arguments = arguments(&tokens[at + 1..]);
            let text = |place: usize| resolved(arguments.get(place)?, &variables);
            let mut paths: Vec<Option<String>> = Vec::new();
            let last = name.rsplit('.').next().unwrap_or(name);
            let called = |known: &str| name == known || (!known.contains('.') && last == known);
            if let Some((_, places)) = WRITING.iter().find(|(known, _)| called(known)) {
                paths.extend(places.iter().map(|place| text(*place)));
            } else if OPENING.iter().any(|known| called(known)) {
                let of_perl = unparenthesised(&tokens[at + 1..]);
                paths.push(opened(&of_perl.unwrap_or(arguments), &variables));
            } else if SHELLS.iter().any(|known| called(known)) {
                if let Some(line) = text(0) {
                    self.run_elsewhere(&line, state);
                }
            } else if METHODS.contains(&last) && !arguments.is_empty() {
                paths.push(path_before(&tokens[..=at], &variables));
            }
            for path in paths.into_iter().flatten() {
                self.write(&Value::Text(path), state, Extent::File);
            }
        }
    }
}

type Variables = HashMap<String, Option<Variable>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Variable {
    text: String,
    /// It was made by `Path(…)`.
    is_path: bool,
}

/// Variables that have one plain text in the whole program.
fn variables(tokens: &[Token]) -> Variables {
    let mut variables = Variables::new();
    for (at, window) in tokens.windows(2).enumerate() {
        let [Token::Name(name), Token::Symbol('=')] = window else { continue };
        let rest = &tokens[at + 2..];
        let value = match rest {
            [Token::Symbol('='), ..] => continue,
            [Token::Text(text), next @ ..] if ends(next) => {
                Some(Variable { text: text.clone(), is_path: false })
            }
            [Token::Name(path), next @ ..] if is_path(path) => {
                resolved_text(next).map(|text| Variable { text, is_path: true })
            }
            _ => None,
        };
        let known = variables.entry(name.clone()).or_insert_with(|| value.clone());
        if *known != value {
            *known = None;
        }
    }
    variables
}

fn ends(rest: &[Token]) -> bool {
    rest.first().is_none_or(|token| matches!(token, Token::Symbol(';' | '\n' | ')' | ',') | Token::Name(_)))
}

fn is_path(name: &str) -> bool {
    matches!(name, "Path" | "pathlib.Path")
}

/// The text in `("text")`.
fn resolved_text(tokens: &[Token]) -> Option<String> {
    match tokens {
        [Token::Symbol('('), Token::Text(text), Token::Symbol(')'), ..] => Some(text.clone()),
        _ => None,
    }
}

/// The arguments of a call, also without parentheses as in ruby and perl. Empty: it is no call.
fn arguments(rest: &[Token]) -> Vec<&[Token]> {
    let (inside, closes) = match rest {
        [Token::Symbol('('), inside @ ..] => (inside, true),
        [Token::Text(_), ..] => (rest, false),
        _ => return Vec::new(),
    };
    let inside = &inside[..inside.len().min(MAX_TOKENS)];
    let (mut depth, mut begin) = (0_usize, 0);
    let mut arguments = Vec::new();
    for (at, token) in inside.iter().enumerate() {
        let is_end = match token {
            Token::Symbol('(' | '[' | '{') => {
                depth += 1;
                false
            }
            Token::Symbol(')' | ']' | '}') if depth == 0 => true,
            Token::Symbol(')' | ']' | '}') => {
                depth -= 1;
                false
            }
            Token::Symbol(';' | '\n') => depth == 0 && !closes,
            _ => false,
        };
        if is_end || (depth == 0 && *token == Token::Symbol(',')) {
            arguments.push(&inside[begin..at]);
            begin = at + 1;
        }
        if is_end {
            return arguments;
        }
    }
    arguments.push(&inside[begin..]);
    arguments
}

/// The arguments of perl's `open my $f, ">", "a" or die`. None: it is another call.
fn unparenthesised(rest: &[Token]) -> Option<Vec<&[Token]>> {
    use Token::{Name, Symbol};
    if !matches!(rest, [Name(_), Symbol(','), ..] | [Name(_), Name(_), Symbol(','), ..]) {
        return None;
    }
    let ends = |token: &Token| match token {
        Symbol(';' | '\n' | ')' | '}' | '|') => true,
        Name(name) => matches!(name.as_str(), "or" | "and" | "if" | "unless"),
        _ => false,
    };
    let rest = &rest[..rest.len().min(MAX_TOKENS)];
    let length = rest.iter().position(ends).unwrap_or(rest.len());
    Some(rest[..length].split(|token| *token == Symbol(',')).collect())
}

/// The plain text that an argument is: `"a"`, a variable, `Path("a")`.
fn resolved(argument: &[Token], variables: &Variables) -> Option<String> {
    let argument: Vec<&Token> = argument.iter().filter(|token| **token != Token::Symbol('\n')).collect();
    match argument.as_slice() {
        [Token::Text(text)] => Some(text.clone()),
        [Token::Name(name)] => Some(variables.get(name)?.clone()?.text),
        [Token::Name(path), Token::Symbol('('), Token::Text(text), Token::Symbol(')')] if is_path(path) => {
            Some(text.clone())
        }
        _ => None,
    }
}

/// The file that a call opens to write. Perl has the mode before the name, or in front of it.
fn opened(arguments: &[&[Token]], variables: &Variables) -> Option<String> {
    let text = |place: usize| resolved(arguments.get(place)?, variables);
    let second = text(1).or_else(|| {
        match arguments.get(1..)?.iter().find_map(|argument| keyword(argument, "mode"))? {
            Token::Text(mode) => Some(mode.clone()),
            _ => None,
        }
    })?;
    let is_mode = |mode: &str| {
        mode.len() <= 4 && mode.contains(['w', 'a', 'x', '+']) && mode.chars().all(|c| "rwaxbt+".contains(c))
    };
    if let (Some(file), true) = (text(0), is_mode(&second)) {
        return Some(file);
    }
    match second.strip_prefix(['>', '+'])?.trim_start_matches(['>', '<']).trim() {
        // `open(my $f, ">", "a")`; the mode may name an encoding.
        "" => text(2),
        mode if mode.starts_with(':') => text(2),
        file => Some(file.to_owned()),
    }
}

fn keyword<'t>(argument: &'t [Token], name: &str) -> Option<&'t Token> {
    match argument {
        [Token::Name(key), Token::Symbol('='), value] if key == name => Some(value),
        _ => None,
    }
}

/// The path whose method is called: `Path("a").write_text`, `p.write_text`.
fn path_before(tokens: &[Token], variables: &Variables) -> Option<String> {
    match tokens {
        [
            ..,
            Token::Name(path),
            Token::Symbol('('),
            Token::Text(text),
            Token::Symbol(')'),
            Token::Symbol('.'),
            Token::Name(_),
        ] if is_path(path) => Some(text.clone()),
        [.., Token::Name(name)] => {
            let (variable, _) = name.rsplit_once('.')?;
            Some(variables.get(variable)?.clone().filter(|variable| variable.is_path)?.text)
        }
        _ => None,
    }
}

/// Names, plain texts and symbols. What is in a text or a comment is no code.
fn tokens(program: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut rest = program;
    while let Some(first) = rest.chars().next() {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$');
        let mut length = first.len_utf8();
        match first {
            '#' => length = rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => length = rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' | '`' => {
                let triple: String = [first; 3].iter().collect();
                let mark = if rest.starts_with(&triple) { triple } else { first.to_string() };
                let inside = &rest[mark.len()..];
                let end = end_of_text(inside, &mark);
                let text = &inside[..end];
                // An escape or a place for a value: the text is not plain.
                let is_plain = !text.contains(['\\', '\n']) && !text.contains("${") && !text.contains("#{");
                let is_formatted = matches!(tokens.last(), Some(Token::Name(prefix)) if prefix == "f" || prefix == "rf" || prefix == "fr");
                if matches!(tokens.last(), Some(Token::Name(prefix)) if matches!(prefix.as_str(), "f" | "r" | "b" | "u" | "rf" | "fr" | "rb" | "br"))
                {
                    tokens.pop();
                }
                let token = if is_plain && !(is_formatted && text.contains('{')) {
                    Token::Text(text.to_owned())
                } else {
                    Token::Symbol('"')
                };
                tokens.push(token);
                length = (mark.len() + end + mark.len()).min(rest.len());
            }
            _ if is_name(first) && first != '.' => {
                length = rest.len() - rest.trim_start_matches(is_name).len();
                tokens.push(Token::Name(rest[..length].to_owned()));
            }
            '.' => {
                // A method of what ends here.
                tokens.push(Token::Symbol('.'));
            }
            ' ' | '\t' | '\r' => {}
            _ => tokens.push(Token::Symbol(first)),
        }
        rest = &rest[length..];
    }
    tokens
}

/// Where a text ends: before its mark.
fn end_of_text(inside: &str, mark: &str) -> usize {
    let mut escaped = false;
    for (at, character) in inside.char_indices() {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if inside[at..].starts_with(mark) {
            return at;
        }
    }
    inside.len()
}
