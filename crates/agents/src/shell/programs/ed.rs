//! `ed` and `ex`: the files that they are given, and those that their scripts write.

use super::Call;
use crate::shell::arguments::Arguments;
use crate::shell::reader::{Extent, Input, Reader};
use crate::shell::state::State;
use crate::shell::value::Value;

/// What a command of a script does besides editing.
#[derive(Debug, PartialEq, Eq)]
enum Effect<'s> {
    /// `w`: writes the file that was opened.
    Saves,
    /// `w FILE`, and what makes FILE the one that is written later.
    Writes(&'s str),
    /// `!COMMAND`, `w !COMMAND`.
    Runs(&'s str),
}

impl Reader<'_> {
    pub(super) fn ed(&mut self, call: &Call<'_>, state: &State) {
        let arguments = Arguments::parse(call.arguments, &["-c", "-p"]);
        let is_file = |value: &&Value| !value.text().is_some_and(|text| text.starts_with('+'));
        let files: Vec<Value> = arguments.operands.iter().filter(is_file).cloned().collect();
        let is_ex = call.name == "ex";
        let options: Vec<&Value> = arguments.values(&["-c"]).filter(|_| is_ex).collect();
        let script = match (options.as_slice(), call.input) {
            ([], Input::Text(script)) => Some(script.clone()),
            ([], _) => None,
            (options, _) => {
                let texts: Option<Vec<&str>> = options.iter().map(|option| option.text()).collect();
                texts.map(|texts| texts.join("\n"))
            }
        };
        let is_whole = files.len() == arguments.operands.len();
        let effects = script.as_deref().filter(|_| is_whole).and_then(|script| effects(script, is_ex));
        let Some(effects) = effects else {
            self.write_all(&files, state, Extent::File);
            self.writes.not_known(format!("a script of {}", call.name));
            return;
        };
        for effect in effects {
            match effect {
                Effect::Saves => self.write_all(&files, state, Extent::File),
                Effect::Writes(file) => self.write(&Value::Text(file.to_owned()), state, Extent::File),
                Effect::Runs(command) => self.run_elsewhere(command, state),
            }
        }
    }
}

/// What a script does. `None`: it is not understood.
fn effects(script: &str, is_ex: bool) -> Option<Vec<Effect<'_>>> {
    let (mut effects, mut in_text) = (Vec::new(), false);
    for line in script.lines() {
        if in_text {
            in_text = line != ".";
            continue;
        }
        // `|` separates commands of ex. Within a substitution it is text, which then is not understood, or does nothing.
        for command in line.split(|character| is_ex && character == '|') {
            let command = command_of(command)?;
            let name: &str =
                &command[..command.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(command.len())];
            let argument = command[name.len()..].trim_start_matches('!').trim();
            match name {
                "a" | "i" | "c" | "append" | "insert" | "change" => in_text = true,
                "w" | "W" | "wq" | "write" | "x" | "xit" | "up" | "update" | "sav" | "saveas" | "f" | "e"
                | "E" | "edit" | "file" => {
                    let file = argument.strip_prefix(">>").unwrap_or(argument).trim();
                    let opens = matches!(name, "f" | "e" | "E" | "edit" | "file");
                    effects.extend(match (file, file.strip_prefix('!')) {
                        ("", _) => (!opens).then_some(Effect::Saves),
                        (_, Some(command)) => Some(Effect::Runs(command)),
                        (file, None) => Some(Effect::Writes(file)),
                    });
                }
                "r" | "read" => effects.extend(argument.strip_prefix('!').map(Effect::Runs)),
                "" if command.starts_with('!') => effects.push(Effect::Runs(argument)),
                // Substitutions, moves, prints and the like change only what is in memory.
                "" | "d" | "j" | "k" | "l" | "m" | "n" | "p" | "P" | "q" | "Q" | "s" | "t" | "u" | "z"
                | "H" | "h" | "delete" | "join" | "print" | "quit" => {}
                _ if !is_ex && name.starts_with(['s', 'd', 'm', 't', 'p', 'q', 'k', 'n', 'l', 'j']) => {}
                _ => return None,
            }
        }
    }
    Some(effects)
}

/// A command without its address, and without `g/…/` before it. `None`: the address does not end.
fn command_of(line: &str) -> Option<&str> {
    let mut rest = line.trim_start_matches([':', ' ']);
    loop {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || " \t,;.$%+-^".contains(c));
        rest = match after.chars().next() {
            Some(quote @ ('/' | '?')) => after_text(&after[1..], quote)?,
            Some('\'') => after.get(2..)?,
            Some('g' | 'v' | 'G' | 'V') => match after[1..].trim_start_matches('!').chars().next() {
                Some(quote) if quote.is_ascii_punctuation() => {
                    after_text(&after[1..].trim_start_matches('!')[1..], quote)?
                }
                _ => return Some(after),
            },
            _ => return Some(after),
        };
    }
}

/// What comes after the text that this character ends. The end of a line ends it, too.
fn after_text(text: &str, quote: char) -> Option<&str> {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        if character == quote && !escaped {
            return Some(&text[at + quote.len_utf8()..]);
        }
        escaped = character == '\\' && !escaped;
    }
    Some("")
}
