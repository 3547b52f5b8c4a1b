//! What a shell knows at one point of a script: its folder, variables and functions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::syntax::{Command, Word};
use super::value::Value;

/// The possible values of a variable: more than one after `if` and the like.
pub(super) type Values = Vec<Value>;

#[derive(Clone, PartialEq)]
pub(super) struct State {
    /// The working folder. `None`: not known any more.
    pub(super) cwd: Option<PathBuf>,
    /// Folders that `pushd` left.
    pub(super) folders: Vec<Option<PathBuf>>,
    pub(super) variables: HashMap<String, Values>,
    /// `$1`, `$2` and so on. `None`: not known.
    pub(super) arguments: Option<Vec<Value>>,
    pub(super) functions: HashMap<String, Function>,
    /// The here-documents of the script that runs.
    pub(super) bodies: Rc<Vec<Word>>,
}

/// A function, with the here-documents of the script that defines it.
#[derive(Clone, PartialEq)]
pub(super) struct Function {
    pub(super) body: Rc<Command>,
    pub(super) bodies: Rc<Vec<Word>>,
}

/// A variable has at most this many possible values; more are not followed.
const MAX_VALUES: usize = 8;
/// An array of more words than this is not followed.
const MAX_ELEMENTS: usize = 64;
/// A script has at most this many variables; others are not followed.
const MAX_VARIABLES: usize = 200;

impl State {
    pub(super) fn new(cwd: &Path, home: Option<&Path>) -> Self {
        let mut variables = HashMap::new();
        if let Some(home) = home.and_then(Path::to_str) {
            variables.insert("HOME".to_owned(), vec![Value::Text(home.to_owned())]);
        }
        Self {
            cwd: Some(cwd.to_path_buf()),
            folders: Vec::new(),
            variables,
            arguments: None,
            functions: HashMap::new(),
            bodies: Rc::new(Vec::new()),
        }
    }

    pub(super) fn values(&self, name: &str) -> Values {
        if name == "PWD" {
            let cwd = self.cwd.as_deref().and_then(Path::to_str);
            return vec![cwd.map_or(Value::Unknown, |cwd| Value::Text(cwd.to_owned()))];
        }
        if let Ok(number @ 1..) = name.parse::<usize>() {
            let Some(arguments) = &self.arguments else { return vec![Value::Unknown] };
            return vec![arguments.get(number - 1).cloned().unwrap_or(Value::Text(String::new()))];
        }
        self.variables.get(name).cloned().unwrap_or_else(|| vec![Value::Unknown])
    }

    /// `$*`: the arguments with blanks between them.
    pub(super) fn joined_arguments(&self) -> Value {
        let texts: Option<Vec<&str>> =
            self.arguments.as_ref().and_then(|arguments| arguments.iter().map(Value::text).collect());
        texts.map_or(Value::Unknown, |texts| Value::Text(texts.join(" ")))
    }

    pub(super) fn set(&mut self, name: &str, values: Values) {
        let values =
            if values.len() > MAX_VALUES || values.is_empty() { vec![Value::Unknown] } else { values };
        if self.variables.len() < MAX_VARIABLES || self.variables.contains_key(name) {
            self.variables.insert(name.to_owned(), values);
        }
        let of_array = |key: &String| key.strip_prefix(name).is_some_and(|rest| rest.starts_with('['));
        self.variables.retain(|key, _| !of_array(key));
    }

    /// Sets an array of plain words. An array with other words, or with too many, is not known.
    pub(super) fn set_array(&mut self, name: &str, elements: &[Value]) {
        let is_plain = elements.len() <= MAX_ELEMENTS
            && self.variables.len() + elements.len() < MAX_VARIABLES
            && elements.iter().all(|element| element.text().is_some_and(|text| !text.starts_with('[')));
        self.set(name, elements.first().filter(|_| is_plain).into_iter().cloned().collect());
        for (at, element) in elements.iter().enumerate().filter(|_| is_plain) {
            self.variables.insert(format!("{name}[{at}]"), vec![element.clone()]);
        }
    }

    /// The words of `"${NAME[@]}"`.
    pub(super) fn array(&self, name: &str, quoted: bool) -> Vec<Value> {
        let element = |at: usize| self.variables.get(&format!("{name}[{at}]"));
        let mut words = Vec::new();
        for values in (0..).map_while(element) {
            match values.as_slice() {
                [Value::Text(text)] if quoted || !text.contains([' ', '\t', '\n', '*', '?', '[']) => {
                    words.push(Value::Text(text.clone()));
                }
                _ => return vec![Value::Unknown],
            }
        }
        if words.is_empty() { vec![Value::Unknown] } else { words }
    }

    /// Gives variables back the values that they had.
    pub(super) fn restore(&mut self, saved: &[(&str, Option<Values>)]) {
        for (name, before) in saved.iter().rev() {
            match before {
                Some(values) => self.set(name, values.clone()),
                None => {
                    self.set(name, vec![Value::Unknown]);
                    self.variables.remove(*name);
                }
            }
        }
    }

    /// Merges another state that is possible as well: a variable in which they differ then has several possible values.
    pub(super) fn merge(&mut self, mut other: Self) {
        if self.cwd != other.cwd {
            self.cwd = None;
        }
        if self.folders != other.folders {
            self.folders = vec![None; self.folders.len().max(other.folders.len())];
        }
        if self.arguments != other.arguments {
            self.arguments = None;
        }
        // A variable that one of them has not set may come from the environment.
        let unset = || vec![Value::Unknown];
        for (name, values) in &mut self.variables {
            let others = other.variables.remove(name).unwrap_or_else(unset);
            values.extend(others.into_iter().filter(|value| !values.contains(value)).collect::<Vec<_>>());
            if values.len() > MAX_VALUES {
                *values = unset();
            }
        }
        for (name, mut values) in other.variables {
            if !values.contains(&Value::Unknown) {
                values.push(Value::Unknown);
            }
            self.set(&name, values);
        }
        self.functions.extend(other.functions);
    }

    /// This state, in which nothing is known of what differs from `before`.
    pub(super) fn without_changes(&self, before: &Self) -> Self {
        let mut state = self.clone();
        if state.cwd != before.cwd {
            state.cwd = None;
        }
        if state.folders != before.folders {
            state.folders.clear();
        }
        if state.arguments != before.arguments {
            state.arguments = None;
        }
        for (name, values) in &mut state.variables {
            if before.variables.get(name) != Some(values) {
                *values = vec![Value::Unknown];
            }
        }
        state
    }
}
