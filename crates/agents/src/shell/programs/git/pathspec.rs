//! Pathspecs: the paths of a git command, with git's own wildcards and magic words.

use std::path::Path;

use lockkeeper_core::pattern::Pattern;

use crate::place::join;
use crate::shell::reader::Reader;
use crate::shell::state::State;
use crate::shell::value::{Value, escaped};

/// A pathspec whose magic words are read.
struct Spec<'a> {
    /// It counts from the top of the work tree.
    from_top: bool,
    wildcards: Wildcards,
    path: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wildcards {
    /// `*` also matches `/`.
    AcrossFolders,
    /// As in a `.gitignore` file.
    Glob,
    /// There are none.
    None,
}

impl Reader<'_> {
    /// What the paths of a git command mean. One that excludes paths makes all of them unknown.
    pub(super) fn pathspecs(&self, paths: &[Value], state: &State) -> Vec<Value> {
        let meaning = |path: &Value| match path {
            Value::Text(text) => self.pathspec(text, state),
            Value::Pattern(pattern) if self.matches_nothing(pattern, state) => {
                // The shell hands it to git as it is.
                Some(Value::Pattern(across_folders(pattern)))
            }
            Value::Pattern(_) | Value::Unknown => Some(path.clone()),
        };
        let found: Option<Vec<Value>> = paths.iter().map(meaning).collect();
        found.unwrap_or_else(|| vec![Value::Unknown])
    }

    /// What one pathspec means. `None`: it excludes paths.
    fn pathspec(&self, text: &str, state: &State) -> Option<Value> {
        let Some(spec) = spec(text)? else { return Some(Value::Unknown) };
        let from = match spec.from_top {
            true => self.top(state).map(|top| format!("{top}/")),
            false => Some(String::new()),
        };
        let Some(from) = from else { return Some(Value::Unknown) };
        let is_plain = spec.wildcards == Wildcards::None || !spec.path.contains(['*', '?', '[']);
        let in_grammar = |pattern: String| {
            let known = pattern.trim_start_matches('/').parse::<Pattern>().is_ok();
            if known { Value::Pattern(pattern) } else { Value::Unknown }
        };
        Some(match spec.wildcards {
            _ if is_plain => Value::Text(format!("{from}{}", spec.path)),
            Wildcards::Glob => in_grammar(format!("{}{}", escaped(&from), without_braces(spec.path))),
            _ => in_grammar(format!("{}{}", escaped(&from), across_folders(spec.path))),
        })
    }

    /// The top of the work tree.
    fn top(&self, state: &State) -> Option<String> {
        let is_top = |folder: &&Path| (self.place.entry)(&folder.join(".git")).is_some();
        let top = state.cwd.as_deref()?.ancestors().find(is_top)?;
        top.to_str().map(|top| top.trim_end_matches('/').to_owned())
    }

    /// Whether no entry of the working folder matches a pattern without folders.
    fn matches_nothing(&self, pattern: &str, state: &State) -> bool {
        let (Some(cwd), Ok(matching)) = (&state.cwd, pattern.parse::<Pattern>()) else { return false };
        !pattern.contains('/')
            && !(self.place.names)(&join(cwd, ".")).iter().any(|name| matching.matches(name))
    }
}

/// Reads the magic words of a pathspec. `None`: it excludes paths. `Some(None)`: it has words that are not followed.
fn spec(text: &str) -> Option<Option<Spec<'_>>> {
    let mut spec = Spec { from_top: false, wildcards: Wildcards::AcrossFolders, path: text };
    let Some(magic) = text.strip_prefix(':') else { return Some(Some(spec)) };
    if let Some((words, path)) = magic.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        spec.path = path;
        for word in words.split(',') {
            match word {
                "top" => spec.from_top = true,
                "glob" => spec.wildcards = Wildcards::Glob,
                "literal" => spec.wildcards = Wildcards::None,
                "exclude" => return None,
                _ => return Some(None),
            }
        }
        return Some(Some(spec));
    }
    let path = magic.trim_start_matches(['/', '!', '^']);
    let signs = &magic[..magic.len() - path.len()];
    if signs.contains(['!', '^']) {
        return None;
    }
    spec.from_top = signs.contains('/');
    spec.path = path.strip_prefix(':').unwrap_or(path);
    Some(Some(spec).filter(|spec| spec.from_top && !spec.path.is_empty()))
}

/// A pattern of which a `*` also matches `/`, in the grammar of [`lockkeeper_core::pattern`].
fn across_folders(spec: &str) -> String {
    let mut pattern = String::new();
    let spec = without_braces(spec);
    let mut characters = spec.chars().peekable();
    while let Some(character) = characters.next() {
        pattern.push(character);
        match character {
            '\\' => pattern.extend(characters.next()),
            '*' => {
                pattern.pop();
                while characters.next_if_eq(&'*').is_some() {}
                let begins = pattern.is_empty() || pattern.ends_with('/');
                pattern.push_str(match (begins, characters.peek()) {
                    (true, None) => "**",
                    (_, Some('/')) => "*/**",
                    (true, Some(_)) => "**/*",
                    // What is below belongs to every path of a git command.
                    (false, None) => "*",
                    (false, Some(_)) => "{*,*/**/*}",
                });
            }
            _ => {}
        }
    }
    pattern
}

/// A text in which braces stand for themselves.
fn without_braces(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut is_escaped = false;
    for character in text.chars() {
        if matches!(character, '{' | '}') && !is_escaped {
            plain.push('\\');
        }
        is_escaped = character == '\\' && !is_escaped;
        plain.push(character);
    }
    plain
}
