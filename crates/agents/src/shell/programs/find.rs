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
        self.inner(&words, state.clone(), &Input::None);
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
    let chosen = chosen_by(expression);
    starts.iter().map(|start| found_below(start, chosen.as_ref())).collect()
}

/// Which files an expression chooses, as far as a pattern can say.
#[derive(Default)]
struct Chosen {
    name: Option<String>,
    path: Option<String>,
    /// Only entries of the folder itself.
    is_flat: bool,
}

/// What an expression chooses. `None`: it chooses in a way that is not followed.
fn chosen_by(expression: &[Value]) -> Option<Chosen> {
    let mut chosen = Chosen::default();
    let mut at = 0;
    while let Some(argument) = expression.get(at) {
        let value = || expression.get(at + 1)?.text();
        match argument.text()? {
            // `find` does not expand braces.
            "-name" if chosen.name.is_none() => {
                chosen.name = Some(value()?.replace('{', r"\{").replace('}', r"\}"));
                at += 2;
            }
            "-path" | "-wholename" if chosen.path.is_none() => {
                chosen.path = Some(value()?.replace('{', r"\{").replace('}', r"\}"));
                at += 2;
            }
            // What is left out makes the set smaller.
            "-not" | "!" if matches!(value()?, "-name" | "-path" | "-wholename" | "-type") => at += 3,
            "-maxdepth" if value()? == "1" => {
                chosen.is_flat = true;
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
    Some(chosen)
}

fn found_below(start: &Value, chosen: Option<&Chosen>) -> Value {
    let (Value::Text(start), Some(chosen)) = (start, chosen) else { return Value::Unknown };
    if start.is_empty() {
        return Value::Unknown;
    }
    let below = escaped(start.trim_end_matches('/'));
    let name = chosen.name.as_deref().unwrap_or("*");
    let pattern = match &chosen.path {
        _ if chosen.is_flat => Some(format!("{below}/{name}")),
        None => Some(format!("{below}/**/{name}")),
        Some(path) => path_pattern(path, start, name),
    };
    pattern.map_or(Value::Unknown, Value::Pattern)
}

/// The paths that fit both `-path` and `-name`. A `*` of `-path` also stands for several folders.
fn path_pattern(path: &str, start: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    // A path that begins with a wildcard begins anywhere below the start.
    if path.starts_with('*') {
        parts.push(start.trim_end_matches('/'));
    }
    let count = path.split('/').count();
    for (at, part) in path.split('/').enumerate() {
        match part {
            "*" | "**" if at + 1 == count => parts.extend(["**", name]),
            "*" | "**" => parts.push("**"),
            _ if !part.contains(['*', '?', '[']) => parts.push(part),
            // `*.rs` at the end: in any folder from here on.
            _ if at + 1 == count && part.rfind('*') == Some(0) && name == "*" => parts.extend(["**", part]),
            _ => return None,
        }
    }
    let is_name = path.rsplit('/').next().is_some_and(|last| !last.contains('*'));
    // An exact name at the end, and another condition on the name.
    (!is_name || name == "*").then(|| parts.join("/"))
}
