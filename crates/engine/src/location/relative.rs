//! Patterns of users, who write them relative to their current folder, as patterns relative to the root.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Location;

/// Why a path or pattern is not in this repository.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutsideError {
    /// It is outside of the root.
    #[error("`{text}` is outside of {}", root.display())]
    Outside {
        /// The path or pattern.
        text: String,
        /// The root.
        root: PathBuf,
    },
}

impl Location {
    /// Converts a pattern that is relative to `cwd` into one that is relative to the root.
    ///
    /// An absolute pattern must be inside of the root.
    pub fn from_root(&self, text: &str, cwd: &Path) -> Result<String, OutsideError> {
        let outside = || OutsideError::Outside { text: text.to_owned(), root: self.root.clone() };
        if let Some(absolute) = text.strip_prefix('/') {
            let root = self.root.to_str().ok_or_else(outside)?.trim_start_matches('/');
            if root.is_empty() {
                return Ok(absolute.to_owned());
            }
            let below = absolute.strip_prefix(root).ok_or_else(outside)?;
            return match below.strip_prefix('/') {
                Some(inside) if !inside.is_empty() => Ok(inside.to_owned()),
                Some(_) => Ok("**".to_owned()),
                None if below.is_empty() => Ok("**".to_owned()),
                None => Err(outside()),
            };
        }
        let Ok(below) = cwd.strip_prefix(&self.root) else { return Ok(text.to_owned()) };
        let below = below.to_str().ok_or_else(outside)?;
        if below.is_empty() {
            return Ok(text.to_owned());
        }
        let literal = literal_pattern(below);
        Ok(if matches!(text, "." | "./") { literal } else { format!("{literal}/{text}") })
    }
}

/// The pattern that matches exactly this path.
pub fn literal_pattern(path: &str) -> String {
    path.chars().flat_map(escaped).collect()
}

/// Escapes a character of a folder name that would have a meaning in a pattern.
fn escaped(character: char) -> impl Iterator<Item = char> {
    let special = matches!(character, '*' | '?' | '[' | ']' | '{' | '}' | '\\');
    special.then_some('\\').into_iter().chain([character])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::LocationSource;

    #[test]
    fn patterns_are_relative_to_the_current_folder() {
        let location = Location {
            state: "/r/.git/x".into(),
            root: "/r".into(),
            source: LocationSource::Git,
            shared: None,
        };
        let from = |text: &str, cwd: &str| location.from_root(text, Path::new(cwd));
        assert_eq!(from("*.rs", "/r"), Ok("*.rs".to_owned()));
        assert_eq!(from("*.rs", "/r/src"), Ok("src/*.rs".to_owned()));
        assert_eq!(from(".", "/r/src"), Ok("src".to_owned()));
        assert_eq!(from("x", "/r/a[1]"), Ok("a\\[1\\]/x".to_owned()));
        assert_eq!(from("/r/src/**", "/r/docs"), Ok("src/**".to_owned()));
        assert_eq!(from("/r", "/r"), Ok("**".to_owned()));
        assert!(from("/rx/src", "/r").is_err());
        assert!(from("/etc/passwd", "/r").is_err());
    }
}
