//! Path patterns (globs) over a repository: what a lease, a group or a rule covers.
//!
//! # Grammar
//!
//! | written | matches |
//! |---|---|
//! | `?` | one character, not `/` |
//! | `*` | any characters, none included, but not `/` |
//! | `**` as a whole component | any number of folders, none included; at the end, everything below (`a/**` is not `a`) |
//! | `**` elsewhere, as in `a**b` | the same as `*` |
//! | `[a-z]`, `[!a]`, `[^a]`, `[[:alpha:]]` | one character of the class, never `/`; a `]` that comes first is a member |
//! | `{a,b/*,}` | any of the alternatives, which may nest, hold `/` and wildcards, or be empty |
//! | `\*` | the character after the backslash |
//!
//! A pattern without wildcards is a **literal** path and covers itself and its subtree, by components:
//! `src/app` covers `src/app/x.rs` and never `src/application`. Any other pattern matches whole paths and
//! nothing below them, unless it ends in a slash, which asks for the subtree as well: `packages/*/`. `.` is
//! the whole repository.
//!
//! Wildcards match leading dots, case matters, and a character is a Unicode scalar value (POSIX classes are
//! ASCII, as in git). Braces mean what their alternatives would mean written out, except that a `**` is two
//! stars side by side in the text, and that braces make a pattern no literal: `{src,docs}` is two paths,
//! `{src/,docs/}` two subtrees. A path has at least one component, and none that is empty, `.` or `..`. A pattern
//! that matches no such path is refused.

mod automaton;
mod class;
mod compile;
mod error;
mod normal;
mod parse;
mod set;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use automaton::{Automaton, Edge, Label, State};
pub use error::PatternError;
pub(crate) use set::after;

/// The most bytes of a pattern.
pub const MAX_LENGTH: usize = 4096;

/// The most levels of nested braces.
pub const MAX_DEPTH: usize = 32;

/// A parsed pattern in normal form; equal, ordered and hashed by its text, and cheap to clone.
#[derive(Clone)]
pub struct Pattern {
    inner: Arc<Inner>,
}

struct Inner {
    text: String,
    prefix: String,
    fixed_components: String,
    open: bool,
    suffix: String,
    parent_length: usize,
    literal: bool,
    /// The state of the automaton after the prefix.
    prefix_state: State,
    automaton: Automaton,
    example: String,
}

impl Pattern {
    /// Reads a pattern and normalises it.
    ///
    /// It removes `./`, doubled slashes and needless backslashes, and turns `**/**` into `**`. A literal path
    /// loses its trailing slash, because it covers its subtree anyway: `src/` is `src`.
    ///
    /// # Errors
    ///
    /// A text that is malformed, too large, leaves the repository, or can match no path.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let normal = normal::normalise(parse::parse(text)?)?;
        let automaton = compile::compile(&normal.nodes, &normal.prefix, &normal.text)?;
        let example = crate::overlap::shortest(&automaton)
            .ok_or_else(|| PatternError::MatchesNothing { pattern: normal.text.clone() })?;
        let prefix_state = State::try_from(normal.prefix.chars().count())
            .expect("a prefix has a state for each character, and states are numbered by this type");
        Ok(Self {
            inner: Arc::new(Inner {
                text: normal.text,
                prefix: normal.prefix,
                fixed_components: normal.fixed_components,
                open: normal.open,
                suffix: normal.suffix,
                parent_length: normal.parent_length,
                literal: normal.literal,
                prefix_state,
                automaton,
                example,
            }),
        })
    }

    /// Returns the normalised text, which parses to an equal pattern.
    pub fn as_str(&self) -> &str {
        &self.inner.text
    }

    /// Says whether the pattern has no wildcards, and so covers itself and its subtree.
    pub fn is_literal(&self) -> bool {
        self.inner.literal
    }

    /// Says whether the pattern matches a path, given from the root of the repository.
    ///
    /// `./`, doubled and trailing slashes in the path are ignored. An absolute path, one with `..`, and one
    /// without components are matched by no pattern: they have to be resolved first. Nor is a text with NUL, which
    /// is no path.
    pub fn matches(&self, path: &str) -> bool {
        clean(path).is_some_and(|path| self.matches_clean(&path))
    }

    /// Returns the leading components without wildcards, unescaped: `src/api` of `src/api/**`, nothing of
    /// `**/*.ts`.
    ///
    /// Two patterns can only overlap when the prefix of one is, by components, a prefix of the other's.
    pub fn literal_prefix(&self) -> &str {
        &self.inner.prefix
    }

    /// Returns the text before the last component, and nothing for a pattern of one component: `src` of
    /// `src/*.rs`.
    pub fn parent(&self) -> &str {
        &self.inner.text[..self.inner.parent_length]
    }

    /// Returns a short path that the pattern matches.
    pub fn example(&self) -> &str {
        &self.inner.example
    }

    /// Says whether the pattern matches a path that needs no cleaning.
    pub(crate) fn matches_clean(&self, path: &str) -> bool {
        is_within(path, &self.inner.prefix)
            && (self.inner.literal
                || path.ends_with(&self.inner.suffix)
                    && self
                        .inner
                        .automaton
                        .accepts(self.inner.prefix_state, &path[self.inner.prefix.len()..]))
    }

    pub(crate) fn automaton(&self) -> &Automaton {
        &self.inner.automaton
    }

    /// Returns the state of the automaton after the literal prefix.
    pub(crate) fn prefix_state(&self) -> State {
        self.inner.prefix_state
    }

    /// Returns the components after the literal prefix that every matched path has, each after a slash: its name, or
    /// nothing if it has wildcards. `//b` of `src/*/b/**`.
    pub(crate) fn fixed_components(&self) -> &str {
        &self.inner.fixed_components
    }

    /// Says whether matched paths may have more components than the prefix and the fixed components.
    pub(crate) fn is_open(&self) -> bool {
        self.inner.open
    }

    /// Returns literal characters that every matched path ends with.
    pub(crate) fn literal_suffix(&self) -> &str {
        &self.inner.suffix
    }
}

/// Says whether `path` is `folder` or below it, by components; everything is below the root, `""`.
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Drops what a path does not need; `None` when it is not a path inside the repository.
fn clean(path: &str) -> Option<Cow<'_, str>> {
    if path.contains('\0') {
        return None;
    }
    let mut clean = true;
    for name in path.split('/') {
        match name {
            ".." => return None,
            "" | "." => clean = false,
            _ => {}
        }
    }
    if clean {
        return Some(Cow::Borrowed(path));
    }
    if path.starts_with('/') {
        return None;
    }
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    (!names.is_empty()).then(|| Cow::Owned(names.join("/")))
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::parse(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Pattern").field(&self.as_str()).finish()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

#[cfg(test)]
mod tests;
