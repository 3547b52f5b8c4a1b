//! YAML reader: builds a tree whose nodes know their line and column, so that every error can point at the text.
//!
//! The input is bounded: [`MAX_BYTES`] of text, [`MAX_DEPTH`] levels, and [`MAX_NODES`] nodes after aliases are expanded.
//! So a large file, a deep file, and aliases of aliases cost no more than a known amount.

mod compose;
mod node;
mod place;
mod syntax_error;

pub use compose::compose;
pub use node::{Node, Value};
pub use place::{Place, Source};

/// The most bytes of a file.
pub const MAX_BYTES: usize = 4 << 20;

/// The most nested levels of lists and mappings.
pub const MAX_DEPTH: usize = 48;

/// The most nodes of a file. A node counts once for every alias that repeats it.
pub const MAX_NODES: usize = 400_000;

/// Why a text is not read as YAML, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// A stable code for programs.
    pub code: &'static str,
    /// Where the error is.
    pub place: Place,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What the user can do about it.
    pub hint: Option<String>,
}

impl YamlError {
    fn new(code: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self { code, place, message: message.into(), hint: None }
    }

    #[must_use]
    fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
