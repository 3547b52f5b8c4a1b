//! `xargs`: runs a program with names from its input as arguments.

use crate::shell::arguments::Arguments;
use crate::shell::reader::{Input, Reader};
use crate::shell::state::State;
use crate::shell::value::{Value, escaped};

/// With more names than this, `xargs` is not followed.
const MAX_NAMES: usize = 64;

impl Reader<'_> {
    /// `xargs`: the command has more arguments, which its input names.
    pub(super) fn xargs(&mut self, options: &Arguments, rest: &[Value], state: &State, input: &Input) {
        let names = names_for_xargs(options, input).unwrap_or_else(|| vec![Value::Unknown]);
        let mark =
            options.value(&["-I", "-i", "--replace"]).and_then(Value::text).filter(|mark| !mark.is_empty());
        let mark = mark.or_else(|| options.has(&["-i", "--replace"]).then_some("{}"));
        if mark.is_none() && !options.has(&["-n", "-L", "--max-args"]) {
            self.inner(&[rest, &names].concat(), state.clone(), &Input::None);
            return;
        }
        for name in names {
            let replaced = |word: &Value| match (word.text(), mark, &name) {
                (Some(text), Some(mark), _) if text == mark => name.clone(),
                (Some(text), Some(mark), Value::Text(name)) => Value::Text(text.replace(mark, name)),
                (Some(text), Some(mark), Value::Pattern(name)) if text.contains(mark) => {
                    let around: Vec<String> = text.split(mark).map(escaped).collect();
                    Value::Pattern(around.join(name))
                }
                (Some(text), Some(mark), _) if text.contains(mark) => Value::Unknown,
                _ => word.clone(),
            };
            let mut words: Vec<Value> = rest.iter().map(replaced).collect();
            words.extend(Some(name.clone()).filter(|_| mark.is_none()));
            self.inner(&words, state.clone(), &Input::None);
        }
    }
}

/// The names that the input of `xargs` has. `None`: they are not known.
fn names_for_xargs(options: &Arguments, input: &Input) -> Option<Vec<Value>> {
    // Several names for each call are not followed.
    let is_one = |value: &Value| value.text() == Some("1");
    if options.has(&["-a", "--arg-file", "-E"]) || !options.values(&["-n", "-L", "--max-args"]).all(is_one) {
        return None;
    }
    let text = match input {
        Input::Names(names) => return Some(names.clone()),
        Input::Text(text) => text,
        Input::None | Input::File(_) | Input::Unknown => return None,
    };
    let delimiter = options.value(&["-d", "--delimiter"]).map(|value| value.text().unwrap_or_default());
    let in_lines =
        delimiter == Some(r"\n") || (delimiter.is_none() && options.has(&["-I", "-i", "--replace"]));
    let names: Vec<&str> = match delimiter {
        _ if options.has(&["-0", "--null"]) => text.split('\0').collect(),
        _ if in_lines => text.lines().collect(),
        None => text.split_whitespace().collect(),
        Some(_) => return None,
    };
    let is_quoted = |name: &&str| delimiter.is_none() && name.contains(['\'', '"', '\\']);
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    if names.len() > MAX_NAMES || names.iter().any(is_quoted) {
        return None;
    }
    Some(names.into_iter().map(|name| Value::Text(name.to_owned())).collect())
}
