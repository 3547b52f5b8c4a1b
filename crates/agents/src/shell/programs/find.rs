//! `find`: the files that it finds as a pattern, and what `-exec` and `-delete` do to them.

use super::Call;
use crate::shell::reader::{Extent, Input, Reader};
use crate::shell::state::State;
use crate::shell::value::{Value, escaped};

impl Reader<'_> {
    pub(super) fn find(&mut self, call: &Call<'_>, state: &State) -> bool {
        if call.name != "find" {
            return false;
        }
        let begins = begins(call.arguments);
        let (starts, expression) = call.arguments.split_at(begins);
        let found = found(starts, expression);

        let mut at = 0;
        while let Some(argument) = expression.get(at) {
            at += 1;
            match argument.text() {
                Some("-delete") => self.write_all(&found, state, Extent::File),
                Some("-fprint" | "-fprint0" | "-fls" | "-fprintf") => {
                    let file = expression.get(at).cloned().unwrap_or(Value::Unknown);
                    self.write(&file, state, Extent::File);
                }
                Some("-exec" | "-execdir" | "-ok" | "-okdir") => {
                    let ends = |word: &Value| matches!(word.text(), Some(";" | "+"));
                    let length = expression[at..].iter().position(ends).unwrap_or(expression.len() - at);
                    let words = &expression[at..at + length];
                    found.iter().for_each(|file| self.execute(words, file, state));
                    at += length;
                }
                _ => {}
            }
        }
        true
    }

    fn execute(&mut self, words: &[Value], file: &Value, state: &State) {
        let mut words: Vec<Value> = words.to_vec();
        for word in &mut words {
            match word.text() {
                Some("{}") => *word = file.clone(),
                Some(text) if text.contains("{}") => *word = Value::Unknown,
                _ => {}
            }
        }
        if let Some((program, arguments)) = words.split_first() {
            self.program(program, arguments, &mut state.clone(), &Input::None);
        }
    }
}

/// The files that `find` prints. `None`: it does more, or chooses in a way that is not followed.
pub(in crate::shell) fn found_by(arguments: &[Value]) -> Option<Vec<Value>> {
    let (starts, expression) = arguments.split_at(begins(arguments));
    let acts =
        |argument: &Value| argument.text().is_some_and(|text| text.starts_with("-exec") || text == "-delete");
    let found = found(starts, expression);
    (!expression.iter().any(acts) && !found.contains(&Value::Unknown)).then_some(found)
}

/// Where the expression begins.
fn begins(arguments: &[Value]) -> usize {
    let is_expression =
        |argument: &Value| argument.text().is_some_and(|text| text.starts_with(['-', '(', '!', ')']));
    arguments.iter().position(is_expression).unwrap_or(arguments.len())
}

fn found(starts: &[Value], expression: &[Value]) -> Vec<Value> {
    let here = [Value::Text(".".to_owned())];
    let starts = if starts.is_empty() { &here } else { starts };
    let name = name_of(expression);
    starts.iter().map(|start| found_below(start, name.as_deref())).collect()
}

/// The pattern of names, `*` if there is none. `None`: the expression chooses in a way that is not followed.
fn name_of(expression: &[Value]) -> Option<String> {
    let mut name = None;
    let mut at = 0;
    while let Some(argument) = expression.get(at) {
        match argument.text()? {
            "-name" if name.is_none() => {
                // `find` does not expand braces.
                name = Some(expression.get(at + 1)?.text()?.replace('{', r"\{").replace('}', r"\}"));
                at += 2;
            }
            "-type" => at += 2,
            "-print" | "-print0" | "-delete" => at += 1,
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let ends = |word: &Value| matches!(word.text(), Some(";" | "+"));
                at += expression[at..].iter().position(ends)? + 1;
            }
            _ => return None,
        }
    }
    Some(name.unwrap_or_else(|| "*".to_owned()))
}

fn found_below(start: &Value, name: Option<&str>) -> Value {
    match (start, name) {
        (Value::Text(start), Some(name)) if !start.is_empty() => {
            Value::Pattern(format!("{}/**/{name}", escaped(start.trim_end_matches('/'))))
        }
        _ => Value::Unknown,
    }
}
