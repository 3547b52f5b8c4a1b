//! Group names. They become file names and fields of the registry.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The most bytes of a name: a file name has at most 255, with `.lock`.
const MAX_LENGTH: usize = 250;

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(String);

impl GroupId {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of its lock file.
    pub fn file_name(&self) -> String {
        format!("{}.lock", self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is not the name of a group.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GroupIdError {
    /// It is empty.
    #[error("the group's name is empty")]
    Empty,
    /// It is too long for a file name.
    #[error("the group's name is {0} bytes long, more than {MAX_LENGTH}")]
    TooLong(usize),
    /// It is `.` or `..`, which are folders.
    #[error("`{0}` cannot be the name of a group")]
    Dots(String),
    /// It has a character that a file name or the registry must not have.
    #[error("the group's name `{}` contains {character:?}", text.escape_debug())]
    Character {
        /// The whole text.
        text: String,
        /// The first character that is not allowed.
        character: char,
    },
}

impl GroupIdError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Empty => "name a group, such as impl-backend",
            Self::TooLong(_) => "use a shorter name",
            Self::Dots(_) => "name a group, such as impl-backend",
            Self::Character { .. } => {
                "it becomes a file name and a field of the registry: no /, no :, no control characters, no blanks around it"
            }
        }
    }
}

impl FromStr for GroupId {
    type Err = GroupIdError;

    fn from_str(text: &str) -> Result<Self, GroupIdError> {
        if text.is_empty() {
            return Err(GroupIdError::Empty);
        }
        if text.len() > MAX_LENGTH {
            return Err(GroupIdError::TooLong(text.len()));
        }
        if matches!(text, "." | "..") {
            return Err(GroupIdError::Dots(text.to_owned()));
        }
        let mut edges = text.chars().next().into_iter().chain(text.chars().next_back());
        let blank_edge = edges.find(|character| character.is_whitespace());
        let unfit = |character: &char| character.is_control() || matches!(character, '/' | ':');
        match text.chars().find(unfit).or(blank_edge) {
            Some(character) => Err(GroupIdError::Character { text: text.to_owned(), character }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requirement 100.
    #[test]
    fn the_lock_file_is_named_after_the_group() {
        for name in ["impl-backend", "test.unit", "组", "a b", "...", "-x", "a..b"] {
            assert_eq!(name.parse::<GroupId>().unwrap().file_name(), format!("{name}.lock"));
        }
    }

    /// Requirement 149.
    #[test]
    fn names_that_leave_the_folder_or_break_a_line_of_the_registry_are_refused() {
        let long = "x".repeat(251);
        for name in ["", ".", "..", "a/b", "../a", "/etc/passwd", "a:b", "a\nb", "a\0b", " a", "a\t", &long] {
            let refusal = name.parse::<GroupId>().unwrap_err();
            assert!(!refusal.hint().is_empty() && !refusal.to_string().contains('\n'), "{name:?}");
        }
    }
}
