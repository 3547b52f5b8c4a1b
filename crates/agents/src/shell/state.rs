//! What a shell knows at one point of a script: its folder, variables and functions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::syntax::{Command, Word};
use super::value::Value;

/// The possible values of a variable: more than one after `if` and the like.
pub(super) type Values = Vec<Value>;

#[derive(Clone)]
pub(super) struct State {
    /// The working folder. `None`: not known any more.
    pub(super) cwd: Option<PathBuf>,
    /// Folders that `pushd` left.
    pub(super) folders: Vec<Option<PathBuf>>,
    pub(super) variables: HashMap<String, Values>,
    pub(super) functions: HashMap<String, Function>,
    /// The here-documents of the script that runs.
    pub(super) bodies: Rc<Vec<Word>>,
}

/// A function, with the here-documents of the script that defines it.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) body: Rc<Command>,
    pub(super) bodies: Rc<Vec<Word>>,
}

/// A variable has at most this many possible values; more are not followed.
const MAX_VALUES: usize = 8;
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
            functions: HashMap::new(),
            bodies: Rc::new(Vec::new()),
        }
    }

    pub(super) fn values(&self, name: &str) -> Values {
        if name == "PWD" {
            let cwd = self.cwd.as_deref().and_then(Path::to_str);
            return vec![cwd.map_or(Value::Unknown, |cwd| Value::Text(cwd.to_owned()))];
        }
        self.variables.get(name).cloned().unwrap_or_else(|| vec![Value::Unknown])
    }

    pub(super) fn set(&mut self, name: &str, values: Values) {
        let values =
            if values.len() > MAX_VALUES || values.is_empty() { vec![Value::Unknown] } else { values };
        if self.variables.len() < MAX_VARIABLES || self.variables.contains_key(name) {
            self.variables.insert(name.to_owned(), values);
        }
    }

    /// Merges the state after a list that may or may not have run: a changed variable then has several possible values.
    pub(super) fn merge(&mut self, other: Self) {
        if self.cwd != other.cwd {
            self.cwd = None;
        }
        let unset = || vec![Value::Unknown];
        for (name, values) in other.variables {
            let own = self.variables.get(&name);
            if own == Some(&values) {
                continue;
            }
            let mut all = own.cloned().unwrap_or_else(unset);
            for value in values {
                if !all.contains(&value) {
                    all.push(value);
                }
            }
            self.set(&name, all);
        }
        self.functions.extend(other.functions);
    }
}
