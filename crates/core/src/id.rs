//! Ids: owners, names, ids and tokens. Each is checked once, where it comes in.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// The longest owner, name or ticket name, in bytes.
pub const MAX_LENGTH: usize = 255;
/// The longest id that becomes part of a file's name, in bytes.
pub const MAX_FILE_NAME: usize = 128;

/// Why a text cannot be an owner, a name or an id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    /// The text is empty.
    #[error("{what} is empty")]
    Empty {
        /// What the text should be: `a name`, `a run id`.
        what: &'static str,
    },
    /// It is longer than [`MAX_LENGTH`], or than [`MAX_FILE_NAME`] for an id that becomes a file name.
    #[error("{what} is {length} bytes long, which is too much")]
    TooLong {
        /// What the text should be: `a name`, `a run id`.
        what: &'static str,
        /// How long it is.
        length: usize,
    },
    /// It contains a character that is not allowed.
    #[error("{what} `{}` contains {character:?}", text.escape_debug())]
    Character {
        /// What the text should be: `a name`, `a run id`.
        what: &'static str,
        /// The whole text.
        text: String,
        /// The first character that is not allowed.
        character: char,
    },
    /// A name such as `a//b`, `/a`, `a/` or `../a`.
    #[error("the name `{0}` has an empty, `.` or `..` part")]
    Part(String),
    /// A name that looks like a pattern.
    #[error("the name `{0}` looks like a pattern")]
    LooksLikePattern(String),
    /// An owner without `kind:`.
    #[error("the owner `{0}` is not of the form kind:id")]
    OwnerForm(String),
    /// A lease or ticket id that is not `L` or `T` and a number.
    #[error("`{0}` is not the id of a lease or ticket")]
    Number(String),
    /// An id that could not be a file's name.
    #[error("{what} `{}` has `/`, is `.` or `..`, or begins with `-`", text.escape_debug())]
    FileName {
        /// What the text should be: `a name`, `a run id`.
        what: &'static str,
        /// The whole text.
        text: String,
    },
    /// An event id that is not a run's id, a colon and a number from 1.
    #[error("`{0}` is not the id of an event")]
    EventForm(String),
}

impl IdError {
    /// What the user can do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Empty { .. } => "give it at least one character",
            Self::TooLong { .. } => "use a shorter one",
            Self::Character { .. } => "control characters and surrounding blanks are not allowed",
            Self::Part(_) => "write it like `db` or `git/index`",
            Self::LooksLikePattern(_) => "to lock paths, use --path PATTERN",
            Self::OwnerForm(_) => "write it like worker:worker-1 or claude:SESSION",
            Self::FileName { .. } => "write it like RQ-12 or fix-login",
            Self::EventForm(_) => "events look like RUN-20260131-120000-k3x9f2m7qd:4",
            Self::Number(_) => "leases look like L42 and tickets like T42: `lockkeeper locks` lists them",
        }
    }
}

fn check_text(what: &'static str, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > MAX_LENGTH {
        return Err(IdError::TooLong { what, length: text.len() });
    }
    let blank_edge = text.chars().next().filter(|c| c.is_whitespace());
    let blank_edge = blank_edge.or_else(|| text.chars().next_back().filter(|c| c.is_whitespace()));
    if let Some(character) = text.chars().find(|c| c.is_control()).or(blank_edge) {
        return Err(IdError::Character { what, text: text.to_owned(), character });
    }
    Ok(())
}

/// The name of a resource that is not a path: `impl-backend`, `git/index`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        check_text("a name", text)?;
        if text.contains(['*', '?', '[', ']', '{', '}']) {
            return Err(IdError::LooksLikePattern(text.to_owned()));
        }
        if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(IdError::Part(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The owner of leases and tickets: `kind:id`. Two requests of one owner never exclude each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The owner as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `other` has this owner's text and at least one part more: `claude:S` and `claude:S:A`.
    ///
    /// It means a family only between claims of agents. See [`Claim::gives_way_to`](crate::record::Claim::gives_way_to).
    pub fn is_above(&self, other: &Self) -> bool {
        other.0.strip_prefix(&*self.0).is_some_and(|rest| rest.len() > 1 && rest.starts_with(':'))
    }

    /// The owners above this one, the nearest first: `claude:S:A` and `claude:S` for `claude:S:A:B`.
    pub fn all_above(&self) -> impl Iterator<Item = Self> {
        let kind = self.0.find(':').map_or(0, |colon| colon + 1);
        let colons = self.0.match_indices(':').map(|(at, _)| at).filter(move |at| *at > kind).rev();
        colons.map(|at| Self(self.0[..at].into())).filter(|above| above.is_above(self))
    }
}

impl FromStr for Owner {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        check_text("an owner", text)?;
        let form = || IdError::OwnerForm(text.to_owned());
        let (kind, id) = text.split_once(':').ok_or_else(form)?;
        let kind_is_word = kind.starts_with(|c: char| c.is_ascii_lowercase())
            && kind.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if kind_is_word && !id.is_empty() { Ok(Self(text.into())) } else { Err(form()) }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name that a user gave a ticket. A later command finds the ticket by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketName(String);

impl TicketName {
    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TicketName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        check_text("a ticket", text)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for TicketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a claim, given when it first enters the store: `T42` while it waits, `L42` once it holds.
///
/// It comes from the same sequence as tokens, so it is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

impl LeaseId {
    /// The id as the text of a ticket: `T42`.
    pub fn as_ticket(self) -> String {
        format!("T{}", self.0)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

impl FromStr for LeaseId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let digits = text.strip_prefix(['L', 'T']).unwrap_or(text);
        let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse().ok().filter(|number| all_digits && *number > 0);
        number.map(Self).ok_or_else(|| IdError::Number(text.to_owned()))
    }
}

/// Declares an id that is also the name of a folder or file, and stays as its user wrote it.
macro_rules! file_name_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The id as written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                check_text($what, text)?;
                if text.len() > MAX_FILE_NAME {
                    return Err(IdError::TooLong { what: $what, length: text.len() });
                }
                if text.contains('/') || text.starts_with('-') || matches!(text, "." | "..") {
                    return Err(IdError::FileName { what: $what, text: text.to_owned() });
                }
                Ok(Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

file_name_id! {
    /// The id of a request: `RQ-…`, or what its user chose.
    RequestId, "a request id"
}
file_name_id! {
    /// The id of a run: `RUN-20260131-120000-k3x9f2m7qd`.
    RunId, "a run id"
}
file_name_id! {
    /// The id of a worker. Each start of a worker gets a new one.
    WorkerId, "a worker id"
}

/// A fencing token: a later lease has a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a resident process, which stays while it holds or waits: a random number. Its liveness lock is the byte of the
/// file `life` at this offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u64);

/// The waker of one sleeping process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WakerId(pub u64);

impl fmt::Display for WakerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_are_kept_as_written() {
        for text in ["db", "git/index", "impl-backend", "数据库", "a b", "x.y", "...", "a:b"] {
            assert_eq!(text.parse::<Name>().unwrap().as_str(), text);
        }
    }

    /// Requirement 204.
    #[test]
    fn bad_names_are_refused() {
        let long = "x".repeat(256);
        for text in
            ["", "/", "a//b", "/a", "a/", "..", "a/../b", "./a", "a\0b", "a\nb", " a", "a ", "src/**", &long]
        {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_given_as_a_name_is_refused_with_a_hint_at_the_path_flag() {
        let refusal = "src/*.rs".parse::<Name>().unwrap_err();
        assert!(refusal.hint().contains("--path"));
    }

    #[test]
    fn owners_have_a_kind_and_an_id() {
        for text in ["worker:worker-1", "claude:S:A", "run:1"] {
            assert!(text.parse::<Owner>().is_ok(), "{text}");
        }
        for text in ["", "worker", "worker:", ":x", "Worker:x", "1w:x", "wor ker:x", "worker:a\u{7}"] {
            assert!(text.parse::<Owner>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_owner_with_one_part_more_is_below() {
        let owner = |text: &str| text.parse::<Owner>().unwrap();
        let above = |text: &str| owner(text).all_above().map(|o| o.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(above("claude:S:A:B"), ["claude:S:A", "claude:S"]);
        for alone in ["claude:S", "claude::", "claude:S:"] {
            assert_eq!(above(alone), [""; 0], "{alone}");
        }
        assert!(owner("claude:S").is_above(&owner("claude:S:A")));
        for (one, other) in [
            ("claude:S", "claude:S"),
            ("claude:S:A", "claude:S"),
            ("claude:S", "claude:SA"),
            ("claude:S", "claude:S:"),
        ] {
            assert!(!owner(one).is_above(&owner(other)), "{one} {other}");
        }
    }

    /// Requirement 204.
    #[test]
    fn ids_that_become_file_names_stay_in_their_folder() {
        for text in ["RQ-12", "fix login", "数据", "a.b", "...", "RUN-20260131-120000-k3x"] {
            assert_eq!(text.parse::<RequestId>().unwrap().as_str(), text);
        }
        let long = "x".repeat(129);
        for text in ["", ".", "..", "a/b", "../a", "/a", "-x", "a\0", "a\n", " a", &long] {
            assert!(text.parse::<RequestId>().is_err(), "{text:?}");
            assert!(text.parse::<RunId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn lease_ids_come_back_from_their_text() {
        for text in ["L42", "T42", "42"] {
            assert_eq!(text.parse::<LeaseId>(), Ok(LeaseId(42)));
        }
        for text in ["", "L", "L0", "L-1", "L+1", "X1", "L99999999999999999999"] {
            assert!(text.parse::<LeaseId>().is_err(), "{text}");
        }
    }
}
